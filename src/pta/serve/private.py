"""Files that only their owner may read: what was learned can tell what the samples were."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from pta.door.plain_files import make_folder


def make_private_folder(folder: Path) -> None:
    """Make a folder, unless it exists, that only its owner may enter."""
    make_folder(folder)
    keep_private(folder.resolve())


def keep_private(path: Path) -> None:
    """Take the rights of others from a file or folder, if it belongs to this user; links are left as they are."""
    with suppress(OSError):  # it is gone, or its file system knows no rights
        status = path.lstat()
        is_folder, is_file = stat.S_ISDIR(status.st_mode), stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        if (is_folder or is_file) and status.st_uid == getattr(os, "geteuid", lambda: -1)():
            path.chmod(0o700 if is_folder else 0o600)


def keep_data_private(folder: Path) -> None:
    """The same for all that a service keeps in a data folder, in which no folder is a link."""
    for name in ("journal.*", "classifier.safetensors", "streams", "streams/**/*", "set-aside", "set-aside/**/*"):
        for path in folder.glob(name):
            keep_private(path)
