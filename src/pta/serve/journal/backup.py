"""A copy of a data folder as it is at one moment, while a service may be writing it."""

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from pta.errors import UnreadableFile, explaining, family, first_line
from pta.serve.journal.data_folder import FILE_NAME, keep_private, make_private_folder, require_plain_data
from pta.serve.journal.loss import Witnesses
from pta.serve.journal.schema import connect_to_read, read_streams, remove_database


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
    make_private_folder(target)
    with explaining(f"cannot write {copy}"):
        try:
            _copy_states(folder, target)  # also before, because the service may remove some of them meanwhile
            remove_database(part)
            part.touch(0o600)
            with closing(connect_to_read(path)) as source, closing(sqlite3.connect(part)) as into:
                source.backup(into)
                last = {stream.id: stream.last for stream in read_streams(into)}
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            _copy_states(folder, target)
            for newer in Witnesses.of(target).newer(last):
                shutil.rmtree(newer) if newer.is_dir() else newer.unlink()
            part.replace(copy)
        except sqlite3.Error as error:
            remove_database(part)
            raise family(error)(f"cannot copy {path} to {copy}: {first_line(error)}") from None


def _copy_states(folder: Path, target: Path) -> None:
    """Snapshots, imported states and the classifier."""
    for path in (folder / "classifier.safetensors", *folder.glob("streams/*/*/*.safetensors")):
        copy = target / path.relative_to(folder)
        for part in reversed(copy.relative_to(target).parents):
            make_private_folder(target / part)
        copy.unlink(missing_ok=True)  # which may be a link
        with suppress(FileNotFoundError), path.open("rb") as file, copy.open("xb") as into:
            keep_private(copy)
            shutil.copyfileobj(file, into)
            into.flush()
            os.fsync(into.fileno())
