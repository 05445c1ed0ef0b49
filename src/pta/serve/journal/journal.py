"""The journal of a data folder: every learned sample and every operation, on the disk before it is acknowledged.

Its connections and what it knows without reading are in `database.py`, changes of what is written in `batches.py`, and
its tables in `schema.py`.
"""

import json
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np

from pta.door.locks import claimed, holder
from pta.door.plain_files import require_plain_database
from pta.errors import FileInUse, InvalidParameter, StateMismatch, UnreadableFile, shown
from pta.serve.journal import batches, schema
from pta.serve.journal.check import damage, damage_of_rows
from pta.serve.journal.data_folder import FILE_NAME, make_private_folder, require_plain_data
from pta.serve.journal.database import JournalDatabase, Registry
from pta.serve.journal.loss import Witnesses, is_damaged
from pta.serve.journal.repair import repair_journal
from pta.serve.journal.rows import (
    ANSWER,
    AnsweredRows,
    BatchSpan,
    Committed,
    Found,
    GroupRows,
    NewRequest,
    NoJournal,
    OperationRow,
    StoredAnswers,
)
from pta.serve.journal.schema import Batch, SampleCounts, SampleRow, SourceRow, StreamRow, value

_BATCHES_PER_READ = 32
_FIND = f"""
    SELECT s.id - b.id, s.digest, s.size, b.first, b.time, b.answers
    FROM samples s {batches.ITS_BATCH} WHERE s.stream = ? AND s.id_hash = ?
"""


