"""Archives of torch whose code, pickles or records were tampered with."""

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path


def records_of(path: Path) -> dict[str, bytes]:
    """The records of an archive, by their whole names."""
    with zipfile.ZipFile(path) as archive:
        return {entry.filename: archive.read(entry) for entry in archive.infolist()}


def write_records(path: Path, records: Mapping[str, bytes]) -> Path:
    """An archive of these records, stored as they are."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records.items():
            archive.writestr(name, content)
    return path


def with_pickle(honest: Path, path: Path, change) -> Path:
    """A copy of an archive whose data.pkl was changed."""
    return write_records(
        path,
        {name: change(old) if name.endswith("/data.pkl") else old for name, old in records_of(honest).items()},
    )


def with_code(honest: Path, path: Path, written: Path) -> Path:
    """A copy of a TorchScript archive in which the default of a new method writes a file as soon as torch loads it."""
    records = records_of(honest)
    file = next(name for name in records if name.endswith(".py"))
    space = file.partition("/code/")[2].removesuffix(".py").replace("/", ".")
    write = f'torch.copy_(torch.from_file("{written}", True, 4, dtype=0), torch.tensor([104, 97, 114, 109], dtype=0))'
    method = f"  def other(self: {space}.Module,\n    x: Tensor={write}) -> Tensor:\n    return x\n"
    return write_records(path, {**records, file: records[file] + method.encode()})


# -- pickles ---------------------------------------------------------------------------------------------------------
# Each is a piece of a pickle that makes the folder PATH when Python's own machine runs it, and leaves one value.


def text(value: str) -> bytes:
    """The pickle of a string."""
    return b"X" + len(value.encode()).to_bytes(4, "little") + value.encode()


EXTENSION = 240  # a number for os.mkdir, which whoever runs the pickle has to register
CALLS = {
    "GLOBAL and REDUCE": lambda path: b"cos\nmkdir\n" + text(path) + b"\x85R",
    "STACK_GLOBAL": lambda path: text("os") + text("mkdir") + b"\x93" + text(path) + b"\x85R",
    "INST": lambda path: b"(" + text(path) + b"ios\nmkdir\n",
    "OBJ": lambda path: b"(cos\nmkdir\n" + text(path) + b"o",
    "EXT1": lambda path: bytes([0x82, EXTENSION]) + text(path) + b"\x85R",
    "EXT4": lambda path: b"\x84" + EXTENSION.to_bytes(4, "little") + text(path) + b"\x85R",
    "a call in a call": lambda path: b"cfunctools\npartial\ncos\nmkdir\n\x85R" + text(path) + b"\x85R",
    "eval": lambda path: b"cbuiltins\neval\n" + text(f"__import__('os').mkdir({path!r})") + b"\x85R",
}


def before(honest: bytes, evil: bytes) -> bytes:
    """A pickle that first runs something evil and then is what it was."""
    return b"\x80\4" + evil + b"0" + honest[2:]


def harm_of(evil: bytes) -> None:
    """Run a piece of a pickle as Python would."""
    pickle.loads(b"\x80\4" + evil + b".")
