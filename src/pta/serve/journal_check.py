"""Is a journal as it was written? Every row is compared with its seal, and SQLite checks its own pages and indexes."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from pta.errors import UnreadableFile, first_line
from pta.serve.journal_schema import (
    FILE_NAME,
    connect,
    read_batches,
    require_plain_data,
    seal,
    unreadable,
)
from pta.serve.wal import is_damaged

_SEALED = {"about": "service", "streams": "stream", "sources": "source", "operations": "operation"}


def check_folder(folder: Path) -> list[str]:
    """What is wrong with the journal of a data folder, which may be in use. Nothing is changed."""
    path = folder / FILE_NAME
    if not path.is_file():
        raise UnreadableFile(f"no journal in {folder}: {FILE_NAME} is not there")
    require_plain_data(folder)
    if is_damaged(path.with_name(f"{FILE_NAME}-wal")):
        return [f"{path}-wal is damaged: groups after the damage would be lost"]
    try:
        with closing(connect(path)) as connection:
            return list(damage(connection))
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise UnreadableFile(f"cannot open {path}: {first_line(error)}; its folder must be writable") from None
        return [str(unreadable(path, error))]


def damage(connection: sqlite3.Connection) -> Iterator[str]:
    """What is wrong with the tables, one line each, the oldest rows first."""
    for table in _SEALED:
        yield from damage_of_rows(connection, table)
    names = dict(connection.execute("SELECT id, name FROM streams").fetchall())
    for batch in read_batches(connection, "1 ORDER BY id"):
        if not batch.is_whole():
            yield f"{batch.place(names.get(batch.stream, '?'))}: a sample is not as it was written"
    for id, answers in connection.execute("SELECT id, answers FROM batches WHERE answers IS NOT NULL"):
        if answers[-8:] != seal(id, answers[:-8]):
            yield f"group of row {id}: the stored answers are not as they were written"
    for (line,) in connection.execute("PRAGMA integrity_check"):
        if line != "ok":
            yield f"SQLite: {line}"


def damage_of_rows(connection: sqlite3.Connection, table: str) -> Iterator[str]:
    """The rows of a small table that are not as they were written."""
    for number, *columns, found in connection.execute(f"SELECT rowid, * FROM {table}"):
        if seal(*columns) != found:
            yield f"{_SEALED[table]} {number} of table {table} is not as it was written"
