"""Writing a journal: one connection, one transaction after the other.

What `commit` has returned is on the disk. What it has refused may be there or not after the journal is opened again:
SQLite can find a transaction whose fsync failed.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from pta.errors import InvalidParameter, InvalidSamples, MachineFailure, first_line, shown
from pta.serve.journal.chain import newest_link
from pta.serve.journal.reader import JournalReader
from pta.serve.journal.rows import ANSWER, Committed, NewRequest, Operation, StoredAnswers
from pta.serve.journal.schema import (
    INSERT_BATCH,
    INSERT_OPERATION,
    INSERT_SAMPLE,
    INSERT_SOURCE,
    INSERT_STREAM,
    PAGE,
    UPDATE_ABOUT,
    Batch,
    SampleRow,
    SourceRow,
    StreamRow,
    about_columns,
    connect,
    operation_columns,
    seal,
    value,
)
from pta.serve.journal.tail import CountFile, count_of
from pta.serve.open_files import is_out_of_files

KINDS = ("reset", "rewind", "unlearn", "import", "undo", "freeze", "thaw")
_PAGES_IN_LOG = 4000  # before a checkpoint: 64 MB


class JournalWriter(JournalReader):
    """What adds to a journal."""

    read_only: str | None = None
    """Why nothing can be written any more."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._writing = Lock()
        self._writer = connect(path)
        last = "SELECT max(coalesce(max(operation), 0), (SELECT coalesce(max(id), 0) FROM operations)) FROM batches"
        self._operation: int = value(self._writer, last)
        self._read_links()
        self._count = CountFile(path.parent)
        self._count.write(count_of(self._streams.values()))
        self._pages = 0  # in the log, at most

    def _read_links(self) -> None:
        """The ends of both chains."""
        self._links = {table: newest_link(self._writer, table) for table in ("batches", "operations")}

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing; what the disk refuses ends all writing."""
        if self.read_only is not None:
            raise MachineFailure(f"the journal is read-only until the service is restarted: {self.read_only}")
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            yield
            self._writer.execute("COMMIT")
        except sqlite3.IntegrityError:
            self._roll_back()
            raise InvalidParameter("a request with this id was learned before; nothing was written") from None
        except sqlite3.Error as error:
            self._roll_back()
            why = self._failed(error)
            for_good = "try again soon" if self.read_only is None else "it is read-only until the service is restarted"
            raise MachineFailure(f"the journal cannot be written ({why}); {for_good}") from None
        except BaseException:
            self._roll_back()
            raise

    def _failed(self, error: Exception) -> str:
        """Why something failed; it ends all writing, unless a temporary file could not be opened."""
        why = first_line(error)
        if not is_out_of_files(error):
            self.read_only = why
        return why

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")

    def _now(self) -> float:
        """The time, which never goes back, whatever the clock does."""
        return max(time.time(), max((stream.time for stream in self._streams.values()), default=0.0))

    def _take_note(self, streams: Mapping[int, StreamRow]) -> None:
        """These rows of `streams` are written."""
        self._streams = {**self._streams, **streams}
        self._count.write(count_of(self._streams.values()))

    def create(self, name: str, prepare: Callable[[int], object] = lambda number: None) -> int:
        """A new stream. One that has the name of a deleted stream goes on with its sequence numbers.

        Args:
            prepare: what else has to be there, by the number of the stream; if it fails, there is no stream.
        """
        with self._writing:
            known = next((stream for stream in self._streams.values() if stream.name == name), None)
            if known and not known.is_deleted:
                raise InvalidParameter(f"there is a stream named {shown(name)} already")
            number = max(self._streams, default=0) + 1
            new = known or StreamRow(number, name, last=value(self._writer, "SELECT used FROM about"))
            new = replace(new, is_deleted=0, dropped=0, dropped_time=0.0)
            with self._transaction():
                self._writer.execute(INSERT_STREAM, new.columns())
                prepare(new.id)
            self._take_note({new.id: new})
        return new.id

    def commit(self, requests: Sequence[NewRequest], answers: StoredAnswers | None = None) -> Committed:
        """Write one group, in one transaction with one fsync, and with it the answers of an earlier group.

        Raises:
            InvalidParameter: an id is there already; nothing was written.
            MachineFailure: the disk refuses; nothing has changed here, and usually nothing can be written any more.
        """
        _require_fitting(requests)
        by_stream: dict[int, list[int]] = {}
        for position, request in enumerate(requests):
            by_stream.setdefault(request.stream, []).append(position)
        firsts = [0] * len(requests)
        batches: list[Batch] = []
        with self._writing:
            now = self._now()
            group = row = 1 + max((stream.row for stream in self._streams.values()), default=0)
            streams = {number: self._stream(number) for number in by_stream}
            sources: dict[tuple[int, str], SourceRow] = {}
            last_link = self._links["batches"]
            for rest, (number, positions) in zip(range(len(by_stream))[::-1], by_stream.items(), strict=True):
                first, rows = streams[number].last + 1, list[SampleRow]()
                for position in positions:
                    firsts[position] = first + len(rows)
                    source = self._source(requests[position], firsts[position], sources)
                    rows += _rows_of(requests[position], row + len(rows), source)
                head = (row, number, first, len(rows), 0, now, group, rest, self._operation)
                batches.append(Batch(*head, seal=b"", rows=rows).sealed().linked(last_link))
                last_link, row, last = batches[-1].link, row + len(rows), first + len(rows) - 1
                streams[number] = replace(streams[number], last=last, time=now, row=row - 1, link=last_link)
            with self._transaction():
                self._writer.executemany(INSERT_SOURCE, [source.columns() for source in sources.values()])
                for batch in batches:
                    self._writer.executemany(INSERT_SAMPLE, batch.rows)
                self._writer.executemany(INSERT_BATCH, [batch.columns() for batch in batches])
                self._writer.executemany(INSERT_STREAM, [stream.columns() for stream in streams.values()])
                if answers is not None:
                    self._write_answers(answers)
            self._links["batches"] = last_link
            self._sources = self._sources | sources if sources else self._sources
            self._take_note(streams)
            self._counts.update(row.source for batch in batches for row in batch.rows)
            self._pages += _pages_of(batches)
            if self._pages > _PAGES_IN_LOG:
                self._empty_log("PASSIVE")
        return Committed(group, now, tuple(firsts))

    def _source(self, request: NewRequest, sequence: int, new: dict[tuple[int, str], SourceRow]) -> int | None:
        """The number of a request's source, which may be new."""
        if request.source is None:
            return None
        key = (request.stream, request.source)
        known = self._sources.get(key) or new.get(key)
        if known is None:
            free = 1 + max((source.id for source in self._sources.values()), default=0) + len(new)
            known = new[key] = SourceRow(free, *key, sequence)
        return known.id

    def _write_answers(self, answers: StoredAnswers) -> None:
        query = "SELECT id, span, erased FROM batches NOT INDEXED WHERE id >= ?1 AND group_ = ?1 AND stream = ?2"
        for stream, given in answers.answers.items():
            found = self._writer.execute(query, (answers.group, stream)).fetchone()
            if found is None or found[1] == found[2]:
                continue  # it was erased, and the answers with it
            id, span, erased = found
            if given.dtype != ANSWER or given.shape != (span,):
                raise InvalidSamples(
                    f"{span} samples of stream {stream} are in group {answers.group}, not {given.shape}"
                )
            if erased:
                kept = self._writer.execute(
                    "SELECT id - ? FROM samples WHERE id BETWEEN ? AND ?", (id, id, id + span - 1)
                )
                rest = np.zeros_like(given)
                for (position,) in kept.fetchall():
                    rest[position] = given[position]
                given = rest
            self._put_answers(id, given.tobytes())

    def _put_answers(self, batch: int, answers: bytes) -> None:
        self._writer.execute("UPDATE batches SET answers = ? WHERE id = ?", (answers + seal(batch, answers), batch))

    def operate(self, stream: int, kind: str, argument: Mapping[str, Any]) -> Operation:
        """Write an operation, which gets a sequence number of its own."""
        if kind not in KINDS:
            raise InvalidParameter(f"no operation is named {shown(kind)}; there are {', '.join(KINDS)}")
        text = json.dumps(argument, sort_keys=True)
        with self._writing:
            old, now = self._stream(stream), self._now()
            columns = (self._operation + 1, stream, old.last + 1, now, kind, text)
            *_, last_link, _ = row = operation_columns(columns, self._links["operations"])
            new = replace(old, last=old.last + 1, time=now, link=last_link)
            with self._transaction():
                self._writer.execute(INSERT_OPERATION, row)
                if argument.get("erase"):
                    self._mark_erasing(1)
                self._writer.execute(INSERT_STREAM, new.columns())
            self._links["operations"] = last_link
            self._take_note({stream: new})
            self._operation += 1
            self._pages += 8
        return Operation(new.last, now, kind, json.loads(text))

    def _mark_erasing(self, is_erasing: int) -> None:
        identity, used = self._writer.execute("SELECT identity, used FROM about").fetchone()
        columns = about_columns(identity, is_erasing, used)
        self._writer.execute(UPDATE_ABOUT, columns)

    def checkpoint(self) -> None:
        """Move the log into the database."""
        with self._writing, self._reading:
            self._empty_log("TRUNCATE")

    def _empty_log(self, mode: str) -> None:
        """Give free pages back and move the log into the database.

        What is in the log is safe, so that a failure here can end writing, but refuses nothing that is written.
        """
        try:
            self._writer.executescript(f"PRAGMA incremental_vacuum; PRAGMA wal_checkpoint({mode});")
            self._pages = 0
        except sqlite3.Error as error:
            self._failed(error)


