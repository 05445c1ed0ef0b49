"""Folders, and names that pta derives from those of a user, such as a lock beside an output: no link is followed there.

A folder of pictures or an unpacked archive may hold one, and it may lead to any file that the user can write.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from pta.errors import UnreadableFile, explaining

MOVE_IT_AWAY = "pta makes it itself; move it away"


def require_plain_file(path: Path, status: os.stat_result | None = None, *, names: int = 1) -> None:
    """Refuse what is at a derived name unless it is a regular file with at most that many hard links, or nothing."""
    status = status or _status(path)
    if status is None:
        return
    require_no_link(path, status)
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableFile(f"{path} is not a regular file: {MOVE_IT_AWAY}")
    if status.st_nlink > names:
        raise UnreadableFile(f"{path} is a hard link, so another file would be overwritten: {MOVE_IT_AWAY}")


def require_plain_database(path: Path, *, names: int = 1) -> None:
    """The same for a file of SQLite and those that SQLite writes beside it."""
    require_plain_file(path, names=names)
    for beside in database_files(path)[1:]:
        require_plain_file(beside)


def database_files(path: Path) -> list[Path]:
    """A file of SQLite, and those that SQLite writes beside it."""
    return [path.with_name(f"{path.name}{ending}") for ending in ("", "-wal", "-shm", "-journal")]


def require_no_link(path: Path, status: os.stat_result | None = None) -> None:
    """Refuse a link at a derived name."""
    status = status or _status(path)
    if status is not None and stat.S_ISLNK(status.st_mode):
        raise UnreadableFile(f"{path} is a link, which is not followed: {MOVE_IT_AWAY}")


def _status(path: Path) -> os.stat_result | None:
    with explaining(f"{path} cannot be read"), suppress(FileNotFoundError):
        return path.lstat()
    return None


def make_folder(folder: Path, rights: int = 0o777) -> None:
    """Make a folder and its parents, unless it exists; the umask takes from its rights."""
    with explaining(f"cannot make the folder {folder}"):
        folder.mkdir(rights, parents=True, exist_ok=True)


def make_own_folder(folder: Path) -> None:
    """The same for a name that pta derives, where a link is refused: what it leads to is not pta's to change."""
    require_no_link(folder)
    make_folder(folder)


def sync_folder(folder: Path) -> None:
    """Flush a rename in a folder to the disk, where the system and the permissions allow it."""
    with suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
