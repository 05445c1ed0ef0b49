"""Files by path or at any address that fsspec knows (s3://…, gs://…, memory://…)."""

import io
import os
import posixpath
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from glob import has_magic
from itertools import product
from pathlib import Path
from typing import IO, Any, TypeVar

from pta.core.limits import USUAL_LIMITS
from pta.data.sources.entries import matches
from pta.door.files import exists, read_text, require_short, understanding
from pta.door.patience import USUAL_PATIENCE, is_absent, reading, require_whole, said_by
from pta.errors import (
    InvalidParameter,
    MachineFailure,
    MissingPackage,
    PtaError,
    UnreadableFile,
    explaining,
    family,
    first_line,
    how_to_install,
)

Made = TypeVar("Made")

_MOST_FILES = 100_000
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_PASSWORD = re.compile(r"://[^/@]*:[^/]*@|^https?://[^/@]+@|[?&]([\w-]*signature|[\w-]*token|sig)=", re.IGNORECASE)
_STAMP = ("size", "ETag", "etag", "mtime", "LastModified")  # what object stores say about a file


def is_remote(address: str) -> bool:
    """Whether an address is of another filesystem than this machine's.

    >>> is_remote("s3://bucket/photos"), is_remote("/data/photos"), is_remote("file:///data")
    (True, False, True)
    """
    return "://" in address


def require_no_password(address: str, line: int | None = None) -> None:
    """Refuse an address with a secret, which would come to stand in the files of a run; `line` is of a list."""
    if _PASSWORD.search(address):
        what = "the address" if line is None else f"the address in line {line}"
        advice = "give them in the environment, or in the configuration of fsspec or of the storage's program"
        raise InvalidParameter(f"{what} has a name and a password before @, or a signature; {advice}")


def filesystem(address: str) -> tuple[Any, str]:
    """The fsspec filesystem of an address, and the path in it. It asks anew what is there, and remembers no listing."""
    import fsspec

    try:
        return fsspec.core.url_to_fs(address, use_listings_cache=False)
    except ImportError as error:  # fsspec knows the scheme, but not without another package
        needs = f"s3:// needs s3fs; {how_to_install('s3')}" if address.startswith("s3://") else first_line(error)
        raise MissingPackage(f"{address}: {needs}") from None
    except ValueError as error:
        raise UnreadableFile(f"{address} is not an address that fsspec knows: {first_line(error)}") from None


def ask(address: str, done: str, act: Callable[[Any, str], Made]) -> Made:
    """What a filesystem gives for an address, asked for again while it fails; `done` is what else it cannot be.

    At a remote one only what is absent or refused, or lacks credentials, is the user's to set right.
    """
    system, path = filesystem(address)

    def once() -> Made:
        try:
            return act(system, path)
        except PtaError:
            raise
        except Exception as error:  # whatever the filesystem raises
            is_mistake = not is_remote(address) or is_absent(error) or "Credential" in type(error).__name__
            kind = family(error) if is_mistake else MachineFailure
            raise kind(f"{address} cannot be {done}: {said_by(error)}") from error

    return USUAL_PATIENCE.ask(once)


def about_file(address: str) -> dict[str, Any] | None:
    """What a filesystem says about what is at an address; None if nothing is there."""

    def info(system: Any, path: str) -> dict[str, Any] | None:
        with suppress(FileNotFoundError, NotADirectoryError):
            return dict(system.info(path))
        return None

    return ask(address, "reached", info)


def is_folder(address: str) -> bool:
    """Whether a folder is there."""
    if not is_remote(address):
        return exists(Path(address)) and Path(address).is_dir()
    return (about_file(address) or {}).get("type") == "directory"


def stamp_of(place: str) -> str | None:
    """What changes when a file does: its size and the time of its last change, or what an object store says."""
    if is_remote(place):
        return remote_stamp(about_file(place) or {})
    try:
        status = Path(place).stat()
    except OSError:
        return None
    return f"{status.st_size} {status.st_mtime_ns}"


def remote_stamp(about: Mapping[str, Any]) -> str:
    """The same from what a filesystem says about a file."""
    return " ".join(str(about[one]) for one in _STAMP if about.get(one))


def open_whole(address: str) -> IO[bytes]:
    """A file to read parts of, where what the storage does not give is unread, and never looks like damage."""
    with reading(address):
        return _Whole(address, _open(address))  # type: ignore[return-value]


def _open(address: str) -> IO[bytes]:
    if not is_remote(address):
        return Path(address).open("rb")
    system, path = filesystem(address)
    return system.open(path, "rb")


