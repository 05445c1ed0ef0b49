"""The chain of a journal: where it is broken, and how rows leave it or change on purpose."""

from collections.abc import Iterator
from contextlib import closing
from sqlite3 import Connection
from typing import Any

from pta.serve.journal.schema import link, read_streams, seal, value

_LINKED = {"batches": "id, stream, first, span, time", "operations": "seal"}
"""What goes into the links of a table."""


def broken_links(connection: Connection) -> Iterator[str]:
    """Where rows are missing, one line each."""
    names = dict(connection.execute("SELECT id, name FROM streams").fetchall())
    for table, at in zip(_LINKED, ("first", "sequence"), strict=True):
        for id in breaks(connection, table):
            stream, sequence = connection.execute(f"SELECT stream, {at} FROM {table} WHERE id = ?", (id,)).fetchone()
            yield f"{table} are missing before sequence {sequence} of stream {names.get(stream, '?')}"
    for stream in read_streams(connection):
        if stream.link != last_link(connection, stream.id):
            yield f"the last rows of stream {stream.name} are missing, or are not those that it was written with"
    last = value(connection, "SELECT max(row) FROM streams") or 0
    if (value(connection, "SELECT max(id) FROM samples") or 0) > last:
        yield f"samples after row {last} belong to no stream"


def breaks(connection: Connection, table: str) -> Iterator[int]:
    """The rows before which others are missing."""
    before = b""
    with closing(connection.execute(f"SELECT id, link, after, {_LINKED[table]} FROM {table} ORDER BY id")) as rows:
        for id, found, after, *content in rows:
            if (found != link(before, *content)) if after is None else (after != before):
                yield id
            before = found


def last_link(connection: Connection, stream: int) -> bytes:
    """The link of the last batch or operation of a stream that is kept."""
    query = """
        SELECT link FROM (
            SELECT * FROM (SELECT first AS at, link FROM batches WHERE stream = ?1 ORDER BY first DESC LIMIT 1)
            UNION ALL
            SELECT * FROM (SELECT sequence, link FROM operations WHERE stream = ?1 ORDER BY sequence DESC LIMIT 1)
        ) ORDER BY at DESC LIMIT 1
    """
    return value(connection, query, stream) or b""


def unchain(connection: Connection, table: str, removed: str, *parameters: object) -> None:
    """Link the rows after those that fulfil a condition, and are to be removed, to the rows before them."""
    first, last = connection.execute(f"SELECT min(id), max(id) FROM {table} WHERE {removed}", parameters).fetchone()
    if first is None:
        return
    start = value(connection, f"SELECT max(id) FROM {table} WHERE id < ?", first) or first
    end = value(connection, f"SELECT min(id) FROM {table} WHERE id > ?", last) or last
    rows = connection.execute(
        f"SELECT id, link, ({removed}) FROM {table} WHERE id BETWEEN ? AND ? ORDER BY id", (*parameters, start, end)
    ).fetchall()
    before, is_next = b"", False
    for id, found, is_removed in rows:
        if not is_removed:
            if is_next:
                connection.execute(f"UPDATE {table} SET after = ? WHERE id = ?", (before, id))
            before = found
        is_next = is_removed


def replace_argument(connection: Connection, operation: tuple[Any, ...], argument: str) -> None:
    """Give an operation, a row without its seal, another argument; it keeps its link and names the one before it."""
    id, *columns, _ = operation
    before = value(connection, "SELECT link FROM operations WHERE id < ? ORDER BY id DESC LIMIT 1", id) or b""
    update = "UPDATE operations SET argument = ?, seal = ?, after = ? WHERE id = ?"
    connection.execute(update, (argument, seal(id, *columns, argument), before, id))
