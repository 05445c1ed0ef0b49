"""Finding samples in folders: always in the same order, without hidden files, through links, and no file twice."""

import os
import posixpath
import warnings
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from pathlib import Path

from pta.core.modality import IMAGES, Modality
from pta.door.refused_places import is_unread_photo, left_out
from pta.errors import UnreadableFile, explaining

_MOST_ENTRIES = 2**24  # files and folders; ImageNet-21k has 13 million


def sample_files(
    folder: Path, modality: Modality = IMAGES, entered: Callable[[str], None] = lambda name: None
) -> list[str]:
    """The samples in a folder and all its sub-folders, as sorted paths relative to it, each real file once.

    A file that can be reached by several paths has the one with the fewest links, of these the one with the fewest
    folders, of these the first in sorted order. Hard links are files of their own. `entered` is told the path of each
    folder that is listed. Photographs in formats that are not read are warned about.
    """
    unread: list[str] = []
    found: dict[str, tuple[int, int, str]] = {}  # real path → links, folders, path
    seen: set[tuple[int, int]] = set()
    waiting, entries = [(0, 0, "")], 0
    while waiting:
        links, depth, prefix = heappop(waiting)
        here = folder / prefix
        identity = _identity(here)
        if identity in seen:
            continue
        seen.add(identity)
        entered(prefix)
        real = os.path.realpath(here)
        for entry in _entries(here):
            entries += 1
            if entries > _MOST_ENTRIES:
                raise UnreadableFile(f"{folder} holds more than {_MOST_ENTRIES:,} files and folders; give a part of it")
            linked = links + entry.is_symlink()
            if _is_folder(entry):
                heappush(waiting, (linked, depth + 1, f"{prefix}{entry.name}/"))
            elif modality.takes(entry.name) and (entry.is_symlink() or entry.is_file()):  # no pipe, no device
                # a broken link, too: reading it will say so
                target = os.path.realpath(entry.path) if entry.is_symlink() else f"{real}/{entry.name}"
                path = (linked, depth, prefix + entry.name)
                found[target] = min(path, found.get(target, path))
            elif modality is IMAGES and is_unread_photo(entry.name):
                unread.append(entry.path)
    if unread:
        warnings.warn(left_out(sorted(unread)), stacklevel=2)
    return sorted(path for _, _, path in found.values())


def sub_folders(folder: Path) -> list[str]:
    """The sorted names of the folders in a folder."""
    return sorted(entry.name for entry in _entries(folder) if _is_folder(entry))


def loose_images(folder: Path) -> list[str]:
    """The sorted names of the images that lie directly in a folder."""
    return sorted(entry.name for entry in _entries(folder) if IMAGES.takes(entry.name) and not _is_folder(entry))


def is_inside(path: str) -> bool:
    """Whether a path from a list stays in the folder it is relative to.

    >>> [is_inside(path) for path in ("a/b.jpg", "a/../b.jpg", "../b.jpg", "/etc/passwd")]
    [True, True, False, False]
    """
    first = posixpath.normpath(path).partition("/")[0]
    return bool(path) and "\0" not in path and first not in ("", ".", "..")


def _identity(folder: Path) -> tuple[int, int]:
    with explaining(f"cannot list {folder}"):
        status = folder.stat()
    return status.st_dev, status.st_ino


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with explaining(f"cannot list {folder}"), os.scandir(folder) as entries:
        yield from (entry for entry in entries if not entry.name.startswith("."))
