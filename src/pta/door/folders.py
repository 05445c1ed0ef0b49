"""Making folders, and flushing what was renamed in them to the disk."""

import os
from contextlib import suppress
from pathlib import Path

from pta.door.plain_files import require_no_link
from pta.errors import explaining


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, unless it exists."""
    with explaining(f"cannot make the folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)


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
