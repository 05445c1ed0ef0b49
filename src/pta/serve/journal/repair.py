"""Repair: a service goes on from the rows that are there and whole, and nothing is deleted.

What is whole up to the first damage goes into a new file, and the damaged one is kept beside it. Snapshots that learned
from rows which are gone are set aside.
"""

import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import chain, count
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from pta.errors import UnreadableFile, family, reason
from pta.serve.journal import schema
from pta.serve.journal.chain import breaks, broken_links, cut_streams
from pta.serve.journal.check import damage, damage_of_rows
from pta.serve.journal.data_folder import SET_ASIDE, keep_private, make_private_folder
from pta.serve.journal.loss import CountFile, Witnesses, count_of, is_damaged
from pta.serve.journal.schema import Batch, StreamRow

_LEFT_OUT = 2**20  # sequence numbers: more than are written between two snapshots, or are in one log


def repair_journal(path: Path) -> None:
    """Cut a damaged journal after its last whole group, and set aside what is newer; leave a whole one as it is."""
    witnesses, log = Witnesses.of(path.parent), schema.log_of(path)
    has_lost = is_damaged(log)  # SQLite itself cuts the log before the first damage
    with closing(schema.connect_to_read(path)) as old:
        streams = schema.stored_and_newest_streams
        has_damage = _finds(damage(old))
        has_lost = has_lost or _finds(broken_links(old)) or _finds(witnesses.lost(newest for _, newest in streams(old)))
        newer = (newest for stored, newest in streams(old) if newest != stored)  # whose last numbers may be cut
        has_lost = has_lost or (has_damage and _finds(newer))
    if not (has_damage or has_lost):
        return
    try:
        if has_damage or is_damaged(log):
            _keep(path, log)
        with closing(schema.connect(path)) as connection:  # so that no later file is read with its log
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if has_damage:
            with schema.new_journal(path) as into, closing(schema.connect_to_read(path)) as old:
                _copy_small_tables(old, into, path)
                _copy_groups(old, into)
                _go_on(into, witnesses, path.parent, has_lost)
        else:
            with closing(schema.connect(path)) as into:
                into.execute("BEGIN IMMEDIATE")
                _go_on(into, witnesses, path.parent, has_lost)
                into.execute("COMMIT")
    except OSError as error:
        raise family(error)(f"cannot repair {path}: {reason(error)}") from None
    with closing(schema.connect_to_read(path)) as repaired:
        _write_count(path.parent, count_of(schema.read_streams(repaired)))


def _finds(problems: Iterator[object]) -> bool:
    try:
        return next(problems, None) is not None
    except sqlite3.Error:
        return True


def _keep(path: Path, log: Path) -> None:
    """Copy a damaged journal and its log, as they are, to names that are free."""
    names = (path.with_name(f"{path.name}.damaged{number}") for number in chain([""], (f"-{n}" for n in count(2))))
    kept = next(name for name in names if not name.exists())
    for file, copy in ((log, schema.log_of(kept)), (path, kept)):
        if file.exists():
            shutil.copyfile(file, copy)
            keep_private(copy)


def _go_on(connection: Connection, witnesses: Witnesses, folder: Path, has_lost: bool) -> None:
    """Set aside what is newer than the rows that are there, and use no number of a lost one again."""
    streams = schema.read_streams(connection)
    _write_count(folder, max(witnesses.count, 1 + count_of(streams)))  # refused until the repair has ended
    numbers = (folder / SET_ASIDE / str(number) for number in count(1))
    aside = next(one for one in numbers if not one.exists())
    cut = cut_streams(connection)
    ends = {stream.id: _end(connection, stream) if stream.id in cut else stream.last for stream in streams}
    for path in witnesses.newer(ends):
        target = aside / path.relative_to(folder)
        for parent in (folder / SET_ASIDE, aside, target.parent):
            make_private_folder(parent)
        path.rename(target)
    newest = {number: max(paths) for number, paths in witnesses.snapshots.items()}
    for stream in streams:
        last = stream.last
        if has_lost:
            last = _LEFT_OUT + max(last, newest.pop(stream.id, 0))
        connection.execute(schema.WRITE_STREAM, schema.with_seal(*stream._replace(last=last)))
    if has_lost:
        identity, is_erasing, used, _ = connection.execute("SELECT * FROM about").fetchone()
        columns = schema.with_seal(identity, is_erasing, _LEFT_OUT + max(used, *newest.values(), 0))
        connection.execute(schema.UPDATE_ABOUT, columns)


