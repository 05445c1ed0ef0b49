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


# -- code of TorchScript ---------------------------------------------------------------------------------------------
# Each is given the code of a class, the class's full name, its namespace, and an expression that writes a file.


def _method(name: str, parameter: str, kind: str = "Tensor") -> str:
    return f"  def {name}(self: CLASS,\n    x: {parameter}) -> {kind}:\n    return x\n"


def _taking(name: str) -> str:
    return f"  def takes(self: CLASS,\n    x: SPACE.{name}) -> int:\n    return 1\n"


RUN_WHEN_LOADED = {
    "the default of forward": lambda code: code + _method("forward", "Tensor=WRITE"),
    "the default of another method": lambda code: code + _method("other", "Tensor=WRITE"),
    "an optional default": lambda code: code + _method("other", "Optional[Tensor]=WRITE", "Optional[Tensor]"),
    "an integer default": lambda code: code + _method("other", "int=torch.numel(WRITE)", "int"),
    "a list default": lambda code: code + _method("other", "List[Tensor]=[WRITE]", "List[Tensor]"),
    "a comprehension": lambda code: code + _method("other", "List[Tensor]=[WRITE for i in range(2)]", "List[Tensor]"),
    "a class attribute": lambda code: code.replace("  training", "  a : Final[Tensor] = WRITE\n  training", 1),
    "the default of a function": lambda code: (
        f"{code}  def calls(self: CLASS) -> Tensor:\n    return SPACE.fn()\n"
        "def fn(x: Tensor=WRITE) -> Tensor:\n  return x\n"
    ),
    "the default of an interface": lambda code: (
        f"{code}{_taking('Face')}class Face(Interface):\n  def method(self, x: Tensor=WRITE) -> Tensor:\n    pass\n"
    ),
    "the default of another class": lambda code: (
        f"{code}{_taking('Plain')}class Plain:\n"
        "  def method(self: SPACE.Plain, x: Tensor=WRITE) -> Tensor:\n    return x\n"
    ),
}
REFUSED_BY_TORCH = {  # or it crashes
    "an annotation": lambda code: code.replace("  training", '  __annotations__["a"] = WRITE\n  training', 1),
    "a type": lambda code: code + _method("other", "WRITE"),
    "the list of buffers": lambda code: code.replace("__buffers__ = [", "__buffers__ = [WRITE, ", 1),
    "a top-level constant": lambda code: "a = WRITE\n" + code,
    "a named tuple": lambda code: f"{code}{_taking('Pair')}class Pair(NamedTuple):\n  a : Tensor = WRITE\n",
    "an enumeration": lambda code: f"{code}{_taking('Kind')}class Kind(Enum):\n  a = WRITE\n",
    "a hook": lambda code: code.replace("  training", '  __forward_pre_hooks__ = ["hook", ]\n  training', 1),
    "the body of __setstate__": lambda code: (
        f"{code}  def __setstate__(self: CLASS,\n    state: Dict[str, Tensor]) -> NoneType:\n"
        "    a = WRITE\n    return None\n"
    ),
    "no code": lambda code: "\0\xff" * 1000,
}
CODE = RUN_WHEN_LOADED | REFUSED_BY_TORCH


def with_code(honest: Path, path: Path, attack: str, written: Path) -> Path:
    """A copy of a TorchScript archive with an attack in the code of one class; if it succeeds, a file is written."""
    records = records_of(honest)
    file = next(name for name in records if name.endswith(".py"))
    space = file.partition("/code/")[2].removesuffix(".py").replace("/", ".")
    write = f'torch.copy_(torch.from_file("{written}", True, 4, dtype=0), torch.tensor([104, 97, 114, 109], dtype=0))'
    code = CODE[attack](records[file].decode())
    for name, meaning in {"CLASS": f"{space}.Module", "SPACE": space, "WRITE": write}.items():
        code = code.replace(name, meaning)
    return write_records(path, {**records, file: code.encode()})


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
