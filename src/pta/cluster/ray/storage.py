"""A folder of blocks: on this machine, or at any address that fsspec knows (s3://…, gs://…, memory://…).

On a disk a file is written beside its place and renamed; on an object store it is one PUT under its final name. So a
reader sees a whole file or none. The folder says what its run is made from: the same command resumes, and another
is refused.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from pta.data.sources.addresses import about_file, ask, is_remote, open_whole, require_no_password
from pta.door.files import as_path, write_atomically
from pta.door.patience import USUAL_PATIENCE, is_absent
from pta.door.plain_files import make_folder, require_no_link
from pta.errors import StateMismatch, UnreadableFile, UnreadSample

Made = TypeVar("Made")

_LONGEST_HEADER = 100 * 2**20  # that safetensors itself takes
ABOUT = "about.json"


@dataclass(frozen=True)
class Folder:
    """Files by name; tasks carry it to other machines."""

    address: str

    @classmethod
    def at(cls, address: str) -> "Folder":
        """The folder at an address; a path is made absolute, because workers run in folders of their own."""
        require_no_password(address)
        return cls(address if is_remote(address) else str(as_path(address).absolute()))

    def path(self, name: str) -> str:
        """The address of a file."""
        return f"{self.address.rstrip('/')}/{name}"

    def sub(self, name: str) -> "Folder":
        """A folder in this one, which no link leads elsewhere."""
        if not is_remote(self.address):
            require_no_link(Path(self.path(name)))
        return Folder(self.path(name))

    def write(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all."""
        if not is_remote(self.address):
            make_folder(Path(self.address))
            write_atomically(Path(self.path(name)), content)
            return
        ask(self.path(name), "written", lambda system, path: system.pipe_file(path, content))

    def read(self, name: str) -> bytes:
        """The content of a file."""
        return bytes(ask(self.path(name), "read", lambda system, path: system.cat_file(path)))

    def read_json(self, name: str) -> Any:
        """What a JSON file holds."""
        content = self.read(name)
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise UnreadableFile(f"{self.path(name)} is not JSON (truncated or damaged?)") from None

    def parquet(self, name: str, take: Callable[[pq.ParquetFile], Made]) -> Made | None:
        """What is taken of a parquet file; None if it is damaged or not there. What fails now counts as neither."""

        def get() -> Made:
            with open_whole(self.path(name)) as file:
                return take(pq.ParquetFile(file))

        try:
            return USUAL_PATIENCE.ask(get)
        except UnreadSample as failure:
            if not is_absent(failure.__cause__):
                raise
        except (pa.ArrowException, OSError):  # damaged
            pass
        return None

    def has(self, name: str) -> bool:
        """Whether a file of the name is there, whatever it holds."""
        return (about_file(self.path(name)) or {}).get("type") == "file"

    def exists(self) -> bool:
        """Whether it is there."""
        return about_file(self.address) is not None

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        if self.exists():
            ask(self.address, "removed", lambda system, path: system.rm(path, recursive=True))

    def is_whole(self, name: str) -> bool:
        """Whether a safetensors file is there and as long as its header says."""
        return self._header(name) is not None

    def about(self, name: str) -> dict[str, Any]:
        """What a safetensors file of pta says about itself; nothing if it is not there or cut short."""
        try:
            about = json.loads((self._header(name) or {})["about"])
        except (KeyError, ValueError, TypeError):
            return {}
        return about if isinstance(about, dict) else {}

    def _header(self, name: str) -> dict[str, Any] | None:
        """The metadata of a whole safetensors file; a storage that fails is asked again, and does not count as none."""
        with suppress(UnreadableFile):
            return ask(self.path(name), "read", _header_of)
        return None


def _header_of(system: Any, path: str) -> dict[str, Any] | None:
    with suppress(ValueError, KeyError, TypeError, AttributeError), system.open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _LONGEST_HEADER:
            return None
        header = json.loads(file.read(length))
        metadata = header.pop("__metadata__", {})
        end = max((one["data_offsets"][1] for one in header.values()), default=0)
        return metadata if file.seek(0, 2) == 8 + length + end else None
    return None


def block_name(rows: range, ending: str = "safetensors") -> str:
    """The file of a block, by its first row and the row after its last.

    >>> block_name(range(0, 65_536))
    '000000000000-000000065536.safetensors'
    """
    return f"{rows.start:012d}-{rows.stop:012d}.{ending}"


def run_id(inputs: Mapping[str, Any]) -> str:
    """The same for the same inputs, block size included."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:32]


def kept_block(folder: Folder, count: int) -> int | None:
    """The size of blocks of the run in a folder, if it is one of so many samples."""
    about = folder.read_json(ABOUT) if folder.has(ABOUT) else {}
    inputs = about.get("inputs") if isinstance(about, dict) else None
    known = _inner(inputs) if isinstance(inputs, dict) else {}
    return known["block"] if known.get("count") == count and isinstance(known.get("block"), int) else None


@dataclass(frozen=True)
class RunFolder:
    """A kind of blocks in a folder, made from inputs."""

    kind: str
    out: Folder
    inputs: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", json.loads(json.dumps(self.inputs)))  # as they will be read back

    @property
    def id(self) -> str:
        """What blocks of this run carry."""
        return run_id(self.inputs)

    def begin(self, *, replace: bool = False) -> dict[str, Any]:
        """Refuse a folder that holds another run; give what is known about this one, if it was begun before."""
        if self.out.has(ABOUT) and not replace:
            known = read_run(self.out, self.kind)
            if known["run"] != self.id:
                was, now = _inner(known["inputs"]), _inner(self.inputs)
                other = ", ".join(name for name in sorted({**was, **now}) if was.get(name) != now.get(name))
                raise StateMismatch(
                    f"{self.out.address} holds a run with another {other or 'version'}; "
                    "choose another folder, or remove that one"
                )
            return known
        self.reopen()
        return {}

    def reopen(self) -> None:
        """Say that blocks are to be made again."""
        self._note({}, finished=False)

    def finish(self, record: Mapping[str, Any], blocks: Sequence[range]) -> None:
        """Note what was done, after the last block."""
        self._note({**record, "blocks": [[rows.start, rows.stop] for rows in blocks]}, finished=True)

    def _note(self, record: Mapping[str, Any], *, finished: bool) -> None:
        own = {"kind": self.kind, "version": 1, "run": self.id, "inputs": self.inputs, "finished": finished}
        self.out.write(ABOUT, (json.dumps({**record, **own}, indent=2, sort_keys=True) + "\n").encode())


def _inner(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What decides a run, with what decides its source by name, if that is known."""
    source = inputs.get("source")
    return {**inputs, **source, "source": None} if isinstance(source, dict) else dict(inputs)


def read_run(folder: Folder, kind: str) -> dict[str, Any]:
    """What the run in a folder says about itself."""
    about = folder.read_json(ABOUT)
    if not isinstance(about, dict) or about.get("kind") != kind or not isinstance(about.get("inputs"), dict):
        raise UnreadableFile(f"{folder.path(ABOUT)} does not describe {kind}; choose another folder")
    if about.get("version") != 1 or about.get("run") != run_id(about["inputs"]):
        raise UnreadableFile(f"{folder.path(ABOUT)} is damaged or of another version of pta")
    return about