class Journal(AbstractContextManager["Journal"]):
    """The journal of a data folder, which this process owns until `close`. Streams go by their numbers."""

    is_durable = True
    _held: ExitStack

    def __init__(self, path: Path, counts: SampleCounts) -> None:
        self.path = path
        self._database = JournalDatabase(path)
        self._known = Registry(self._database, counts)
        self.erased: list[tuple[int, OperationRow]] = []  # at the start, by stream

    @classmethod
    def open(cls, folder: Path, identity: Mapping[str, Any], *, repair: bool = False) -> Self:
        """Open the journal of a folder, or make both.

        Args:
            folder: The data folder, on a local disk.
            identity: What the rows belong to: model, classes, rule. A journal of another one is refused.
            repair: Cut a damaged journal after its last whole group, and go on from there, also where rows are lost.
                The damaged file and the snapshots of rows that are gone are kept in the folder.
        """
        make_private_folder(folder)
        path, lock = folder / FILE_NAME, folder / ".lock"
        with ExitStack() as stack:
            if not stack.enter_context(claimed(lock, wait=False)):
                raise FileInUse(f"{folder} is in use by {holder(lock)}; stop it, or choose another data folder")
            require_plain_data(folder, take_rights=True)
            try:
                if repair and path.exists():
                    repair_journal(path)
                journal = cls(path, _prepare(path, json.loads(json.dumps(identity))))
                stack.callback(journal._database.close)
                stack.callback(journal._known.close)
                journal._finish_erasing()
                journal.checkpoint()  # the log then holds only what this process writes, as `loss.py` expects
            except sqlite3.Error as error:
                raise schema.unreadable(path, error) from None
            journal._held = stack.pop_all()
        return journal

    def close(self) -> None:
        """End the connections and the claim on the folder."""
        with self._database.writing:
            self._database.write_streams()
            self._held.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def read_only(self) -> str | None:
        """Why nothing can be written any more."""
        return self._database.read_only

    def checkpoint(self) -> None:
        """Move the log into the database."""
        self._database.checkpoint()

    # -- reading ----------------------------------------------------------------------------------------------------

    def streams(self) -> dict[str, int]:
        """The streams by name, with their numbers."""
        return {stream.name: id for id, stream in self._known.streams.copy().items() if not stream.is_deleted}

    def last(self, stream: int) -> tuple[int, float]:
        """Sequence number and time of the last row of a stream, be it there or erased."""
        known = self._known.stream(stream)
        return known.last, known.time

    def size(self) -> int:
        """The bytes of the database. Its log comes on top of them."""
        query = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        return int(self._database.read(query)[0][0])

    def bytes_on_disk(self) -> int:
        """The bytes of the files of the database and its log."""
        return sum(file.stat().st_size for file in (self.path, schema.log_of(self.path)) if file.exists())

    def oldest(self, stream: int) -> tuple[int, float]:
        """The last row that was dropped for room, or zeros: the oldest moment that rows can be replayed from."""
        known = self._known.stream(stream)
        return known.dropped, known.dropped_time

    def oldest_stream(self) -> str | None:
        """The name of the stream that has the oldest sample."""
        found = self._database.read("SELECT stream FROM batches ORDER BY id LIMIT 1")
        return self._known.stream(found[0][0]).name if found else None

    def sources(self, stream: int) -> dict[str, int]:
        """How many samples each source of a stream has."""
        counts, held = self._known.counts.sources, self._known.sources.get(stream, {}).copy()
        return {name: count for name, source in held.items() if (count := counts.get(source.id, 0))}

    def samples(self, stream: int) -> int:
        """How many samples a stream has."""
        return self._known.counts.streams.get(self._known.stream(stream).id, 0)

    def first(self, stream: int, source: str) -> int | None:
        """The sequence number of the first sample of a source, which may have been dropped for room."""
        known = self._known.source(stream, source)
        return None if known is None else known.first

    def find(self, stream: int, id_hash: bytes) -> Found | None:
        """What was learned under an id."""
        for start, digest, size, first, time, stored in self._database.read(_FIND, stream, id_hash):
            answers = None if stored is None else np.frombuffer(stored[:-8], ANSWER)[start : start + size]
            sequences = np.arange(first + start, first + start + size)
            places = batches.places_of(digest, size)
            return Found(digest[: batches.DIGEST_BYTES], time, sequences, answers, places)
        return None

    def batch_of(self, stream: int, sequence: int) -> BatchSpan:
        """The batch that a sample was written in."""
        query = (
            "SELECT group_, first, first + span - 1 FROM batches WHERE stream = ? AND first <= ? ORDER BY first DESC"
        )
        return BatchSpan(*self._database.read(f"{query} LIMIT 1", stream, sequence)[0])

    def sources_of(self, stream: int, sequences: Iterable[int]) -> dict[int, str | None]:
        """The sources of those among these rows that are samples and are there."""
        query = f"""
            SELECT o.name FROM batches b JOIN samples s ON s.id = b.id + ?2 - b.first AND ?2 < b.first + b.span
            {batches.ITS_SOURCE} WHERE b.stream = ?1
            AND b.first = (SELECT max(first) FROM batches WHERE stream = ?1 AND first <= ?2)
        """
        found = ((sequence, self._database.read(query, stream, sequence)) for sequence in sequences)
        return {sequence: rows[0][0] for sequence, rows in found if rows}

    def answered(self, stream: int, after: int) -> Iterator[AnsweredRows]:
        """The samples of a stream after a sequence number without their features, batch by batch."""
        start = "SELECT max(first) FROM batches WHERE stream = ? AND first <= ?"
        first = self._database.read(start, stream, after + 1)[0][0] or 0
        next_batch = "SELECT id, first, span, time, answers FROM batches WHERE stream = ? AND first >= ? ORDER BY first"
        columns = "s.id, o.name, s.id_hash, s.digest, s.size"
        samples = f"SELECT {columns} FROM samples s {batches.ITS_SOURCE} WHERE s.id BETWEEN ? AND ?"
        while found := self._database.read(f"{next_batch} LIMIT 1", stream, first):
            ((id, first, span, time, stored),) = found
            if rows := self._database.read(f"{samples} ORDER BY s.id", id, id + span - 1):
                yield batches.answered_rows(id, first, time, stored, rows)
            first += span

    def operations(self, stream: int) -> list[OperationRow]:
        """All operations of a stream, in order."""
        query = "SELECT sequence, time, kind, argument FROM operations WHERE stream = ? ORDER BY sequence"
        rows = self._database.read(query, stream)
        return [OperationRow(sequence, time, kind, json.loads(argument)) for sequence, time, kind, argument in rows]

    def groups(self, stream: int, after: int = 0, until: int = sys.maxsize) -> Iterator[GroupRows]:
        """The samples of a stream after a sequence number, up to another one, group by group.

        Raises:
            UnreadableFile: a row is not as it was written.
        """
        until = min(until, self._known.stream(stream).last)
        names = self._known.source_names  # of all rows up to the last
        start = "SELECT max(first) FROM batches WHERE stream = ? AND first <= ?"
        first = self._database.read(start, stream, after + 1)[0][0] or 0
        piece = f"stream = ? AND first BETWEEN ? AND ? ORDER BY first LIMIT {_BATCHES_PER_READ}"
        while True:
            found = self._database.read_batches(piece, stream, first, until)
            for batch in found:
                if not batch.is_whole():
                    place = batch.place(self._known.stream(stream).name)
                    raise UnreadableFile(f"{self.path} is damaged: {place}; pta journal check lists all damage")
                if rows := [row for row in batch.rows if after < batch.sequence(row) <= until]:
                    yield batches.group_rows(batch, rows, names)
            if len(found) < _BATCHES_PER_READ:
                return
            first = found[-1].first + 1

    def count(self, stream: int, *, source: str | None = None, after: int = 0, until: int = sys.maxsize) -> int:
        """How many samples a stream has after a sequence number, up to another one, of a source or of all."""
        known = None if source is None else self._known.source(stream, source)
        if source is not None and known is None:
            return 0
        query = """
            SELECT total(CASE WHEN erased > 0 OR ?2 IS NOT NULL THEN (
                SELECT count(*) FROM samples s
                WHERE s.id BETWEEN b.id + max(0, ?3 + 1 - first) AND b.id + min(span - 1, ?4 - first)
                AND (?2 IS NULL OR s.source = ?2)
            ) ELSE min(first + span - 1, ?4) - max(first, ?3 + 1) + 1 END)
            FROM batches b WHERE stream = ?1 AND first <= ?4 AND first + span - 1 > ?3
        """
        return int(self._database.read(query, stream, None if known is None else known.id, after, until)[0][0])

    def sequence_at(self, stream: int, time: float) -> int:
        """The last sequence number at a time; 0 before the first, and before what was dropped."""
        query = """
            SELECT max(
                coalesce((SELECT max(first + span - 1) FROM batches WHERE stream = ?1 AND time <= ?2), 0),
                coalesce((SELECT max(sequence) FROM operations WHERE stream = ?1 AND time <= ?2), 0)
            )
        """
        dropped, dropped_time = self.oldest(stream)
        return 0 if time < dropped_time else max(self._database.read(query, stream, time)[0][0], dropped)

    # -- writing ----------------------------------------------------------------------------------------------------

    def create(self, name: str) -> int:
        """A new stream. One that has the name of a deleted stream goes on with its sequence numbers."""
        with self._database.writing:
            streams = self._known.streams
            known = streams.get(self._known.numbers.get(name, 0))
            if known and not known.is_deleted:
                raise InvalidParameter(f"there is a stream named {shown(name)} already")
            used = value(self._database.writer, "SELECT used FROM about")
            new = known or StreamRow(next(reversed(streams), 0) + 1, name, last=used)
            new = new._replace(is_deleted=0, dropped=0, dropped_time=0.0)
            with self._database.transaction() as connection:
                connection.execute(schema.WRITE_STREAM, schema.with_seal(*new))
            self._known.put([new])
        return new.id

    def commit(self, requests: Sequence[NewRequest], answers: StoredAnswers | None = None) -> Committed:
        """Write one group, in one transaction with one fsync, and with it the answers of an earlier group.

        Raises:
            InvalidParameter: an id is there already; nothing was written.
            MachineFailure: the disk refuses; nothing has changed here, and usually nothing can be written any more.
        """
        by_stream: dict[int, list[int]] = {}
        for position, request in enumerate(requests):
            by_stream.setdefault(request.stream, []).append(position)
        firsts = [0] * len(requests)
        known = self._known
        group = list[Batch]()
        sources = dict[tuple[int, str], SourceRow]()
        with self._database.writing:
            now = known.now()
            number = row = known.row + 1
            streams = {stream: known.stream(stream) for stream in by_stream}
            link = known.links["batches"]
            for rest, (stream, positions) in zip(range(len(by_stream))[::-1], by_stream.items(), strict=True):
                first = streams[stream].last + 1
                rows: list[SampleRow] = []
                for position in positions:
                    firsts[position] = first + len(rows)
                    request = requests[position]
                    name = request.source
                    source = None if name is None else known.numbered_source(stream, name, firsts[position], sources)
                    rows += batches.rows_of(request, row + len(rows), source)
                head = (row, stream, first, len(rows), 0, now, number, rest, known.operation)
                group.append(Batch(*head, seal=b"", rows=rows).next(link))
                link = group[-1].link
                row += len(rows)
                last = first + len(rows) - 1
                streams[stream] = streams[stream]._replace(last=last, time=now, row=row - 1, link=link)
            with self._database.transaction() as connection:
                connection.executemany(schema.INSERT_SOURCE, [schema.with_seal(*source) for source in sources.values()])
                connection.executemany(schema.INSERT_SAMPLE, [row for batch in group for row in batch.rows])
                connection.executemany(schema.INSERT_BATCH, [batch.columns() for batch in group])
                if answers is not None:
                    batches.write_answers(connection, answers)
            known.links["batches"] = link
            known.put_sources(sources.values())
            known.add_samples(group)
            known.put(streams.values())
            self._database.add_pages(batches.pages_of(group))
        return Committed(number, now, tuple(firsts))

    def operate(self, stream: int, kind: str, argument: Mapping[str, Any]) -> OperationRow:
        """Write an operation, which gets a sequence number of its own."""
        text = json.dumps(argument, sort_keys=True)
        known = self._known
        with self._database.writing:
            old, now = known.stream(stream), known.now()
            columns = (known.operation + 1, stream, old.last + 1, now, kind, text)
            *_, link, _ = row = schema.operation_columns(columns, known.links["operations"])
            new = old._replace(last=old.last + 1, time=now, link=link)
            with self._database.transaction() as connection:
                connection.execute(schema.INSERT_OPERATION, row)
                if argument.get("erase"):
                    self._database.mark_erasing(1)
            known.links["operations"] = link
            known.put([new])
            known.operation += 1
            self._database.add_pages(8)
        return OperationRow(new.last, now, kind, json.loads(text))

    # -- removing ---------------------------------------------------------------------------------------------------

    def erase(self, stream: int, source: str, until: int) -> int:
        """Remove the samples of a source up to a sequence number from all files, with their labels; says how many.

        After an operation that has `erase` in its argument, the next `open` does it if the process ends before.
        """
        with self._database.writing:
            erased = self._erase(stream, source, until)
            self._database.scrub()
        return erased

    def _erase(self, stream: int, source: str, until: int) -> int:
        known = self._known.source(stream, source)
        if known is None:
            return 0
        with self._database.transaction() as connection:
            erased = batches.erase_samples(connection, known, until)
            batches.erase_labels(connection, known, until)
            self._database.mark_erasing(1)
        self._known.remove_samples(stream, {known.id: erased})
        self._known.read_sources()
        return erased

    def _finish_erasing(self) -> None:
        """Do what a process that has ended did not: erase everything that it was told to, which is `erased`."""
        if value(self._database.writer, "SELECT is_erasing FROM about"):
            for stream in self.streams().values():
                for operation in self.operations(stream):
                    if operation.argument.get("erase"):
                        self._erase(stream, operation.argument["source"], operation.sequence - 1)
                        self.erased.append((stream, operation))
            self._database.scrub()

    def delete(self, stream: int) -> None:
        """Remove a stream with all its rows from all files of the journal."""
        with self._database.writing:
            old = self._known.stream(stream)
            with self._database.transaction() as connection:
                new = batches.delete_stream(connection, old)
                self._database.mark_erasing(1)
            self._known.put([new])
            self._known.counts.streams[stream] = 0
            self._known.read_links()
            self._known.read_sources()
            self._database.scrub()

    def drop_until(self, stream: int, sequence: int) -> int:
        """Remove the samples up to a sequence number, for room; says how many. The caller has a snapshot there.

        A group that goes on after that number stays whole.
        """
        with self._database.writing:
            with self._database.transaction() as connection:
                new, dropped = batches.drop_samples(connection, self._known.stream(stream), sequence)
            self._known.put([new])
            self._known.read_links()
            self._known.remove_samples(stream, dropped)
            self._database.empty_log()
        return sum(dropped.values())


