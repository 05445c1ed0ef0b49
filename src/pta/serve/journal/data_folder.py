"""The files of a data folder: private to their owner, no links, and states that are named by a digest of their content.

An import is DIGEST.safetensors, a snapshot SEQUENCE-DIGEST.safetensors.
"""

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from pta.door.plain_files import make_folder, require_no_link, require_plain_database, require_plain_file
from pta.errors import PtaError, UnreadableFile, family, reason

FILE_NAME = "journal.sqlite"
COUNT = "journal.count"
SET_ASIDE = "set-aside"
_OF_A_REPAIR = (f"{FILE_NAME}.damaged", f"{FILE_NAME}.new")


def require_plain_data(folder: Path) -> None:
    """Refuse links in a data folder, which files are written to and removed from by name, and what is not a file."""
    require_plain_database(folder / FILE_NAME, names=2)  # which older versions gave it if a repair was killed
    require_plain_file(folder / COUNT)
    for level in ("streams", "streams/*", "streams/*/*", SET_ASIDE, f"{SET_ASIDE}/*"):
        for place in folder.glob(level):
            require_no_link(place)
    for state in folder.glob("streams/[0-9]*/*/*"):  # reading a pipe would never end
        require_plain_file(state, names=sys.maxsize)  # states are replaced, never written to


def remove_leftovers(folder: Path) -> None:
    """Remove what repairs have kept and set aside."""
    for left in folder.glob(f"{FILE_NAME}.*"):
        if left.name.startswith(_OF_A_REPAIR) and not left.is_dir():
            left.unlink()
    if (set_aside := folder / SET_ASIDE).is_dir():
        shutil.rmtree(set_aside)


def digest_of(content: bytes) -> str:
    """The digest that a state is named by."""
    return blake2b(content, digest_size=16).hexdigest()


def require_named(path: Path) -> None:
    """Refuse a state that is not the one that its name says."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise family(error)(f"{path} cannot be read: {reason(error)}; restore it from a backup") from None
    if digest_of(content) != path.stem.rpartition("-")[2]:
        raise UnreadableFile(f"{path} is damaged: its content does not have the digest that names it")


def damaged_states(folder: Path) -> Iterator[str]:
    """The imports and snapshots of a data folder that are not as they were written, one line each."""
    for states in ("imports/*", "snapshots/[0-9]*"):
        for path in sorted(folder.glob(f"streams/*/{states}.safetensors")):
            try:
                require_named(path)
            except PtaError as error:
                if path.exists():  # a running service removes some
                    yield str(error)


def make_private_folder(folder: Path) -> None:
    """Make a folder, unless it exists, that only its owner may enter."""
    make_folder(folder)
    keep_private(folder.resolve())


def keep_private(path: Path) -> None:
    """Take the rights of others from a file or folder, if it belongs to this user; links are left as they are."""
    with suppress(OSError):  # it is gone, or its file system knows no rights
        status = path.lstat()
        is_folder = stat.S_ISDIR(status.st_mode)
        is_file = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        if (is_folder or is_file) and status.st_uid == getattr(os, "geteuid", lambda: -1)():
            path.chmod(0o700 if is_folder else 0o600)


def keep_data_private(folder: Path) -> None:
    """The same for all that a service keeps in a data folder, in which no folder is a link."""
    for name in ("journal.*", "classifier.safetensors", "streams", "streams/**/*", "set-aside", "set-aside/**/*"):
        for path in folder.glob(name):
            keep_private(path)
