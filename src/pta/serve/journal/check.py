"""Is a journal as it was written? Every row is compared with its seal and its links, every state with its digest.

SQLite checks its own pages and indexes. A backup is a copy as a data folder is at one moment, while a service may be
writing it.
"""

import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from pta.errors import UnreadableFile, explaining, family, first_line
from pta.serve.journal import schema
from pta.serve.journal.chain import broken_links, missing_before
from pta.serve.journal.data_folder import (
    FILE_NAME,
    damaged_states,
    keep_private,
    make_private_folder,
    require_plain_data,
)
from pta.serve.journal.loss import Witnesses, is_damaged
from pta.serve.journal.schema import Batch, SampleCounts, SampleRow, SourceRow, StreamRow

_BATCHES = """
    SELECT id, stream, first, span, erased, time, group_, rest, operation, seal, answers, link, after,
    coalesce(id + span, 0) FROM batches ORDER BY id
"""
_NO_SAMPLE: tuple[Any, ...] = (sys.maxsize,)
_SEALED = {
    "about": ("service", "identity, is_erasing, used, seal"),
    "streams": ("stream", ", ".join((*StreamRow._fields, "seal"))),
    "sources": ("source", ", ".join((*SourceRow._fields, "seal"))),
    "operations": ("operation", "id, stream, sequence, time, kind, argument, seal"),
}


def check_folder(folder: Path) -> list[str]:
    """What is wrong with the journal and the states of a data folder, which may be in use. Nothing is changed."""
    path = _journal_in(folder)
    if is_damaged(log := schema.log_of(path)):
        return [f"{log} is damaged: groups after the damage would be lost", *damaged_states(folder)]
    witnesses = Witnesses.of(folder)
    try:
        with closing(schema.connect_to_read(path)) as connection:
            connection.execute("BEGIN")  # all of it at one moment, also where a service writes
            problems = [*damage(connection), *witnesses.lost(schema.read_streams(connection))]
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise UnreadableFile(f"cannot open {path}: {first_line(error)}; its folder must be writable") from None
        problems = [str(schema.unreadable(path, error))]
    return [*problems, *damaged_states(folder)]


def _journal_in(folder: Path) -> Path:
    path = folder / FILE_NAME
    if not path.is_file():
        raise UnreadableFile(f"no journal in {folder}: {FILE_NAME} is not there")
    require_plain_data(folder)
    return path


def damage(connection: sqlite3.Connection, counts: SampleCounts | None = None) -> Iterator[str]:
    """What is wrong with the tables, one line each, the oldest rows first. Counts the samples, too."""
    for table in _SEALED:
        yield from damage_of_rows(connection, table)
    yield from _damage_of_batches(connection, counts or SampleCounts({}, {}))
    yield from broken_links(connection, ["operations"])
    for (line,) in connection.execute("PRAGMA integrity_check"):
        if line != "ok":
            yield f"SQLite: {line}"


def _damage_of_batches(connection: sqlite3.Connection, counts: SampleCounts) -> Iterator[str]:
    """The batches that do not fit their samples, their answers or the batch before, in one pass over both tables.

    Every start does it, so that it does little for each row.
    """
    names = dict(connection.execute("SELECT id, name FROM streams").fetchall())
    by_stream, by_source = counts
    by_stream.update(dict.fromkeys(names, 0))
    by_source.update({None: 0, **{id: 0 for (id,) in connection.execute("SELECT id FROM sources")}})
    samples = connection.execute(f"SELECT {', '.join(SampleRow._fields)} FROM samples ORDER BY id")
    sample, before = next(samples, _NO_SAMPLE), b""
    for batch in connection.execute(_BATCHES):
        id, stream, *_, sealed, answers, found, after, end = batch
        rows: list[tuple[Any, ...]] = []
        while sample[0] < end:
            rows.append(sample)
            sample = next(samples, _NO_SAMPLE)
        of_seal, of_link = schema.batch_texts(before, batch[:9])
        if schema.seal_of_batch(of_seal, rows) != sealed:
            yield f"{_place(batch, names)}: a sample is not as it was written"
        elif stream not in names:
            yield f"group of row {id}: its stream is missing"
        else:
            by_stream[stream] += len(rows)
            for row in rows:
                if row[2] in by_source:
                    by_source[row[2]] += 1
                else:
                    yield f"{_place(batch, names)}: the source of a sample is missing"
        if answers is not None and not schema.are_answers_whole(id, answers):
            yield f"group of row {id}: the stored answers are not as they were written"
        if (found != schema.checksum(of_link)[:4]) if after is None else (after != before):
            yield missing_before(connection, "batches", id)
        before = found
    if sample is not _NO_SAMPLE:
        yield f"the sample of row {sample[0]} and those after it belong to no group"


def _place(batch: tuple[Any, ...], names: dict[int, str]) -> str:
    return Batch._make((*batch[:10], [], b"")).place(names.get(batch[1], "?"))


def damage_of_rows(connection: sqlite3.Connection, table: str) -> Iterator[str]:
    """The rows of a small table that are not as they were written."""
    kind, columns = _SEALED[table]
    for number, *values, found in connection.execute(f"SELECT rowid, {columns} FROM {table}"):
        if schema.seal(*values) != found:
            yield f"{kind} {number} of table {table} is not as it was written"


def back_up(folder: Path, target: Path) -> None:
    """Copy the journal of a data folder into another folder, with the states that its rows may need."""
    path, copy = _journal_in(folder), target / FILE_NAME
    if copy.exists():
        raise UnreadableFile(f"{copy} is there already; choose an empty folder")
    require_plain_data(target)
    part = target / f".{FILE_NAME}.part"
    make_private_folder(target)
    with explaining(f"cannot write {copy}"):
        try:
            _copy_states(folder, target)  # also before, because the service may remove some of them meanwhile
            schema.remove_database(part)
            part.touch(0o600)
            with closing(schema.connect_to_read(path)) as source, closing(sqlite3.connect(part)) as into:
                source.backup(into)
                last = {stream.id: stream.last for stream in schema.read_streams(into)}
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            _copy_states(folder, target)
            for newer in Witnesses.of(target).newer(last):
                shutil.rmtree(newer) if newer.is_dir() else newer.unlink()
            part.replace(copy)
        except sqlite3.Error as error:
            schema.remove_database(part)
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