class _Whole(io.RawIOBase):
    """A file in which each read gives as many bytes as there are, or fails."""

    def __init__(self, address: str, file: IO[bytes]) -> None:
        self._address, self._file = address, file
        self._size = file.seek(0, os.SEEK_END)
        file.seek(0)

    def readable(self) -> bool:
        return True

    def seek(self, *place: int) -> int:
        return self._file.seek(*place)

    def tell(self) -> int:
        return self._file.tell()

    def read(self, most: int = -1) -> bytes:
        left = max(self._size - self.tell(), 0)  # damage leads behind the end
        with reading(self._address):
            content = self._file.read(most)
        require_whole(self._address, len(content), left if most < 0 else min(most, left))
        return content

    def close(self) -> None:
        self._file.close()
        super().close()


def read_listed(address: str, kind: str, largest: int) -> str:
    """The UTF-8 text of a file of at most `largest` bytes."""
    if not is_remote(address):
        return read_text(Path(address), kind, largest)

    def read(system: Any, path: str) -> bytes:
        if (size := system.size(path)) > largest:
            raise UnreadableFile(f"{address} has more than {largest:,} bytes")
        content: bytes = system.cat_file(path)
        require_whole(address, len(content), size)
        return content

    content = ask(address, "read", read)
    with understanding(address, f"{kind} file"):
        return content.decode("utf-8-sig")


def find_files(address: str, kind: str, order: Callable[[str], Any] = Path) -> list[str]:
    """The files that a path, a pattern or a range stands for, matches in `order`; all of a range must be there."""
    with explaining(f"{address} cannot be reached"):
        if not is_remote(address) and Path(address).is_file():
            return [address]
        found = []
        for text in expand_range(address):
            matching = sorted(_matching(text), key=order)
            if not matching and not has_magic(text):
                raise UnreadableFile(f"no such {kind}: {text}")
            found += matching
    if not found:
        raise UnreadableFile(f"no such {kind}: {address}")
    return found


def _matching(text: str) -> list[str]:
    if is_remote(text):
        return ask(text, "listed", lambda system, path: list(map(system.unstrip_protocol, system.glob(path))))
    return [one for one in matches(text) if Path(one).is_file() or not Path(one).exists()]


def expand_range(source: str) -> list[str]:
    """Every text that `{first..last}` stands for, with the zeros in front that its ends have, as in a shell.

    >>> expand_range("shard-{008..010}.tar")
    ['shard-008.tar', 'shard-009.tar', 'shard-010.tar']
    """
    ranges, total = [], 1
    for first, last in _RANGE.findall(source):
        total *= max(int(last) - int(first) + 1, 0) if max(len(first), len(last)) < 10 else _MOST_FILES + 1
        if not 0 < total <= _MOST_FILES:
            raise InvalidParameter(
                f"{source}: {{{first}..{last}}} must count upwards, to at most {_MOST_FILES:,} files"
            )
        padded = any(len(end) > 1 and end.startswith("0") for end in (first, last))
        width = max(len(first), len(last)) if padded else 0
        ranges.append([str(number).zfill(width) for number in range(int(first), int(last) + 1)])
    pattern = _RANGE.sub("\0", source)
    return [reduce(lambda text, number: text.replace("\0", number, 1), chosen, pattern) for chosen in product(*ranges)]


def is_inside(path: str) -> bool:
    """Whether a path from a list stays in the folder it is relative to.

    >>> [is_inside(path) for path in ("a/b.jpg", "a/../b.jpg", "../b.jpg", "/etc/passwd")]
    [True, True, False, False]
    """
    first = posixpath.normpath(path).partition("/")[0]
    return bool(path) and "\0" not in path and first not in ("", ".", "..")


def resolve(address: str, path: str, line: int) -> str:
    """Where a path of a list points to; a list from elsewhere may not name files of this machine."""
    if not path:
        raise UnreadableFile(f"{address}: line {line} has no path")
    require_no_password(path, line)
    if "\0" not in path and (is_remote(path) or (path.startswith("/") and not is_remote(address))):
        return path
    if not is_inside(path):
        raise UnreadableFile(f"{address}: line {line} points to {path!r}, which leaves the folder of the list")
    return posixpath.join(posixpath.dirname(address), path)


@dataclass(frozen=True)
class RemoteSample:
    """A file at an address, or a part of one."""

    place: str
    key: str
    offset: int | None
    size: int | None

    def read(self, most: int = USUAL_LIMITS.max_bytes) -> bytes:
        """The content, still encoded."""
        with reading(self.key):
            system, path = filesystem(self.place)
            size = int(system.size(path)) if self.size is None else self.size
            require_short(self.key, size, most)
            start = self.offset or 0
            content: bytes = system.cat_file(path, start=start, end=start + size)
        require_whole(self.key, len(content), size)
        return content
