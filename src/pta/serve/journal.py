"""The journal: every learned sample and every operation, on the disk before it is acknowledged.

One connection writes, and its transactions come one after the other. Another one reads, in short pieces, so that the
write-ahead log can always be emptied. What `commit` has returned is on the disk. What it has refused may be there or not
after the journal is opened again: SQLite can find a transaction whose fsync failed.
"""

import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self

import numpy as np

from pta.errors import (
    FileInUse,
    InvalidParameter,
    InvalidSamples,
    StateMismatch,
    UnreadableFile,
    first_line,
    reason,
    shown,
)
from pta.locks import claimed, holder
from pta.serve.journal_check import damage
from pta.serve.journal_repair import repair_journal
from pta.serve.journal_rows import (
    ANSWER,
    Committed,
    Found,
    GroupRows,
    JournalFailed,
    NewRequest,
    Operation,
    RepeatedId,
    StoredAnswers,
)
from pta.serve.journal_schema import (
    FILE_NAME,
    INSERT_BATCH,
    INSERT_SAMPLE,
    PAGE,
    Batch,
    SampleRow,
    connect,
    is_empty,
    make_tables,
    read_batches,
    require_format,
    seal,
    unreadable,
    value,
)
from pta.serve.wal import is_damaged

KINDS = ("reset", "rewind", "unlearn", "import", "undo", "freeze", "thaw")
_BATCHES_AT_ONCE = 32  # that are read in one piece
_PAGES_IN_LOG = 2000  # before a checkpoint: 32 MB


@dataclass(frozen=True)
class _Stream:
    """A row of `streams`, without its seal."""

    id: int
    name: str
    is_deleted: int = 0
    last: int = 0
    time: float = 0.0
    row: int = 0
    dropped: int = 0
    dropped_time: float = 0.0

    def columns(self) -> tuple[Any, ...]:
        values = tuple(vars(self).values())
        return (*values, seal(*values))


