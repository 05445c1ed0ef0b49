"""The two connections of a journal, one that reads and one that writes, and what it knows without reading the disk.

What a transaction has written is on the disk. What was refused may be there or not after the journal is opened again:
SQLite can find a transaction whose fsync failed.
"""

import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from pta.errors import FileInUse, InvalidParameter, MachineFailure, first_line
from pta.serve.journal.data_folder import remove_leftovers
from pta.serve.journal.loss import CountFile, count_of
from pta.serve.journal.schema import (
    UPDATE_ABOUT,
    Batch,
    SourceRow,
    StreamRow,
    connect,
    read_batches,
    read_streams,
    value,
    with_seal,
)
from pta.serve.open_files import is_out_of_files

_PAGES_IN_LOG = 4000  # before a checkpoint: 64 MB


class JournalDatabase:
    """Reads are short, so that none keeps SQLite from emptying the write-ahead log."""

    read_only: str | None = None
    """Why nothing can be written any more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reader, self.writer = connect(path), connect(path)
        self.writing, self._reading = Lock(), Lock()
        self._pages = 0  # in the log, at most

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
            return list(read_batches(self.reader, where, *parameters))

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
        if not is_out_of_files(error):
            self.read_only = why
        return why

    def mark_erasing(self, is_erasing: int) -> None:
        """Note in a transaction that bytes of deleted rows may be left in the files, or that none are."""
        identity, used = self.writer.execute("SELECT identity, used FROM about").fetchone()
        self.writer.execute(UPDATE_ABOUT, with_seal(identity, is_erasing, used))

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
        """Give free pages back and move the log into the database.

        What is in the log is safe, so that a failure here can end writing, but refuses nothing that is written.
        """
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
        try:
            self.writer.execute("VACUUM")
            with self._reading:
                is_busy = value(self.writer, "PRAGMA wal_checkpoint(TRUNCATE)")
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
    """The rows of streams and sources, the samples per source, the ends of both chains, the last operation."""

    def __init__(self, database: JournalDatabase) -> None:
        self._database = database
        self.streams = {stream.id: stream for stream in read_streams(database.reader)}
        last = "SELECT max(coalesce(max(operation), 0), (SELECT coalesce(max(id), 0) FROM operations)) FROM batches"
        self.operation: int = value(database.writer, last)
        self.read_links()
        self.read_sources()
        self._count = CountFile(database.path.parent)
        self.put({})

    def read_links(self) -> None:
        """The ends of both chains."""
        self.links = {
            table: value(self._database.writer, f"SELECT link FROM {table} ORDER BY id DESC LIMIT 1") or b""
            for table in ("batches", "operations")
        }

    def read_sources(self) -> None:
        """The sources, and how many samples they have."""
        rows = self._database.read("SELECT * FROM sources")
        counts = self._database.read("SELECT source, count(*) FROM samples GROUP BY source")
        self.sources = {(row[1], row[2]): SourceRow(*row[:-1]) for row in rows}
        self.counts: Counter[int | None] = Counter(dict(counts))

    def stream(self, number: int) -> StreamRow:
        """A stream that is not deleted."""
        known = self.streams.get(number)
        if known is None or known.is_deleted:
            raise InvalidParameter(f"the journal has no stream {number}")
        return known

    def put(self, streams: Mapping[int, StreamRow]) -> None:
        """These rows of streams are written."""
        self.streams = {**self.streams, **streams}
        self._count.write(count_of(self.streams.values()))

    def now(self) -> float:
        """The time, which never goes back, whatever the clock does."""
        return max(time.time(), max((stream.time for stream in self.streams.values()), default=0.0))

    def source(self, stream: int, name: str, sequence: int, new: dict[tuple[int, str], SourceRow]) -> int:
        """The number of a source, which is added to those that are `new` if it is not known."""
        key = stream, name
        known = self.sources.get(key) or new.get(key)
        if known is None:
            free = 1 + max((source.id for source in self.sources.values()), default=0) + len(new)
            known = new[key] = SourceRow(free, *key, sequence)
        return known.id

    def close(self) -> None:
        """End writing the count."""
        self._count.close()
