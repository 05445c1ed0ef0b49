"""The files of a data folder: private to their owner, no links, and states that are named by a digest of their content.

An import is DIGEST.safetensors, a snapshot SEQUENCE-DIGEST.safetensors.
"""

import os
import shutil
import stat
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


def require_plain_data(folder: Path, *, take_rights: bool = False) -> None:
    """Refuse links in a data folder, which files are written to and removed from by name, and what is not a file.

    There may be 10,000 streams, so that all is seen in one pass, in which the rights of others can be taken, too.
    """
    require_plain_database(folder / FILE_NAME, names=2)  # which older versions gave it if a repair was killed
    require_plain_file(folder / COUNT)
    for path in (folder / "streams", folder / SET_ASIDE):
        require_no_link(path)
        for level, entry in _walk(path):
            if entry.is_symlink() and level < (2 if path.name == SET_ASIDE else 3):
                require_no_link(Path(entry.path))
            if level == 3 and path.name != SET_ASIDE and not entry.is_file(follow_symlinks=False):
                require_plain_file(Path(entry.path))  # reading a pipe would never end
            if take_rights:
                with suppress(OSError):
                    _take_rights(entry.path, entry.stat(follow_symlinks=False))
    if take_rights:
        for name in ("journal.*", "classifier.safetensors", "streams", SET_ASIDE):
            for path in folder.glob(name):
                keep_private(path)


def _walk(folder: str | Path, level: int = 1) -> Iterator[tuple[int, os.DirEntry[str]]]:
    """What lies in a folder, each folder before its content. Links are not followed."""
    with suppress(OSError), os.scandir(folder) as entries:  # a running service removes some
        for entry in entries:
            yield level, entry
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, level + 1)


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
        _take_rights(path, path.lstat())


def _take_rights(path: str | Path, status: os.stat_result) -> None:
    is_folder = stat.S_ISDIR(status.st_mode)
    is_file = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    rights = 0o700 if is_folder else 0o600
    is_ours = status.st_uid == os.geteuid()
    if (is_folder or is_file) and is_ours and stat.S_IMODE(status.st_mode) != rights:
        Path(path).chmod(rights)
