"""What is in folders of this machine. What cannot be listed now is an error: it never looks like nothing."""

import errno
import os
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from glob import has_magic
from heapq import heappop, heappush
from pathlib import Path, PurePath

from pta.core.modality import CLOUDS, IMAGES
from pta.door.patience import AGAIN
from pta.door.video.address import ENDINGS
from pta.errors import MachineFailure, explaining, reason

_NO_PLACE = (errno.ELOOP, errno.ENAMETOOLONG)
_OF_FILES = IMAGES.suffixes.union(
    CLOUDS.suffixes,
    ENDINGS,
    (".heic", ".heif", ".avif", ".svg", ".wav", ".mp3", ".flac", ".pdf", ".md", ".rst", ".txt", ".log", ".html"),
    (".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".toml", ".ini", ".py", ".ipynb", ".sh"),
    (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z", ".parquet", ".h5", ".hdf5", ".mat", ".pkl", ".db"),
    (".pt", ".pth", ".bin", ".onnx", ".safetensors"),
)


def entries(folder: Path, *, hidden: bool = False) -> Iterator[os.DirEntry[str]]:
    """What is in a folder."""
    with explaining(f"cannot list {folder}"), os.scandir(folder) as found:
        yield from (entry for entry in found if hidden or not entry.name.startswith("."))


def is_folder_at(place: Path | os.DirEntry[str], *, is_sample: bool = False) -> bool:
    """Whether a folder is there, perhaps behind a link.

    A link that leads nowhere may be one, unless its name is that of a sample or has an ending of files.
    """
    try:
        return stat.S_ISDIR(place.stat().st_mode) if place.is_symlink() else place.is_dir()
    except OSError as error:
        is_file = is_sample or PurePath(place.name).suffix.lower() in _OF_FILES
        if not is_file and error.errno not in _NO_PLACE:
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
        folders = filter(is_folder_at, found)
        if part == "**":
            found = [below for folder in folders for below in _below(folder)]
        elif has_magic(part):
            inside = ((folder, entries(folder, hidden=part.startswith("."))) for folder in folders)
            found = [folder / one.name for folder, own in inside for one in own if fnmatchcase(one.name, part)]
        else:
            found = [folder / part for folder in folders]
    return sorted({str(one) for one in found if has_magic(path.name) or _is_there(one)})


def _below(folder: Path) -> Iterator[Path]:
    """The folder and those in it, of several paths to one the one with the fewest links."""
    waiting, seen = [(0, folder)], set[tuple[int, int]]()
    while waiting:
        links, here = heappop(waiting)
        if (known := identity(here)) not in seen:
            seen.add(known)
            yield here
            for one in filter(is_folder_at, entries(here)):
                heappush(waiting, (links + one.is_symlink(), Path(one.path)))


def _is_there(path: Path) -> bool:
    with explaining(f"{path} cannot be reached"):
        try:
            path.lstat()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, *_NO_PLACE):
                raise
            return False
    return True