def _pages_of(batches: Sequence[Batch]) -> int:
    """About how many pages a group adds to the log: a few of each table, its rows, and those of the index of ids.

    That has 400 ids per page, in no order.
    """
    rows = [row for batch in batches for row in batch.rows]
    if not rows:
        return 4
    return 8 + len(rows) * len(rows[0].feature) // PAGE + min(len(rows), rows[-1].id // 400)


def _require_fitting(requests: Sequence[NewRequest]) -> None:
    for request in requests:
        features = request.features
        if features.dtype != np.float16 or features.ndim != 2 or 0 in features.shape:
            raise InvalidSamples(f"features are float16 in B×d, not {features.dtype} in {features.shape}")
        if features.shape[1] != requests[0].features.shape[1]:
            raise InvalidSamples(f"the features of a group have one d, not {features.shape[1]} beside others")
        if len(request.touches) != len(features) or len(request.id_hash) != 16 or len(request.digest) != 16:
            raise InvalidSamples("a request has one entry of touches per sample, and 16 bytes of id and of digest")


def _rows_of(request: NewRequest, row: int, source: int | None) -> list[SampleRow]:
    content, width = request.features.tobytes(), request.features.shape[1] * 2
    once = (request.id_hash, request.digest, len(request.features))
    rows = []
    for i, touches in enumerate(request.touches):
        feature = content[i * width : (i + 1) * width]
        id_hash, digest, size = once if i == 0 else (None, None, None)
        rows.append(SampleRow(row + i, request.stream, source, id_hash, digest, size, touches, feature))
    return rows
