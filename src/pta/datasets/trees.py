"""Finding samples in folders: always in the same order, without hidden files, through links but not in circles."""

import os
import posixpath
from collections.abc import Iterator
from pathlib import Path

from pta.errors import UnreadableFile, reason
from pta.modality import IMAGES, Modality


def sample_files(folder: Path, modality: Modality = IMAGES) -> list[str]:
    """The samples in a folder and all its sub-folders, as sorted paths relative to it."""
    found: list[str] = []
    waiting = [("", frozenset[tuple[int, int]]())]
    while waiting:
        prefix, above = waiting.pop()
        here = folder / prefix
        entries = list(_entries(here))
        status = here.stat()
        if (status.st_dev, status.st_ino) in above:
            continue  # a link to a folder that it lies in
        for entry in entries:
            if _is_folder(entry):
                waiting.append((f"{prefix}{entry.name}/", above | {(status.st_dev, status.st_ino)}))
            elif modality.takes(entry.name) and (entry.is_symlink() or entry.is_file()):  # no pipe, no device
                found.append(prefix + entry.name)  # a broken link, too: reading it will say so
    return sorted(found)


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


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from (entry for entry in entries if not entry.name.startswith("."))
    except OSError as error:
        raise UnreadableFile(f"cannot list {folder}: {reason(error)}") from None
