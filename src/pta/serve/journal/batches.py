"""Batches: from requests to rows and back, answers that are added, samples that are erased or dropped.

Changes happen in a transaction of the caller, who holds the lock for writing.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import takewhile
from sqlite3 import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pta.serve.journal import schema
from pta.serve.journal.chain import last_link, replace_argument, unchain
from pta.serve.journal.rows import ANSWER, AnsweredRows, GroupRows, NewRequest, StoredAnswers
from pta.serve.journal.schema import Batch, SampleRow, SourceRow, StreamRow

DIGEST_BYTES = 16  # of a request; marks may follow
ITS_BATCH = "JOIN batches b ON b.id = (SELECT max(id) FROM batches WHERE id <= s.id)"
ITS_SOURCE = "LEFT JOIN sources o ON o.id = s.source"
_DROPPED = """
    SELECT s.id FROM batches b JOIN samples s ON s.id BETWEEN b.id AND b.id + span - 1
    WHERE b.stream = ? AND first <= ?
"""


def group_rows(batch: Batch, rows: list[SampleRow], names: Mapping[int, str]) -> GroupRows:
    """Some rows of a batch, with the names of their sources."""
    return GroupRows(
        batch.group,
        batch.time,
        np.array([batch.sequence(row) for row in rows], np.int64),
        tuple([None if row.source is None else names[row.source] for row in rows]),
        np.frombuffer(b"".join([row.feature for row in rows]), np.float16).reshape(len(rows), -1),
        tuple([row.touches for row in rows]),
    )


def answered_rows(
    batch: int, first: int, time: float, stored: bytes | None, rows: Sequence[tuple[Any, ...]]
) -> AnsweredRows:
    """A batch from its samples and its stored answers.

    Samples are (row, source, and in the first row of a request the hash of its id, its marked digest and its size).
    """
    hashes, places = list[bytes](), list[int]()
    for _, _, id_hash, marked, size in rows:
        hashes.append(hashes[-1] if id_hash is None else id_hash)
        if id_hash is not None:
            places += places_of(marked, size).tolist()
    sequences = np.array([first + row[0] - batch for row in rows], np.int64)
    sources = tuple(row[1] for row in rows)
    answers = None if stored is None else np.frombuffer(stored[:-8], ANSWER)
    return AnsweredRows(first, time, sequences, sources, tuple(hashes), tuple(places), answers)


def rows_of(request: NewRequest, row: int, source: int | None) -> list[SampleRow]:
    """The rows of a request's samples, from a row on."""
    content = request.features.tobytes()
    width = request.features.shape[1] * 2
    marks = b"" if request.learned is None else np.packbits(request.learned).tobytes()  # one bit each
    once = (request.id_hash, request.digest + marks, len(request.features))
    rows = []
    for i, touches in enumerate(request.touches):
        feature = content[i * width : (i + 1) * width]
        id_hash, digest, size = once if i == 0 else (None, None, None)
        rows.append(SampleRow(row + i, request.stream, source, id_hash, digest, size, touches, feature))
    return rows


def places_of(marked: bytes, size: int) -> NDArray[np.int64]:
    """The places of learned samples in their request."""
    marks = np.frombuffer(marked, np.uint8)[DIGEST_BYTES:]
    return np.flatnonzero(np.unpackbits(marks)) if len(marks) else np.arange(size)


def pages_of(group: Sequence[Batch]) -> int:
    """About how many pages a group adds to the log: a few of each table, its rows, and those of two indexes.

    These have 200 ids or 400 batches per page, in no order.
    """
    if not group:
        return 4
    rows, (row, *_) = sum([batch.span for batch in group]), group[-1].rows
    return 8 + rows * len(row.feature) // schema.PAGE + min(rows, row.id // 200) + min(len(group), row.id // 400)


def write_answers(connection: Connection, answers: StoredAnswers) -> None:
    """Add the answers of a group to its batches; those of samples that were erased meanwhile are left out."""
    query = "SELECT group_, stream, id, span, erased FROM batches WHERE id >= ? ORDER BY id"
    with closing(connection.execute(query, (answers.group,))) as later:
        batches = list(takewhile(lambda row: row[0] == answers.group, later))
    for _, stream, id, span, erased in batches:
        given = answers.answers.get(stream)
        if given is None or span == erased:
            continue
        if erased:
            kept = connection.execute("SELECT id - ?1 FROM samples WHERE id BETWEEN ?1 AND ?2", (id, id + span - 1))
            positions = [position for (position,) in kept.fetchall()]
            rest = np.zeros_like(given)
            rest[positions] = given[positions]
            given = rest
        _put_answers(connection, id, given.tobytes())


