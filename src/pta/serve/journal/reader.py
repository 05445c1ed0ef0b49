"""Reading a journal: samples group by group, look-ups by id, source and time.

Reads are short, so that none keeps SQLite from emptying the write-ahead log.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock

import numpy as np

from pta.errors import InvalidParameter, UnreadableFile
from pta.serve.journal.rows import ANSWER, BatchSpan, Found, GroupRows, Operation
from pta.serve.journal.schema import (
    PAGE,
    Batch,
    SampleRow,
    SourceRow,
    StreamRow,
    connect,
    read_batches,
    read_streams,
    value,
)

_BATCHES_AT_ONCE = 32
ITS_BATCH = "JOIN batches b ON b.id = (SELECT max(id) FROM batches WHERE id <= s.id)"


class JournalReader:
    """What can be asked of a journal. Streams go by their numbers, which `streams` gives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reading = Lock()
        self._reader = connect(path)
        self._streams = {stream.id: stream for stream in read_streams(self._reader)}
        self._read_sources()

    def _read_sources(self) -> None:
        with self._reading:
            rows = self._reader.execute("SELECT * FROM sources").fetchall()
            counts = self._reader.execute("SELECT source, count(*) FROM samples GROUP BY source").fetchall()
        self._sources = {(row[1], row[2]): SourceRow(*row[:-1]) for row in rows}
        self._counts: Counter[int | None] = Counter(dict(counts))

    def streams(self) -> dict[str, int]:
        """The streams by name, with their numbers."""
        return {stream.name: id for id, stream in self._streams.items() if not stream.is_deleted}

    def _stream(self, stream: int) -> StreamRow:
        known = self._streams.get(stream)
        if known is None or known.is_deleted:
            raise InvalidParameter(f"the journal has no stream {stream}")
        return known

    def last(self, stream: int) -> tuple[int, float]:
        """Sequence number and time of the last row of a stream, be it there or erased."""
        known = self._stream(stream)
        return known.last, known.time

    def oldest(self, stream: int) -> tuple[int, float]:
        """The last row that was dropped for room, or zeros: the oldest moment that rows can be replayed from."""
        known = self._stream(stream)
        return known.dropped, known.dropped_time

    def find(self, stream: int, id_hash: bytes) -> Found | None:
        """What was learned under an id."""
        query = f"""
            SELECT s.id - b.id, s.digest, s.size, b.first, b.time, b.answers
            FROM samples s {ITS_BATCH} WHERE s.stream = ? AND s.id_hash = ?
        """
        with self._reading:
            row = self._reader.execute(query, (stream, id_hash)).fetchone()
        if row is None:
            return None
        start, digest, size, first, time, stored = row
        answers = None if stored is None else np.frombuffer(stored[:-8], ANSWER)[start : start + size]
        return Found(digest, time, np.arange(first + start, first + start + size), answers)

    def batch_of(self, stream: int, sequence: int) -> BatchSpan:
        """The batch that a sample was written in."""
        query = (
            "SELECT group_, first, first + span - 1 FROM batches WHERE stream = ? AND first <= ? ORDER BY first DESC"
        )
        with self._reading:
            return BatchSpan(*self._reader.execute(query, (stream, sequence)).fetchone())

    def operations(self, stream: int) -> list[Operation]:
        """All operations of a stream, in order."""
        query = "SELECT sequence, time, kind, argument FROM operations WHERE stream = ? ORDER BY sequence"
        with self._reading:
            rows = self._reader.execute(query, (stream,)).fetchall()
        return [Operation(sequence, time, kind, json.loads(argument)) for sequence, time, kind, argument in rows]

    def groups(self, stream: int, after: int = 0, until: int | None = None) -> Iterator[GroupRows]:
        """The samples of a stream after a sequence number, up to another one, group by group.

        Raises:
            UnreadableFile: a row is not as it was written.
        """
        last = self._stream(stream).last if until is None else until
        names = {source.id: source.name for source in self._sources.values()}  # of all rows up to the last
        with self._reading:
            start = "SELECT max(first) FROM batches WHERE stream = ? AND first <= ?"
            first = value(self._reader, start, stream, after + 1) or 0
        piece = f"stream = ? AND first BETWEEN ? AND ? ORDER BY first LIMIT {_BATCHES_AT_ONCE}"
        while True:
            with self._reading:
                batches = list(read_batches(self._reader, piece, stream, first, last))
            for batch in batches:
                if not batch.is_whole():
                    place = batch.place(self._stream(stream).name)
                    raise UnreadableFile(f"{self.path} is damaged: {place}; pta journal check lists all damage")
                if rows := [row for row in batch.rows if after < batch.sequence(row) <= last]:
                    yield _group_rows(batch, rows, names)
            if len(batches) < _BATCHES_AT_ONCE:
                return
            first = batches[-1].first + 1

    def count(
        self, stream: int, *, source: str | None = None, after: int | None = None, until: int | None = None
    ) -> int:
        """How many samples a stream has after a sequence number, up to another one, of a source or of all."""
        known = None if source is None else self._sources.get((stream, source))
        if source is not None and known is None:
            return 0
        query = """
            SELECT total(CASE WHEN erased > 0 OR :source IS NOT NULL THEN (
                SELECT count(*) FROM samples s
                WHERE s.id BETWEEN b.id + max(0, :after + 1 - first) AND b.id + min(span - 1, :until - first)
                AND (:source IS NULL OR s.source = :source)
            ) ELSE min(first + span - 1, :until) - max(first, :after + 1) + 1 END)
            FROM batches b WHERE stream = :stream AND first <= :until AND first + span - 1 > :after
        """
        given = {
            "stream": stream,
            "source": None if known is None else known.id,
            "after": 0 if after is None else after,
            "until": self._stream(stream).last if until is None else until,
        }
        with self._reading:
            return int(self._reader.execute(query, given).fetchone()[0])

    def sources(self, stream: int) -> dict[str, int]:
        """How many samples each source of a stream has."""
        held = [source for source in self._sources.values() if source.stream == stream]
        return {source.name: self._counts[source.id] for source in held if self._counts[source.id]}

    def first(self, stream: int, source: str) -> int | None:
        """The sequence number of the first sample of a source, which may have been dropped for room."""
        known = self._sources.get((stream, source))
        return None if known is None else known.first

    def sequence_at(self, stream: int, time: float) -> int:
        """The last sequence number at a time; 0 before the first, and before what was dropped."""
        query = """
            SELECT max(
                coalesce((SELECT max(first + span - 1) FROM batches WHERE stream = :stream AND time <= :time), 0),
                coalesce((SELECT max(sequence) FROM operations WHERE stream = :stream AND time <= :time), 0)
            )
        """
        dropped, dropped_time = self.oldest(stream)
        if time < dropped_time:
            return 0
        with self._reading:
            found = self._reader.execute(query, {"stream": stream, "time": time}).fetchone()[0]
        return max(found, dropped)

    def size(self) -> int:
        """The bytes of the database. Its log comes on top of them."""
        with self._reading:
            return value(self._reader, "PRAGMA page_count") * PAGE


def _group_rows(batch: Batch, rows: list[SampleRow], names: Mapping[int, str]) -> GroupRows:
    return GroupRows(
        batch.group,
        batch.time,
        np.array([batch.sequence(row) for row in rows], np.int64),
        tuple([None if row.source is None else names[row.source] for row in rows]),
        np.frombuffer(b"".join([row.feature for row in rows]), np.float16).reshape(len(rows), -1),
        tuple([row.touches for row in rows]),
    )
