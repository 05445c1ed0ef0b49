"""A folder of blocks: on this machine, or at any address that fsspec knows (s3://…, gs://…, memory://…).

On a disk a file is written beside its place and renamed; on an object store it is one PUT under its final name. So a
reader sees a whole file or none.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from pta.door.files import as_path, write_atomically
from pta.door.plain_files import make_folder, require_no_link
from pta.errors import MissingPackage, UnreadableFile, first_line

_LONGEST_HEADER = 100 * 2**20  # that safetensors itself takes


def is_remote(address: str) -> bool:
    """Whether an address is of another filesystem than this machine's.

    >>> is_remote("s3://bucket/photos"), is_remote("/data/photos"), is_remote("file:///data")
    (True, False, True)
    """
    return "://" in address


def filesystem(address: str) -> tuple[Any, str]:
    """The fsspec filesystem of an address, and the path in it."""
    import fsspec

    try:
        return fsspec.core.url_to_fs(address)
    except ImportError as error:  # fsspec knows the scheme, but not without another package
        raise MissingPackage(f"{address}: {first_line(error)}") from None
    except ValueError as error:
        raise UnreadableFile(f"{address} is not an address that fsspec knows: {first_line(error)}") from None


@dataclass(frozen=True)
class Folder:
    """Files by name; tasks carry it to other machines."""

    address: str

    @classmethod
    def at(cls, address: str) -> "Folder":
        """The folder at an address; a path is made absolute, because workers run in folders of their own."""
        return cls(address if is_remote(address) else str(as_path(address).absolute()))

    @cached_property
    def _place(self) -> tuple[Any, str]:
        return filesystem(self.address)

    def __reduce__(self) -> tuple[Any, ...]:
        return Folder, (self.address,)  # a filesystem has open connections

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
        system, path = self._place
        with self._understood(name, "written"):
            system.pipe_file(f"{path}/{name}", content)

    def write_json(self, name: str, content: Any) -> None:
        """The same for JSON."""
        self.write(name, (json.dumps(content, indent=2, sort_keys=True) + "\n").encode())

    def read(self, name: str) -> bytes:
        """The content of a file."""
        system, path = self._place
        with self._understood(name, "read"):
            return system.cat_file(f"{path}/{name}")

    def read_json(self, name: str) -> Any:
        """What a JSON file holds."""
        try:
            return json.loads(self.read(name))
        except (ValueError, RecursionError) as error:
            if isinstance(error, UnreadableFile):
                raise
            raise UnreadableFile(f"{self.path(name)} is not JSON (truncated or damaged?)") from None

    def open(self, name: str) -> IO[bytes]:
        """A file to read parts of."""
        system, path = self._place
        with self._understood(name, "read"):
            return system.open(f"{path}/{name}", "rb")

    def has(self, name: str) -> bool:
        """Whether a file of the name is there, whatever it holds."""
        system, path = self._place
        return bool(system.isfile(f"{path}/{name}"))

    def exists(self) -> bool:
        """Whether it is there."""
        system, path = self._place
        return bool(system.exists(path))

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        system, path = self._place
        if self.exists():
            system.rm(path, recursive=True)

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
        """The metadata of a whole safetensors file."""
        try:
            with self.open(name) as file:
                length = int.from_bytes(file.read(8), "little")
                if length > _LONGEST_HEADER:
                    return None
                header = json.loads(file.read(length))
                metadata = header.pop("__metadata__", {})
                end = max((one["data_offsets"][1] for one in header.values()), default=0)
                return metadata if file.seek(0, 2) == 8 + length + end else None
        except (UnreadableFile, ValueError, KeyError, TypeError, AttributeError, OSError):
            return None

    @contextmanager
    def _understood(self, name: str, done: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever the filesystem raises
            raise UnreadableFile(f"{self.path(name)} cannot be {done}: {first_line(error)}") from None
