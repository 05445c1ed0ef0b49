"""A copy of a data folder as it is at one moment, while a service may be writing it."""

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from pta.errors import UnreadableFile, first_line, reason
from pta.serve.journal_schema import FILE_NAME, connect, remove_database, require_plain_data


def back_up(folder: Path, target: Path) -> None:
    """Copy the journal of a data folder into another folder, with the states that its rows may need."""
    path, copy = folder / FILE_NAME, target / FILE_NAME
    if not path.is_file():
        raise UnreadableFile(f"no journal in {folder}: {FILE_NAME} is not there")
    if copy.exists():
        raise UnreadableFile(f"{copy} is there already; choose an empty folder")
    require_plain_data(folder)
    require_plain_data(target)
    part = target / f".{FILE_NAME}.part"
    try:
        target.mkdir(parents=True, exist_ok=True)
        remove_database(part)
        with closing(connect(path)) as source, closing(sqlite3.connect(part)) as into:
            source.backup(into)
        _sync(part)
        _copy_states(folder, target)
        part.replace(copy)
    except sqlite3.Error as error:
        remove_database(part)
        raise UnreadableFile(f"cannot copy {path} to {copy}: {first_line(error)}") from None
    except OSError as error:
        raise UnreadableFile(f"cannot write {copy}: {reason(error)}") from None


def _copy_states(folder: Path, target: Path) -> None:
    """Snapshots, imported states and the classifier; a snapshot that is removed meanwhile has a newer one after it."""
    for path in (folder / "classifier.safetensors", *folder.glob("streams/*/*/*.safetensors")):
        copy = target / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.unlink(missing_ok=True)  # which may be a link
        with suppress(FileNotFoundError), path.open("rb") as file, copy.open("xb") as into:
            shutil.copyfileobj(file, into)
            into.flush()
            os.fsync(into.fileno())


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
