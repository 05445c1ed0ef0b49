"""Repair: what is whole up to the first damage goes into a new file, and the damaged one is kept beside it."""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from pta.errors import UnreadableFile
from pta.serve.journal_check import damage, damage_of_rows
from pta.serve.journal_schema import (
    INSERT_BATCH,
    INSERT_OPERATION,
    INSERT_SAMPLE,
    Batch,
    connect,
    new_journal,
    read_batches,
    seal,
    unreadable,
    value,
)


def repair_journal(path: Path) -> None:
    """Cut a damaged journal after its last whole group; leave a whole one as it is."""
    with closing(connect(path)) as old:  # SQLite itself cuts the log before the first damage
        if not _is_damaged(old):
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return
    with new_journal(path) as into:
        with closing(connect(path)) as old:
            _copy_small_tables(old, into, path)
            _copy_groups(old, into)
        _keep(path)
        _remove_snapshots(into, path.parent)


def _keep(path: Path) -> None:
    """Give a damaged journal a second name, which it has alone when the repaired one is in its place."""
    damaged = path.with_name(f"{path.name}.damaged")
    damaged.unlink(missing_ok=True)
    damaged.hardlink_to(path)
    log = path.with_name(f"{path.name}-wal")  # which is there if SQLite could not empty it
    if log.exists():
        log.replace(damaged.with_name(f"{damaged.name}-wal"))


def _remove_snapshots(connection: sqlite3.Connection, folder: Path) -> None:
    """Those that learned from samples which are cut off; the numbers of these are not used again."""
    query = """
        SELECT id, max(
            dropped,
            coalesce((SELECT max(first + span - 1) FROM batches WHERE stream = streams.id), 0),
            coalesce((SELECT max(sequence) FROM operations WHERE stream = streams.id), 0)
        ) FROM streams
    """
    for stream, last in connection.execute(query):
        for snapshot in folder.glob(f"streams/{stream}/snapshots/*.safetensors"):
            if snapshot.stem.isdecimal() and int(snapshot.stem) > last:
                snapshot.unlink()


def _is_damaged(connection: sqlite3.Connection) -> bool:
    try:
        return next(damage(connection), None) is not None
    except sqlite3.Error:
        return True


def _copy_small_tables(old: sqlite3.Connection, into: sqlite3.Connection, path: Path) -> None:
    """Without these the samples mean nothing, so that all of it must be whole."""
    for table in ("about", "streams", "sources"):
        try:
            problem = next(damage_of_rows(old, table), None)
            rows = old.execute(f"SELECT * FROM {table}").fetchall()
        except sqlite3.Error as error:
            raise unreadable(path, error) from None
        if problem is not None:
            raise UnreadableFile(f"{path} cannot be repaired: {problem}; restore a backup")
        for row in rows:
            into.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def _copy_groups(old: sqlite3.Connection, into: sqlite3.Connection) -> None:
    operations, end = _whole_operations(old)
    kept = 0  # the last operation before the last group that is kept
    for group in _whole_groups(old, end):
        if group is None:
            end = kept + 1
        else:
            _copy(group, old, into)
            kept = group[-1].operation if group else 0
    for row in operations:
        if row[0] < end:
            into.execute(INSERT_OPERATION, row)


def _whole_groups(connection: sqlite3.Connection, end: int) -> Iterator[list[Batch] | None]:
    """The groups before the first damage, and before an operation; None after them if there are more."""
    group: list[Batch] = []
    try:
        for batch in read_batches(connection, "1 ORDER BY id"):
            if not batch.is_whole() or batch.operation >= end:
                break
            if group and batch.group != group[0].group:
                yield group
                group = []
            group.append(batch)
        else:
            yield group
            return
    except sqlite3.Error:
        pass
    if group and not group[-1].rest:  # the damage is in another group
        yield group
    yield None


def _whole_operations(connection: sqlite3.Connection) -> tuple[list[tuple[Any, ...]], int]:
    """The operations before the first damaged one, and the number of that."""
    rows: list[tuple[Any, ...]] = []
    try:
        for row in connection.execute("SELECT * FROM operations ORDER BY id"):
            if seal(*row[:-1]) != row[-1]:
                return rows, row[0]
            rows.append(row)
    except sqlite3.Error:
        return rows, rows[-1][0] + 1 if rows else 0
    return rows, sys.maxsize


def _copy(group: list[Batch], old: sqlite3.Connection, into: sqlite3.Connection) -> None:
    for batch in group:
        into.executemany(INSERT_SAMPLE, batch.rows)
        into.execute(INSERT_BATCH, batch.columns())
        answers = value(old, "SELECT answers FROM batches WHERE id = ?", batch.id)
        if answers is not None and answers[-8:] == seal(batch.id, answers[:-8]):
            into.execute("UPDATE batches SET answers = ? WHERE id = ?", (answers, batch.id))
