"""What is in folders of this machine. What cannot be listed now is an error: it never looks like nothing."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from glob import has_magic
from pathlib import Path

from pta.door.patience import AGAIN
from pta.errors import MachineFailure, explaining, reason


def entries(folder: Path, *, hidden: bool = False) -> Iterator[os.DirEntry[str]]:
    """What is in a folder."""
    with explaining(f"cannot list {folder}"), os.scandir(folder) as found:
        yield from (entry for entry in found if hidden or not entry.name.startswith("."))


def is_folder_at(place: Path | os.DirEntry[str], *, is_sample: bool = False) -> bool:
    """Whether a folder is there, perhaps behind a link. A link that leads nowhere may be one, unless it is a sample."""
    try:
        return stat.S_ISDIR(place.stat().st_mode) if place.is_symlink() else place.is_dir()
    except OSError as error:
        if not is_sample and error.errno != errno.ELOOP:
            away = f"cannot list {os.fspath(place)}: {reason(error)}"
            raise MachineFailure(f"{away}; {AGAIN}, or remove it") from None
    return False


def identity(folder: Path) -> tuple[int, int]:
    """What a folder is known by, on whichever path."""
    with explaining(f"cannot list {folder}"):
        status = folder.stat()
    return status.st_dev, status.st_ino


def matches(pattern: str) -> list[str]:
    """The sorted files and folders that a pattern stands for, also links that lead nowhere.

    `**` follows links, and enters no folder twice. At the end it stands for nothing: folders are read whole.
    """
    path = Path(pattern)
    while path.name == "**":
        path = path.parent
    found = [Path(path.anchor)]
    for part in path.parts[bool(path.anchor) :]:
        if part == "**":
            found = [below for folder in found for below in _below(folder, path.name)]
        elif has_magic(part):
            found = [folder / name for folder in found for name in _named(folder, part)]
        else:
            found = [folder / part for folder in found]
    return sorted({str(one) for one in found if _is_there(one)})


def _named(folder: Path, pattern: str) -> list[str]:
    there = entries(folder, hidden=pattern.startswith(".")) if is_folder_at(folder) else ()
    return [one.name for one in there if fnmatchcase(one.name, pattern)]


def _below(folder: Path, sample: str) -> Iterator[Path]:
    """The folder and those in it; what has the name of a sample need not be there."""
    waiting, seen = [folder] if is_folder_at(folder) else [], set[tuple[int, int]]()
    while waiting:
        here = waiting.pop()
        if (known := identity(here)) not in seen:
            seen.add(known)
            yield here
            inside = (one for one in entries(here) if is_folder_at(one, is_sample=fnmatchcase(one.name, sample)))
            waiting += [Path(one.path) for one in inside]


def _is_there(path: Path) -> bool:
    with explaining(f"{path} cannot be reached"), suppress(FileNotFoundError, NotADirectoryError):
        path.lstat()
        return True
    return False
