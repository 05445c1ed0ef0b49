"""Names that pta derives from a user's, such as a lock beside an output: no link of such a name is followed.

A folder of pictures or an unpacked archive may hold one, and it may lead to any file that the user can write.
"""

import os
import stat
from pathlib import Path

from pta.errors import UnreadableFile, reason

_REMOVE_IT = "pta makes it itself; move it away"


def require_plain_file(path: Path, status: os.stat_result | None = None, *, names: int = 1) -> None:
    """Refuse what is at a derived name unless it is a regular file with so many names, or nothing."""
    status = status or _status(path)
    if status is None:
        return
    require_no_link(path, status)
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableFile(f"{path} is not a regular file: {_REMOVE_IT}")
    if status.st_nlink > names:
        raise UnreadableFile(f"{path} is a hard link, so another file would be overwritten: {_REMOVE_IT}")


def require_plain_database(path: Path, *, names: int = 1) -> None:
    """The same for a file of SQLite and those that SQLite writes beside it."""
    require_plain_file(path, names=names)
    for ending in ("-wal", "-shm", "-journal"):
        require_plain_file(path.with_name(f"{path.name}{ending}"))


def require_no_link(path: Path, status: os.stat_result | None = None) -> None:
    """Refuse a link at a derived name."""
    status = status or _status(path)
    if status is not None and stat.S_ISLNK(status.st_mode):
        raise UnreadableFile(f"{path} is a link, which is not followed: {_REMOVE_IT}")


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {reason(error)}") from None