def _end(connection: Connection, stream: StreamRow) -> int:
    """The last sequence number of a stream without its last rows that snapshots may have learned."""
    query = """
        SELECT max(
            coalesce((SELECT max(first + span - 1) FROM batches WHERE stream = ?1), 0),
            coalesce((SELECT max(sequence) FROM operations WHERE stream = ?1), 0)
        )
    """
    return max(stream.dropped, schema.value(connection, query, stream.id))


def _write_count(folder: Path, number: int) -> None:
    with closing(CountFile(folder)) as file:
        file.write(number)


def _copy_small_tables(old: Connection, into: Connection, path: Path) -> None:
    """Without these the samples mean nothing, so that all of it must be whole."""
    for table in ("about", "streams", "sources"):
        try:
            problem = next(damage_of_rows(old, table), None)
            rows = old.execute(f"SELECT * FROM {table}").fetchall()
        except sqlite3.Error as error:
            raise schema.unreadable(path, error) from None
        if problem is not None:
            raise UnreadableFile(f"{path} cannot be repaired: {problem}; restore a backup")
        for row in rows:
            into.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def _copy_groups(old: Connection, into: Connection) -> None:
    operations, end = _whole_operations(old)
    kept, last = 0, b""  # the last operation before the last group that is kept
    for group in _whole_groups(old, end):
        if group is None:
            end = kept + 1
        else:
            for batch in group:
                linked = batch.next(last)
                last, kept = linked.link, batch.operation
                into.executemany(schema.INSERT_SAMPLE, batch.rows)
                into.execute(schema.INSERT_BATCH, linked.columns())
                answers = schema.value(old, "SELECT answers FROM batches WHERE id = ?", batch.id)
                if answers is not None and schema.are_answers_whole(batch.id, answers):
                    into.execute("UPDATE batches SET answers = ? WHERE id = ?", (answers, batch.id))
    last = b""
    for row in operations:
        if row[0] < end:
            *_, last, _ = columns = schema.operation_columns(row[:-1], last)
            into.execute(schema.INSERT_OPERATION, columns)


def _whole_groups(connection: Connection, end: int) -> Iterator[list[Batch] | None]:
    """The groups before the first damage, and before an operation; None after them if there are more."""
    group: list[Batch] = []
    streams = {stream.id for stream in schema.read_streams(connection)}
    sources = {None, *(id for (id,) in connection.execute("SELECT id FROM sources"))}
    try:
        gap = _first_gap(connection, "batches")
        for batch in schema.read_batches(connection, "1 ORDER BY id"):
            if not batch.is_whole() or batch.operation >= end or batch.id >= gap:
                break
            if batch.stream not in streams or not sources.issuperset(row.source for row in batch.rows):
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


def _whole_operations(connection: Connection) -> tuple[list[tuple[Any, ...]], int]:
    """The operations before the first damaged one, and the number of that."""
    rows: list[tuple[Any, ...]] = []
    columns = "id, stream, sequence, time, kind, argument, seal"
    try:
        gap = _first_gap(connection, "operations")
        for row in connection.execute(f"SELECT {columns} FROM operations ORDER BY id"):
            if row[0] >= gap:
                return rows, rows[-1][0] + 1 if rows else 1  # what comes after a missing one is cut, too
            if schema.seal(*row[:-1]) != row[-1]:
                return rows, row[0]
            rows.append(row)
    except sqlite3.Error:
        return rows, rows[-1][0] + 1 if rows else 0
    return rows, sys.maxsize


def _first_gap(connection: Connection, table: str) -> int:
    """The first row before which others are missing."""
    return next(breaks(connection, table), sys.maxsize)