def _put_answers(connection: Connection, batch: int, answers: bytes) -> None:
    connection.execute("UPDATE batches SET answers = ? WHERE id = ?", (answers + schema.seal(batch, answers), batch))


def erase_samples(connection: Connection, source: SourceRow, until: int) -> int:
    """Remove the samples of a source up to a sequence number; says how many."""
    theirs = f"FROM samples s {ITS_BATCH} WHERE s.source = ?"
    erased = 0
    query = f"SELECT DISTINCT b.id {theirs} AND b.first <= ?"
    for (id,) in connection.execute(query, (source.id, until)).fetchall():
        (batch,) = schema.read_batches(connection, "id = ?", id)
        gone = {row.id for row in batch.rows if row.source == source.id and batch.sequence(row) <= until}
        connection.executemany("DELETE FROM samples WHERE id = ?", [(id,) for id in gone])
        rows = [row for row in batch.rows if row.id not in gone]
        new = batch._replace(erased=batch.erased + len(gone), rows=rows).next(b"")
        connection.execute("UPDATE batches SET erased = ?, seal = ? WHERE id = ?", (new.erased, new.seal, id))
        stored = schema.value(connection, "SELECT answers FROM batches WHERE id = ?", id)
        if not rows:
            connection.execute("UPDATE batches SET answers = NULL WHERE id = ?", (id,))
        elif stored is not None:
            answers = np.frombuffer(stored[:-8], ANSWER).copy()
            answers[[row - id for row in gone]] = 0
            _put_answers(connection, id, answers.tobytes())
        erased += len(gone)
    first = schema.value(connection, f"SELECT b.first + s.id - b.id {theirs} ORDER BY s.id LIMIT 1", source.id)
    if first is None:
        connection.execute("DELETE FROM sources WHERE id = ?", (source.id,))
    else:
        connection.execute(schema.INSERT_SOURCE, schema.with_seal(*source._replace(first=first)))
    return erased


def erase_labels(connection: Connection, source: SourceRow, until: int) -> None:
    """Remove the labels of the samples of a source up to a sequence number."""
    query = "SELECT id, stream, sequence, time, kind, argument FROM operations WHERE stream = ? AND kind = 'label'"
    for row in connection.execute(query, (source.stream,)).fetchall():
        argument = json.loads(row[-1])
        if source.name in argument["labels"]:
            rest = [pair for pair in zip(*argument["labels"].pop(source.name), strict=True) if pair[0] > until]
            if rest:
                argument["labels"][source.name] = [*zip(*rest, strict=True)]
            replace_argument(connection, row, json.dumps(argument, sort_keys=True))


def delete_stream(connection: Connection, stream: StreamRow) -> StreamRow:
    """Remove all rows of a stream but its own, which keeps its last number."""
    for table in ("batches", "operations"):
        unchain(connection, table, "stream = ?", stream.id)
    for table in ("samples", "batches", "operations", "sources"):
        connection.execute(f"DELETE FROM {table} WHERE stream = ?", (stream.id,))
    new = stream._replace(is_deleted=1, link=b"")
    connection.execute(schema.WRITE_STREAM, schema.with_seal(*new))
    return new


def drop_samples(connection: Connection, stream: StreamRow, sequence: int) -> tuple[StreamRow, dict[int | None, int]]:
    """Remove the samples up to the last row at which no group goes on after a sequence number.

    Gives the new row of the stream, and how many of each source are gone.
    """
    across = "SELECT first - 1 FROM batches WHERE stream = ? AND first <= ? AND first + span - 1 > ?"
    last_time = """
        SELECT max(time) FROM (
            SELECT time FROM batches WHERE stream = ?1 AND first <= ?2
            UNION ALL SELECT time FROM operations WHERE stream = ?1 AND sequence <= ?2
        )
    """
    end = schema.value(connection, across, stream.id, sequence, sequence)
    end = min(sequence, stream.last) if end is None else end
    time = schema.value(connection, last_time, stream.id, end)
    if time is None:
        return stream, {}
    counts = f"SELECT source, count(*) FROM samples WHERE id IN ({_DROPPED}) GROUP BY source"
    dropped = dict(connection.execute(counts, (stream.id, end)).fetchall())
    connection.execute(f"DELETE FROM samples WHERE id IN ({_DROPPED})", (stream.id, end))
    unchain(connection, "batches", "stream = ? AND first <= ?", stream.id, end)
    connection.execute("DELETE FROM batches WHERE stream = ? AND first <= ?", (stream.id, end))
    new = stream._replace(dropped=end, dropped_time=time, link=last_link(connection, stream.id))
    connection.execute(schema.WRITE_STREAM, schema.with_seal(*new))
    return new, dropped