class Journal:
    """The journal of a data folder, which this process owns until `close`."""

    def __init__(self, path: Path, claim: ExitStack) -> None:
        """Use `open`."""
        self.path = path
        self.read_only: str | None = None
        """Why nothing can be written any more."""
        self._claim = claim
        self._writing, self._reading = Lock(), Lock()
        self._writer, self._reader = connect(path), connect(path)
        self._streams: dict[int, _Stream] = {}
        self._sources: dict[tuple[int, str], int] = {}
        self._counts: Counter[int] = Counter()
        self._operation = 0  # the number of the last one
        self._pages = 0  # in the log, at most

    @classmethod
    def open(cls, folder: Path, identity: Mapping[str, Any], *, repair: bool = False) -> Self:
        """Open the journal of a folder, or make both.

        Args:
            folder: The data folder, on a local disk.
            identity: What the rows belong to: model, classes, rule. A journal of another one is refused.
            repair: Cut a damaged journal after its last whole group. The damaged file is kept beside it.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnreadableFile(f"cannot make the folder {folder}: {reason(error)}") from None
        path, lock = folder / FILE_NAME, folder / ".lock"
        with ExitStack() as stack:
            if not stack.enter_context(claimed(lock, wait=False)):
                raise FileInUse(f"{folder} is in use by {holder(lock)}; stop it, or choose another data folder")
            try:
                if repair and path.exists():
                    repair_journal(path)
                _require_whole_log(path)
                journal = cls(path, stack.pop_all())
            except sqlite3.Error as error:
                raise unreadable(path, error) from None
        try:
            journal._load(identity)
        except sqlite3.Error as error:
            journal.close()
            raise unreadable(path, error) from None
        except BaseException:
            journal.close()
            raise
        return journal

    def _load(self, identity: Mapping[str, Any]) -> None:
        text = json.dumps(identity, sort_keys=True)
        if is_empty(self._writer):
            with self._transaction():
                make_tables(self._writer)
                self._writer.execute("INSERT INTO about VALUES (?, 0, ?)", (text, seal(text, 0)))
        require_format(self._writer, self.path)
        if (problem := next(damage(self._writer), None)) is not None:
            raise UnreadableFile(
                f"{self.path} is damaged: {problem}; pta journal check lists all damage, and --repair cuts before it"
            )
        _require_same(json.loads(value(self._writer, "SELECT identity FROM about")), json.loads(text), self.path)
        for columns in self._writer.execute("SELECT * FROM streams"):
            self._streams[columns[0]] = _Stream(*columns[:-1])
        last = "SELECT max(coalesce(max(operation), 0), (SELECT coalesce(max(id), 0) FROM operations)) FROM batches"
        self._operation = value(self._writer, last)
        self._read_sources()
        if value(self._writer, "SELECT is_erasing FROM about"):  # a process was killed before it had erased all
            self._scrub()
        self.checkpoint()  # a log holds what one process has written, which `wal.py` relies on

    def _read_sources(self) -> None:
        self._sources = {(s, name): id for id, s, name in self._writer.execute("SELECT id, stream, name FROM sources")}
        counts = "SELECT source, count(*) FROM samples WHERE source IS NOT NULL GROUP BY source"
        self._counts = Counter(dict(self._writer.execute(counts).fetchall()))

    def close(self) -> None:
        """End the connections and the claim on the folder."""
        with self._writing, self._reading:
            self._reader.close()
            self._writer.close()
            self._claim.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing; what the disk refuses ends all writing."""
        if self.read_only is not None:
            raise JournalFailed(f"the journal is read-only until the service is restarted: {self.read_only}")
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            yield
            self._writer.execute("COMMIT")
        except sqlite3.IntegrityError:
            self._roll_back()
            raise RepeatedId("a request with this id was learned before; look it up") from None
        except sqlite3.Error as error:
            self._roll_back()
            self.read_only = first_line(error)
            raise JournalFailed(
                f"the journal cannot be written ({self.read_only}) and is read-only until the service is restarted"
            ) from None
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")

    def streams(self) -> dict[str, int]:
        """The streams by name, with the numbers by which all other calls know them."""
        return {stream.name: id for id, stream in self._streams.items() if not stream.is_deleted}

    def create(self, name: str) -> int:
        """A new stream. One that has the name of a deleted stream goes on with its sequence numbers."""
        with self._writing:
            if name in self.streams():
                raise InvalidParameter(f"there is a stream named {shown(name)} already")
            known = next((stream for stream in self._streams.values() if stream.name == name), None)
            number = max(self._streams, default=0) + 1
            stream = replace(known, is_deleted=0, dropped=0, dropped_time=0.0) if known else _Stream(number, name)
            with self._transaction():
                self._write_stream(stream)
            self._streams[stream.id] = stream
        return stream.id

    def _write_stream(self, stream: _Stream) -> None:
        self._writer.execute("REPLACE INTO streams VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", stream.columns())

    def _stream(self, stream: int) -> _Stream:
        known = self._streams.get(stream)
        if known is None or known.is_deleted:
            raise InvalidParameter(f"the journal has no stream {stream}")
        return known

    def _now(self) -> float:
        """The time, which never goes back, whatever the clock does."""
        return max(time.time(), max((stream.time for stream in self._streams.values()), default=0.0))

    def _row(self) -> int:
        """The last row of `samples` that was ever used."""
        return max((stream.row for stream in self._streams.values()), default=0)

    def commit(self, requests: Sequence[NewRequest], answers: StoredAnswers | None = None) -> Committed:
        """Write one group, in one transaction with one fsync, and with it the answers of an earlier group.

        Raises:
            RepeatedId: an id is there already; nothing was written.
            JournalFailed: the disk refuses; nothing has changed here, and nothing can be written any more.
        """
        _require_fitting(requests)
        with self._writing:
            now, group = self._now(), self._row() + 1
            sources = self._with_new_sources(requests)
            firsts = dict.fromkeys(range(len(requests)), 0)
            streams, batches = {}, []
            by_stream: dict[int, list[int]] = {}
            for position, request in enumerate(requests):
                by_stream.setdefault(request.stream, []).append(position)
            row = group
            for rest, (number, positions) in zip(range(len(by_stream))[::-1], by_stream.items(), strict=True):
                stream = self._stream(number)
                rows: list[SampleRow] = []
                for position in positions:
                    firsts[position] = stream.last + 1 + len(rows)
                    request = requests[position]
                    source = None if request.source is None else sources[number, request.source]
                    rows += _rows_of(request, row + len(rows), source)
                span = len(rows)
                head = (row, number, stream.last + 1, span, 0, now, group, rest, self._operation)
                batches.append(Batch(*head, b"", rows).sealed())
                row += span
                streams[number] = replace(stream, last=stream.last + span, time=now, row=row - 1)
            with self._transaction():
                for (number, name), id in sources.items() - self._sources.items():
                    columns = (id, number, name)
                    self._writer.execute("INSERT INTO sources VALUES (?, ?, ?, ?)", (*columns, seal(*columns)))
                for batch in batches:
                    self._writer.executemany(INSERT_SAMPLE, batch.rows)
                    self._writer.execute(INSERT_BATCH, batch.columns())
                for stream in streams.values():
                    self._write_stream(stream)
                if answers is not None:
                    self._write_answers(answers)
            self._streams |= streams
            self._sources = sources
            self._counts.update(row.source for batch in batches for row in batch.rows if row.source is not None)
            self._pages += 8 + 2 * (row - group)  # at most one page of the index of ids per sample
            if self._pages > _PAGES_IN_LOG:
                self._empty_log("PASSIVE")
        return Committed(group, now, tuple(firsts.values()))

    def _with_new_sources(self, requests: Sequence[NewRequest]) -> dict[tuple[int, str], int]:
        wanted = {(request.stream, request.source): 0 for request in requests if request.source is not None}
        new = [key for key in wanted if key not in self._sources]
        if not new:
            return self._sources
        free = max(self._sources.values(), default=0) + 1
        return self._sources | {key: free + i for i, key in enumerate(new)}

    def _write_answers(self, answers: StoredAnswers) -> None:
        query = "SELECT id, span FROM batches WHERE group_ = ? AND stream = ? AND id >= ? ORDER BY id LIMIT 1"
        for stream, given in answers.answers.items():
            found = self._writer.execute(query, (answers.group, stream, answers.group)).fetchone()
            if found is None:
                continue  # erased since
            id, span = found
            if given.dtype != ANSWER or given.shape != (span,):
                raise InvalidSamples(f"group {answers.group} has {span} samples of stream {stream}, not {given.shape}")
            self._put_answers(id, given.tobytes())

    def _put_answers(self, batch: int, answers: bytes) -> None:
        self._writer.execute("UPDATE batches SET answers = ? WHERE id = ?", (answers + seal(batch, answers), batch))

    def find(self, stream: int, id_hash: bytes) -> Found | None:
        """What was learned under an id."""
        query = """
            SELECT s.id, s.digest, s.size, b.id, b.first, b.time, b.answers
            FROM samples s JOIN batches b ON b.id = (SELECT max(id) FROM batches WHERE id <= s.id)
            WHERE s.stream = ? AND s.id_hash = ?
        """
        with self._reading:
            row = self._reader.execute(query, (stream, id_hash)).fetchone()
        if row is None:
            return None
        id, digest, size, batch, first, at, stored = row
        start = id - batch
        answers = None if stored is None else np.frombuffer(stored[:-8], ANSWER)[start : start + size]
        return Found(digest, at, np.arange(first + start, first + start + size), answers)

    def operate(self, stream: int, kind: str, argument: Mapping[str, Any]) -> Operation:
        """Write an operation, which gets a sequence number of its own."""
        if kind not in KINDS:
            raise InvalidParameter(f"no operation is named {shown(kind)}; there are {', '.join(KINDS)}")
        with self._writing:
            now, old = self._now(), self._stream(stream)
            new = replace(old, last=old.last + 1, time=now)
            columns = (self._operation + 1, stream, new.last, now, kind, json.dumps(argument, sort_keys=True))
            with self._transaction():
                self._writer.execute("INSERT INTO operations VALUES (?, ?, ?, ?, ?, ?, ?)", (*columns, seal(*columns)))
                self._write_stream(new)
            self._streams[stream] = new
            self._operation += 1
            self._pages += 4
        return Operation(new.last, now, kind, dict(argument))

    def operations(self, stream: int) -> list[Operation]:
        """All operations of a stream, in order."""
        query = "SELECT sequence, time, kind, argument FROM operations WHERE stream = ? ORDER BY sequence"
        with self._reading:
            rows = self._reader.execute(query, (stream,)).fetchall()
        return [Operation(*row, json.loads(argument)) for *row, argument in rows]

    def groups(self, stream: int, after: int = 0, until: int | None = None) -> Iterator[GroupRows]:
        """The samples of a stream after a sequence number, up to another one, group by group.

        Raises:
            UnreadableFile: a row is not as it was written.
        """
        names = {id: name for (_, name), id in self._sources.items()}
        last = self._stream(stream).last if until is None else until
        before = "SELECT max(first) FROM batches WHERE stream = ? AND first <= ?"
        with self._reading:
            first = value(self._reader, before, stream, after + 1) or 0
        piece = f"stream = ? AND first >= ? AND first <= ? ORDER BY first LIMIT {_BATCHES_AT_ONCE}"
        while True:
            with self._reading:
                batches = list(read_batches(self._reader, piece, stream, first, last))
            for batch in batches:
                if not batch.is_whole():
                    raise UnreadableFile(
                        f"{self.path} is damaged: {self._stream(stream).name}, sequences {batch.first} to "
                        f"{batch.first + batch.span - 1}; pta journal check lists all damage"
                    )
                skipped = max(0, after + 1 - batch.first)
                kept = min(batch.span, last + 1 - batch.first)
                rows = batch.rows
                if skipped or kept < batch.span:
                    rows = [row for row in rows if skipped <= row.id - batch.id < kept]
                if rows:
                    yield _group_rows(batch, rows, names)
            if len(batches) < _BATCHES_AT_ONCE:
                return
            first = batches[-1].first + 1

    def count(
        self, stream: int, *, source: str | None = None, after: int | None = None, until: int | None = None
    ) -> int:
        """How many samples a stream has after a sequence number, up to another one, of a source or of all."""
        if source is not None and (stream, source) not in self._sources:
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
            "source": None if source is None else self._sources[stream, source],
            "after": 0 if after is None else after,
            "until": self._stream(stream).last if until is None else until,
        }
        with self._reading:
            return int(self._reader.execute(query, given).fetchone()[0])

    def sources(self, stream: int) -> dict[str, int]:
        """How many samples each source of a stream has."""
        held = {name: self._counts[id] for (number, name), id in self._sources.items() if number == stream}
        return {name: count for name, count in held.items() if count}

    def first(self, stream: int, source: str) -> int | None:
        """The sequence number of the first sample of a source."""
        query = """
            SELECT b.first + s.id - b.id FROM samples s JOIN batches b
            ON b.id = (SELECT max(id) FROM batches WHERE id <= s.id)
            WHERE s.source = ? ORDER BY s.id LIMIT 1
        """
        with self._reading:
            return value(self._reader, query, self._sources.get((stream, source)))

    def last(self, stream: int) -> tuple[int, float]:
        """Sequence number and time of the last row of a stream, be it there or erased."""
        known = self._stream(stream)
        return known.last, known.time

    def oldest(self, stream: int) -> tuple[int, float]:
        """The last row that was dropped for room, which is the oldest moment that the rows can be replayed from."""
        known = self._stream(stream)
        return known.dropped, known.dropped_time

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

    def erase(self, stream: int, source: str, until: int) -> int:
        """Remove the samples of a source up to a sequence number from all files of the journal; says how many."""
        self._stream(stream)
        with self._writing:
            id = self._sources.get((stream, source))
            held = "id IN (SELECT (SELECT max(id) FROM batches WHERE id <= s.id) FROM samples s WHERE s.source = ?)"
            batches = [b for b in read_batches(self._writer, f"first <= ? AND {held} ORDER BY id", until, id)]
            erased = 0
            with self._transaction():
                for batch in batches:
                    gone = [r.id for r in batch.rows if r.source == id and batch.first + r.id - batch.id <= until]
                    erased += len(gone)
                    self._erase_rows(batch, set(gone))
                self._mark_erasing(1)
            self._read_sources()
            self._scrub()
        return erased

    def _erase_rows(self, batch: Batch, gone: set[int]) -> None:
        self._writer.executemany("DELETE FROM samples WHERE id = ?", [(id,) for id in gone])
        if len(gone) == len(batch.rows):
            self._writer.execute("DELETE FROM batches WHERE id = ?", (batch.id,))
            return
        rows = [row for row in batch.rows if row.id not in gone]
        new = replace(batch, erased=batch.erased + len(gone), rows=rows).sealed()
        self._writer.execute("UPDATE batches SET erased = ?, seal = ? WHERE id = ?", (new.erased, new.seal, new.id))
        stored = value(self._writer, "SELECT answers FROM batches WHERE id = ?", batch.id)
        if stored is not None:
            answers = np.frombuffer(stored[:-8], ANSWER).copy()
            answers[[id - batch.id for id in gone]] = 0
            self._put_answers(batch.id, answers.tobytes())

    def delete(self, stream: int) -> None:
        """Remove a stream with all its rows from all files of the journal."""
        old = self._stream(stream)
        with self._writing:
            new = replace(old, is_deleted=1)
            with self._transaction():
                for table in ("samples", "batches", "operations", "sources"):
                    self._writer.execute(f"DELETE FROM {table} WHERE stream = ?", (stream,))
                self._write_stream(new)
                self._mark_erasing(1)
            self._streams[stream] = new
            self._read_sources()
            self._scrub()

    def _mark_erasing(self, is_erasing: int) -> None:
        identity = value(self._writer, "SELECT identity FROM about")
        sealed = (is_erasing, seal(identity, is_erasing))
        self._writer.execute("UPDATE about SET is_erasing = ?, seal = ?", sealed)

    def _scrub(self) -> None:
        """Write the file anew without what was deleted, and empty the log.

        `secure_delete` alone is not enough: where SQLite moves rows between pages, it can leave a copy in the unused
        part of a page, which it no longer knows of when the row is deleted later.
        """
        try:
            self._writer.execute("VACUUM")
            with self._reading:
                is_busy = value(self._writer, "PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            self.read_only = first_line(error)
            raise JournalFailed(
                f"the rows are deleted, but their bytes may still be in {self.path} ({self.read_only}); "
                "restart the service to erase them"
            ) from None
        if is_busy:
            raise FileInUse(
                f"the rows are deleted, but another process reads {self.path}, so that their bytes are still in its "
                "log; end it, and restart the service or erase again"
            )
        with self._transaction():
            self._mark_erasing(0)

    def drop_until(self, stream: int, sequence: int) -> int:
        """Remove the samples up to a sequence number, for room; says how many. The caller has a snapshot of that moment.

        A group that goes on after that number stays, and so does what comes after its start.
        """
        known = self._stream(stream)
        across = "SELECT first FROM batches WHERE stream = ? AND first <= ? AND first + span - 1 > ?"
        whole = "stream = ? AND first <= ?"
        with self._writing:
            end = min(value(self._writer, across, stream, sequence, sequence) or sequence + 1, known.last + 1) - 1
            at = value(self._writer, f"SELECT max(time) FROM batches WHERE {whole}", stream, end)
            if at is None:
                return 0
            new = replace(known, dropped=end, dropped_time=at)
            inside = f"id IN (SELECT s.id FROM batches b, samples s WHERE b.{whole} AND s.id BETWEEN b.id AND b.id + span - 1)"
            with self._transaction():
                dropped = self._writer.execute(f"DELETE FROM samples WHERE {inside}", (stream, end)).rowcount
                self._writer.execute(f"DELETE FROM batches WHERE {whole}", (stream, end))
                self._write_stream(new)
            self._streams[stream] = new
            self._read_sources()
            self._writer.execute("PRAGMA incremental_vacuum").fetchall()
            self._empty_log("PASSIVE")
        return dropped

    def size(self) -> int:
        """The bytes of the database. Its log comes on top, with usually less than 64 MB."""
        with self._reading:
            return value(self._reader, "PRAGMA page_count") * PAGE

    def checkpoint(self) -> None:
        """Move the log into the database."""
        with self._writing, self._reading:
            self._empty_log("TRUNCATE")

    def _empty_log(self, mode: str) -> None:
        """What is in the log is safe, so that a failure here ends writing, but refuses nothing that is written."""
        try:
            self._writer.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
            self._pages = 0
        except sqlite3.Error as error:
            self.read_only = first_line(error)

    def backup(self, folder: Path) -> None:
        """Copy the journal as it is now into another folder, while it is in use."""
        back_up(self.path.parent, folder)

    def check(self) -> list[str]:
        """What is wrong with the journal, one line each."""
        with closing(connect(self.path)) as connection:
            return list(damage(connection))


def back_up(folder: Path, target: Path) -> None:
    """Copy the journal of a folder, which may be in use by another process, as it is at one moment."""
    path, copy = folder / FILE_NAME, target / FILE_NAME
    if not path.is_file():
        raise UnreadableFile(f"no journal in {folder}: {FILE_NAME} is not there")
    if copy.exists():
        raise UnreadableFile(f"{copy} is there already; choose an empty folder")
    part = copy.with_name(f"{FILE_NAME}.part")
    try:
        target.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        with closing(connect(path)) as source, closing(sqlite3.connect(part)) as into:
            require_format(source, path)
            source.backup(into)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(copy)
    except sqlite3.Error as error:
        part.unlink(missing_ok=True)
        raise UnreadableFile(f"cannot copy {path} to {copy}: {first_line(error)}") from None
    except OSError as error:
        raise UnreadableFile(f"cannot write {copy}: {reason(error)}") from None


def _rows_of(request: NewRequest, row: int, source: int | None) -> list[SampleRow]:
    content, width = request.features.tobytes(), request.features.shape[1] * 2
    features = [content[start : start + width] for start in range(0, len(content), width)]
    ids = [(request.id_hash, request.digest, len(features))] + [(None, None, None)] * (len(features) - 1)
    return [
        SampleRow(row + i, request.stream, source, *ids[i], touches, features[i])
        for i, touches in enumerate(request.touches)
    ]


def _group_rows(batch: Batch, rows: list[SampleRow], names: Mapping[int, str]) -> GroupRows:
    features = np.frombuffer(b"".join([row.feature for row in rows]), np.float16).reshape(len(rows), -1)
    return GroupRows(
        batch.group,
        batch.time,
        np.array([row.id for row in rows], np.int64) + (batch.first - batch.id),
        tuple([None if row.source is None else names[row.source] for row in rows]),
        features,
        tuple([row.touches for row in rows]),
    )


def _require_fitting(requests: Sequence[NewRequest]) -> None:
    for request in requests:
        features = request.features
        if features.dtype != np.float16 or features.ndim != 2 or 0 in features.shape:
            raise InvalidSamples(f"features are float16 in B×d, not {features.dtype} in {features.shape}")
        if len(request.touches) != len(features) or len(request.id_hash) != 16 or len(request.digest) != 16:
            raise InvalidSamples("a request has one entry of touches per sample, and 16 bytes of id and of digest")


def _require_whole_log(path: Path) -> None:
    log = path.with_name(f"{path.name}-wal")
    if is_damaged(log):
        raise UnreadableFile(f"{log} is damaged in the middle; --repair cuts before the damage")


def _require_same(found: Mapping[str, Any], given: Mapping[str, Any], path: Path) -> None:
    for key in sorted({*found, *given}):
        if found.get(key) != given.get(key):
            raise StateMismatch(
                f"{path} was written with {key} {shown(found.get(key))}, and is opened with {shown(given.get(key))}; "
                "start as before, or choose another data folder"
            )