JournalLike = Journal | NoJournal
"""Numbers the rows of each stream, which has the number that `create` gave it."""


def written_identity(folder: Path) -> dict[str, Any] | None:
    """What the journal of a folder belongs to; None if there is none that can be read (`Journal.open` says why)."""
    path = folder / FILE_NAME
    if not path.exists():
        return None
    require_plain_database(path, names=2)
    unreadable = (sqlite3.Error, UnreadableFile, TypeError, ValueError, RecursionError)
    with suppress(*unreadable), closing(schema.connect_to_read(path)) as connection:
        if next(damage_of_rows(connection, "about"), None) is None:
            return dict(json.loads(value(connection, "SELECT identity FROM about")))
    return None


def _prepare(path: Path, identity: Mapping[str, Any]) -> SampleCounts:
    """Make a new journal, or see that the one that is there is whole and belongs to this service; count its samples."""
    log, witnesses, counts = schema.log_of(path), Witnesses.of(path.parent), SampleCounts({}, {})
    if is_damaged(log):
        raise UnreadableFile(f"{log} is damaged in the middle; --repair cuts before the damage")
    if not path.exists():
        if witnesses.count or (path.parent / "streams").exists():
            raise UnreadableFile(f"{path} is gone; restore a backup, or choose another data folder")
        with schema.new_journal(path) as connection:
            text = json.dumps(identity, sort_keys=True)
            connection.execute(schema.INSERT_ABOUT, schema.with_seal(text, 0, 0))
    with closing(schema.connect_to_read(path)) as connection:
        if (problem := next(damage(connection, counts), None)) is not None:
            raise UnreadableFile(
                f"{path} is damaged: {problem}; pta journal check lists all damage, and --repair cuts before it"
            )
        if (problem := next(witnesses.lost(schema.read_streams(connection)), None)) is not None:
            raise UnreadableFile(
                f"{path}: {problem}; restore its log or a backup, or go on without them with --repair, which sets "
                "newer snapshots aside; pta journal check says more"
            )
        found = json.loads(value(connection, "SELECT identity FROM about"))
    for key in {**identity, **found}:
        if found.get(key) != identity.get(key):
            was = f"with {key} {shown(found[key])}" if key in found else f"without {key}"
            now = f"with {shown(identity[key])}" if key in identity else "without it"
            raise StateMismatch(
                f"{path} was written {was}, and is opened {now}; start as before, or choose another data folder"
            )
    return counts
