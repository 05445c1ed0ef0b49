"""The chain of a journal: where it is broken, and how rows leave it or change on purpose."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from sqlite3 import Connection
from typing import Any

from pta.serve.journal.schema import link, seal, value

_LINKED = {"batches": "id, stream, first, span, time", "operations": "seal"}
"""What goes into the links of a table."""
_LAST_LINK = """
    coalesce((
        SELECT link FROM (
            SELECT * FROM (
                SELECT first AS at, link FROM batches WHERE stream = {0} AND first <= {1} ORDER BY first DESC LIMIT 1
            ) UNION ALL SELECT * FROM (
                SELECT sequence, link FROM operations WHERE stream = {0} AND sequence <= {1}
                ORDER BY sequence DESC LIMIT 1
            )
        ) ORDER BY at DESC LIMIT 1
    ), x'')
"""


def broken_links(connection: Connection, tables: Iterable[str] = tuple(_LINKED)) -> Iterator[str]:
    """Where rows of these tables, or the last rows of a stream, are missing, one line each."""
    for table in tables:
        for id in breaks(connection, table):
            yield missing_before(connection, table, id)
    for name in cut_streams(connection).values():
        yield f"the last rows of stream {name} are missing, or are not those that it was written with"


def missing_before(connection: Connection, table: str, id: int) -> str:
    """One line about a row before which others are missing."""
    at = {"batches": "first", "operations": "sequence"}[table]
    query = f"SELECT t.{at}, s.name FROM {table} t LEFT JOIN streams s ON s.id = t.stream WHERE t.id = ?"
    sequence, name = connection.execute(query, (id,)).fetchone()
    return f"{table} are missing before sequence {sequence} of stream {name or '?'}"


def cut_streams(connection: Connection) -> dict[int, str]:
    """The names of streams whose last row, as the row of the stream was written, is no longer there."""
    query = f"SELECT id, name FROM streams s WHERE link != {_LAST_LINK.format('s.id', 's.last')}"
    return dict(connection.execute(query).fetchall())


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
    link: bytes = value(connection, f"SELECT {_LAST_LINK.format('?1', sys.maxsize)}", stream)
    return link


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
