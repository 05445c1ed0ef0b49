"""The two connections of a journal, one that reads and one that writes, and what it knows without reading the disk.

What a transaction has written is on the disk. What was refused may be there or not after the journal is opened again:
SQLite can find a transaction whose fsync failed.
"""

import logging
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from pta.errors import FileInUse, InvalidParameter, MachineFailure, first_line
from pta.serve.journal import schema
from pta.serve.journal.data_folder import remove_leftovers
from pta.serve.journal.loss import CountFile, count_of
from pta.serve.journal.schema import Batch, SampleCounts, SourceRow, StreamRow
from pta.serve.open_files import is_out_of_files

_PAGES_IN_LOG = 4000  # before a checkpoint: 32 MB
_log = logging.getLogger("pta.serve")


class JournalDatabase:
    """Reads are short, so that none keeps SQLite from emptying the write-ahead log."""

    read_only: str | None = None
    """Why nothing can be written any more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reader, self.writer = schema.connect(path), schema.connect(path)
        self.writing, self._reading = Lock(), Lock()
        self._pages = 0  # in the log, at most
        self.newer_streams: dict[int, StreamRow] = {}  # than their rows on the disk

    def close(self) -> None:
        """End the connections."""
        with self._reading:
            self.reader.close()
            self.writer.close()

    def read(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """The rows that a query finds."""
        with self._reading:
            return self.reader.execute(query, parameters).fetchall()

    def read_batches(self, where: str, *parameters: object) -> list[Batch]:
        """The batches that fulfil a condition, which also gives their order, with their samples."""
        with self._reading:
            return list(schema.read_batches(self.reader, where, *parameters))

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; what the disk refuses ends all writing. The caller holds `writing`."""
        if self.read_only is not None:
            raise MachineFailure(f"the journal is read-only until the service is restarted: {self.read_only}")
        try:
            self.writer.execute("BEGIN IMMEDIATE")
            yield self.writer
            self.writer.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):
                if self.writer.in_transaction:
                    self.writer.execute("ROLLBACK")
            if isinstance(error, sqlite3.IntegrityError):
                raise InvalidParameter("a request with this id was learned before; nothing was written") from None
            if not isinstance(error, sqlite3.Error):
                raise
            why = self._failed(error)
            for_good = "try again soon" if self.read_only is None else "it is read-only until the service is restarted"
            raise MachineFailure(f"the journal cannot be written ({why}); {for_good}") from None

    def _failed(self, error: Exception) -> str:
        """Why something failed; it ends all writing, unless a temporary file could not be opened."""
        why = first_line(error)
        if not is_out_of_files(error) and self.read_only is None:
            self.read_only = why
            _log.error("the journal is read-only until the service is restarted: %s", why)
        return why

    def write_streams(self) -> None:
        """Bring the rows of streams up to date; where the disk refuses, they stay as they are."""
        if self.newer_streams:
            with suppress(MachineFailure):
                with self.transaction() as connection:
                    rows = [schema.with_seal(*stream) for stream in self.newer_streams.values()]
                    connection.executemany(schema.WRITE_STREAM, rows)
                self.newer_streams = {}

    def mark_erasing(self, is_erasing: int) -> None:
        """Note in a transaction that bytes of deleted rows may be left in the files, or that none are."""
        identity, used = self.writer.execute("SELECT identity, used FROM about").fetchone()
        self.writer.execute(schema.UPDATE_ABOUT, schema.with_seal(identity, is_erasing, used))

    def add_pages(self, count: int) -> None:
        """So many pages were added to the log, which is emptied when it is long."""
        self._pages += count
        if self._pages > _PAGES_IN_LOG:
            self.empty_log()

    def checkpoint(self) -> None:
        """Move all of the log into the database."""
        with self.writing, self._reading:
            self.empty_log("TRUNCATE")

    def empty_log(self, mode: str = "PASSIVE") -> None:
        """Bring the rows of streams up to date, give free pages back and move the log into the database.

        What is in the log is safe, so that a failure here can end writing, but refuses nothing that is written.
        """
        self.write_streams()
        try:
            self.writer.executescript(f"PRAGMA incremental_vacuum; PRAGMA wal_checkpoint({mode});")
            self._pages = 0
        except sqlite3.Error as error:
            self._failed(error)

    def scrub(self) -> None:
        """Write the file anew without what was deleted, empty the log, and remove what a repair has left.

        `secure_delete` alone is not enough: where SQLite moves rows between pages, it can leave a copy in the unused
        part of a page, which it no longer knows of when the row is deleted later.
        """
        self.write_streams()
        try:
            self.writer.execute("VACUUM")
            with self._reading:
                is_busy = schema.value(self.writer, "PRAGMA wal_checkpoint(TRUNCATE)")
            remove_leftovers(self.path.parent)
        except (sqlite3.Error, OSError) as error:
            raise MachineFailure(
                f"the rows are deleted, but their bytes may still be in {self.path} ({self._failed(error)}); "
                "restart the service to erase them"
            ) from None
        if is_busy:
            raise FileInUse(
                f"the rows are deleted, but another process reads {self.path}, so that their bytes are still in its "
                "log; end it, and restart the service to erase them"
            )
        with self.transaction():
            self.mark_erasing(0)


class Registry:
    """The streams, the sources, the samples of each, the ends of both chains, and the last row, time and operation.

    One thread at a time changes it. Others look up single entries, and copy what they go through.
    """

    def __init__(self, database: JournalDatabase, counts: SampleCounts) -> None:
        self._database = database
        self.counts = counts
        streams = list(schema.stored_and_newest_streams(database.reader))
        self.streams = {newest.id: newest for _, newest in streams}
        database.newer_streams = {newest.id: newest for stored, newest in streams if newest != stored}
        self.numbers = {stream.name: stream.id for stream in self.streams.values()}  # also of deleted ones
        self.row = max((stream.row for stream in self.streams.values()), default=0)
        self._time = max((stream.time for stream in self.streams.values()), default=0.0)
        self._written = count_of(self.streams.values())
        queries = ("SELECT operation FROM batches ORDER BY id DESC LIMIT 1", "SELECT max(id) FROM operations")
        self.operation: int = max(schema.value(database.writer, query) or 0 for query in queries)
        self.read_links()
        self.read_sources()
        self._last_source = max(self.source_names, default=0)
        self._count = CountFile(database.path.parent)
        self._count.write(self._written)

    def read_links(self) -> None:
        """The ends of both chains."""
        self.links = {
            table: schema.value(self._database.writer, f"SELECT link FROM {table} ORDER BY id DESC LIMIT 1") or b""
            for table in ("batches", "operations")
        }

    def read_sources(self) -> None:
        """The sources of each stream, and the names of all."""
        rows = [SourceRow(*row[:-1]) for row in self._database.read("SELECT * FROM sources")]
        self.source_names = {source.id: source.name for source in rows}
        sources = dict[int, dict[str, SourceRow]]()
        for source in rows:
            sources.setdefault(source.stream, {})[source.name] = source
        self.sources = sources

    def stream(self, number: int) -> StreamRow:
        """A stream that is not deleted."""
        known = self.streams.get(number)
        if known is None or known.is_deleted:
            raise InvalidParameter(f"the journal has no stream {number}")
        return known

    def source(self, stream: int, name: str) -> SourceRow | None:
        """A source by its name."""
        return self.sources.get(stream, {}).get(name)

    def put(self, streams: Iterable[StreamRow]) -> None:
        """These streams have new rows on the disk."""
        for new in streams:
            old = self.streams.get(new.id)
            self._written += 1 + new.last - (0 if old is None else 1 + old.last)
            self.row, self._time = max(self.row, new.row), max(self._time, new.time)
            self.streams[new.id] = self._database.newer_streams[new.id] = new
            self.numbers[new.name] = new.id
        self._count.write(self._written)

    def now(self) -> float:
        """The time, which never goes back, whatever the clock does."""
        return max(time.time(), self._time)

    def numbered_source(self, stream: int, name: str, sequence: int, new: dict[tuple[int, str], SourceRow]) -> int:
        """The number of a source, which is added to those that are `new` if it is not known."""
        known = self.source(stream, name) or new.get((stream, name))
        if known is None:
            known = new[stream, name] = SourceRow(self._last_source + len(new) + 1, stream, name, sequence)
        return known.id

    def put_sources(self, new: Iterable[SourceRow]) -> None:
        """These sources are written."""
        for source in new:
            self._last_source = max(self._last_source, source.id)
            self.source_names[source.id] = source.name
            self.sources.setdefault(source.stream, {})[source.name] = source

    def add_samples(self, group: Iterable[Batch]) -> None:
        """The samples of a group are written."""
        for batch in group:
            self.counts.streams[batch.stream] = self.counts.streams.get(batch.stream, 0) + batch.span
            for row in batch.rows:
                self.counts.sources[row.source] = self.counts.sources.get(row.source, 0) + 1

    def remove_samples(self, stream: int, removed: Mapping[int | None, int]) -> None:
        """So many samples of each source are gone."""
        for source, count in removed.items():
            self.counts.streams[stream] -= count
            self.counts.sources[source] -= count

    def close(self) -> None:
        """End writing the count."""
        self._count.close()
