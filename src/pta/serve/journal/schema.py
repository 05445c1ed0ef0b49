"""The tables of a journal, the seals by which a flipped byte is noticed, and the links by which a lost row is.

A *batch* is what one stream has in one group. Its rows lie side by side in `samples`, from the row whose number is the
id of the batch. So a sample needs no column for its sequence number, group or time, and all tables grow at their end.
There is one row per sample, not one per request: pages would be half empty with requests of 9 kB. A commit of one
sample writes four pages, and a fifth sometimes. Pages of 8 KiB hold seven samples of 512 numbers.

Batches form a chain, and so do operations: the `link` of a row is a checksum of the link before it and of what the row
is. Where rows are removed on purpose, the same transaction writes the link before them into `after` of the next row
that stays. A row that fits neither way shows that others are lost.

The row of a stream says what its last row was when it was written: when the stream is made or deleted, when rows are
dropped, and before the log is moved into the database. What came since follows from its batches and operations. Up to
format 3 it was written with every group, and pages had 16 KiB; such a journal keeps its pages.
"""

import os
import re
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from sqlite3 import Connection
from typing import Any, NamedTuple

from pta.door.plain_files import database_files, sync_folder
from pta.errors import MachineFailure, PtaError, UnreadableFile, family, first_line

FORMAT = 4
_FORMATS = (2, 3, FORMAT)  # all have the same tables; 2 has no labels, and up to 3 the rows of streams are new
PAGE = 8192  # of new journals
_APPLICATION = 0x70746A6C  # "ptjl"
_NUMBERS = struct.Struct("=5q")  # of a sample: id, stream, source, size, length of its touches
_PATIENCE = 60.0  # seconds that a process waits for another's lock, which is held for milliseconds

_SETTINGS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "secure_delete = ON",
    "wal_autocheckpoint = 0",  # a failed checkpoint would look like a failed commit
)

_SCHEMA = """
CREATE TABLE about (
    identity TEXT NOT NULL, is_erasing INTEGER NOT NULL,
    used INTEGER NOT NULL,          -- sequence number that new streams begin after, because a repair saw rows lost
    seal BLOB NOT NULL
);
CREATE TABLE streams (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, is_deleted INTEGER NOT NULL,
    last INTEGER NOT NULL,          -- sequence number, which a deleted stream keeps so that none is used twice
    time REAL NOT NULL,             -- of the last row, in seconds since 1970
    row INTEGER NOT NULL,           -- of `samples`, the last that was ever used
    dropped INTEGER NOT NULL, dropped_time REAL NOT NULL,  -- the last row that was dropped for room
    link BLOB NOT NULL,             -- of its last batch or operation that is kept
    seal BLOB NOT NULL
);
CREATE TABLE sources (
    id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, name TEXT NOT NULL,
    first INTEGER NOT NULL,         -- sequence number, also where that sample was dropped for room
    seal BLOB NOT NULL, UNIQUE (stream, name)
);
CREATE TABLE batches (
    id INTEGER PRIMARY KEY, stream INTEGER NOT NULL,
    first INTEGER NOT NULL,         -- sequence number
    span INTEGER NOT NULL,          -- rows when it was written
    erased INTEGER NOT NULL,        -- rows that are gone since
    time REAL NOT NULL,
    group_ INTEGER NOT NULL,        -- the id of the group's first batch
    rest INTEGER NOT NULL,          -- batches of the group that come after this one
    operation INTEGER NOT NULL,     -- the last that was written before
    seal BLOB NOT NULL,
    answers BLOB,                   -- with a seal of their own; written with the next group
    link BLOB, after BLOB
);
CREATE UNIQUE INDEX batches_by_sequence ON batches (stream, first);
CREATE TABLE samples (
    id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, source INTEGER,
    id_hash BLOB, digest BLOB, size INTEGER,  -- of the request, in its first row; see `batches.places_of`
    touches BLOB NOT NULL, feature BLOB NOT NULL
);
CREATE UNIQUE INDEX samples_by_id ON samples (stream, id_hash) WHERE id_hash IS NOT NULL;
CREATE TABLE operations (
    id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, sequence INTEGER NOT NULL, time REAL NOT NULL,
    kind TEXT NOT NULL, argument TEXT NOT NULL, seal BLOB NOT NULL,
    link BLOB, after BLOB, UNIQUE (stream, sequence)
);
"""
TABLES = {
    name: statement for statement in _SCHEMA.split(";\n") for name in re.findall(r"(?:TABLE|INDEX) (\w+)", statement)
}
"""The statements that make tables and indexes, by name, in order."""


class StreamRow(NamedTuple):
    """A row of `streams`, without its seal."""

    id: int
    name: str
    is_deleted: int = 0
    last: int = 0
    time: float = 0.0
    row: int = 0
    dropped: int = 0
    dropped_time: float = 0.0
    link: bytes = b""


class SourceRow(NamedTuple):
    """A row of `sources`, without its seal."""

    id: int
    stream: int
    name: str
    first: int


class SampleRow(NamedTuple):
    """A row of `samples`."""

    id: int
    stream: int
    source: int | None
    id_hash: bytes | None
    digest: bytes | None
    size: int | None
    touches: bytes
    feature: bytes


class SampleCounts(NamedTuple):
    """How many samples each stream and each source has."""

    streams: dict[int, int]
    sources: dict[int | None, int]


class Batch(NamedTuple):
    """A row of `batches`, without its answers, and its samples."""

    id: int
    stream: int
    first: int
    span: int
    erased: int
    time: float
    group: int
    rest: int
    operation: int
    seal: bytes
    rows: list[SampleRow]
    link: bytes = b""

    def sequence(self, row: SampleRow) -> int:
        """The sequence number of one of its samples."""
        return self.first + row.id - self.id

    def place(self, name: str) -> str:
        """Where it is in the stream of that name, for a message."""
        is_known = isinstance(self.first, int) and isinstance(self.span, int)  # in a damaged row it can be anything
        last = self.first + self.span - 1 if is_known else "?"
        return f"stream {name}, sequences {self.first} to {last} (group {self.group})"

    def is_whole(self) -> bool:
        """Whether everything is as it was written."""
        return self.seal == seal_of_batch(batch_texts(b"", self[:9])[0], self.rows)

    def next(self, before: bytes) -> "Batch":
        """The same with the seal that belongs to it and the link that follows another."""
        sealed, linked = batch_texts(before, self[:9])
        return Batch(*self[:9], seal_of_batch(sealed, self.rows), self.rows, checksum(linked)[:4])

    def columns(self) -> tuple[Any, ...]:
        """The row of `batches`, without answers."""
        return (*self[:10], None, self.link, None)


INSERT_ABOUT = "INSERT INTO about VALUES (?, ?, ?, ?)"
UPDATE_ABOUT = "UPDATE about SET identity = ?, is_erasing = ?, used = ?, seal = ?"
WRITE_STREAM = """
    INSERT INTO streams VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
    is_deleted = excluded.is_deleted, last = excluded.last, time = excluded.time, row = excluded.row,
    dropped = excluded.dropped, dropped_time = excluded.dropped_time, link = excluded.link, seal = excluded.seal
"""
INSERT_SOURCE = "REPLACE INTO sources VALUES (?, ?, ?, ?, ?)"
INSERT_OPERATION = "INSERT INTO operations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_BATCH = "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_SAMPLE = "INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


def checksum(content: bytes) -> bytes:
    """Eight bytes that a flipped one changes."""
    return blake2b(content, digest_size=8).digest()


def seal(*values: object) -> bytes:
    """A checksum of the values of a row."""
    return checksum(repr(values).encode())


def are_answers_whole(batch: int, stored: bytes) -> bool:
    """Whether the stored answers of a batch have the seal that belongs to them."""
    return isinstance(stored, bytes) and stored[-8:] == checksum(repr((batch, stored[:-8])).encode())


def link(before: bytes, *content: object) -> bytes:
    """The next of a chain. 32 bits are enough against loss, and a group of one sample has room for no more."""
    return seal(before, *content)[:4]


def batch_texts(before: bytes, head: tuple[Any, ...]) -> tuple[bytes, bytes]:
    """What the seal of a batch, beside its samples, and its link after another are checksums of, from nine columns.

    Both are the `repr` of a tuple. Numbers that both have are written once, because every start checks every batch.
    """
    id, stream, first, span, erased, time, group, rest, operation = head
    place, when = f"{id!r}, {stream!r}, {first!r}, {span!r}", repr(time)
    sealed = f"({place}, {erased!r}, {when}, {group!r}, {rest!r}, {operation!r})"
    return sealed.encode(), f"({before!r}, {place}, {when})".encode()


def seal_of_batch(text: bytes, rows: Iterable[tuple[Any, ...]]) -> bytes:
    """The seal of a batch and its rows of `samples`; none if a value is of a type that is never written."""
    numbers, hashes, digests, touches, features = [text], [], [], [], []
    try:
        for id, stream, source, id_hash, digest, size, touched, feature in rows:
            numbers.append(_NUMBERS.pack(id, stream, source or 0, size or 0, len(touched)))
            if id_hash is not None:
                hashes.append(id_hash)
                digests.append(digest)
            touches.append(touched)
            features.append(feature)
        return checksum(b"".join(numbers + hashes + digests + touches + features))
    except (TypeError, struct.error):
        return b""


def with_seal(*values: Any) -> tuple[Any, ...]:
    """A row with its seal."""
    return *values, seal(*values)


def operation_columns(columns: tuple[Any, ...], before: bytes) -> tuple[Any, ...]:
    """A row of `operations`, given without its seal, as the next of a chain."""
    sealed = seal(*columns)
    return *columns, sealed, link(before, sealed), None


def connect(path: Path) -> Connection:
    """A connection to a journal, which becomes one of this format; any other file is left as it is."""
    connection = _connect(path, "mode=rw")
    _require_format(connection, path)
    for setting in _SETTINGS:
        connection.execute(f"PRAGMA {setting}")
    if value(connection, "PRAGMA user_version") != FORMAT:
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    return connection


def connect_to_read(path: Path) -> Connection:
    """A connection that changes nothing: the last other one to close would move the log into the database."""
    is_in_use = log_of(path).exists()
    connection = _connect(path, "mode=ro" if is_in_use else "mode=ro&immutable=1")  # which leaves no empty log
    _require_format(connection, path)
    return connection


def log_of(database: Path) -> Path:
    """The write-ahead log of a database."""
    return database.with_name(f"{database.name}-wal")


def _connect(path: Path, how: str) -> Connection:
    place = f"{path.absolute().as_uri()}?{how}"
    return sqlite3.connect(place, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)


def remove_database(path: Path) -> None:
    """Remove an unfinished file and those that SQLite writes beside it, or links of these names."""
    for file in database_files(path):
        file.unlink(missing_ok=True)


@contextmanager
def new_journal(path: Path) -> Iterator[Connection]:
    """A journal without rows, to be filled; it comes to its place when the block has ended and it is on the disk."""
    part = path.with_name(f"{path.name}.new")
    remove_database(part)
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # its log gets the same rights
    with closing(_connect(part, "mode=rw")) as connection:
        for setting in (f"page_size = {PAGE}", "auto_vacuum = INCREMENTAL", *_SETTINGS):
            connection.execute(f"PRAGMA {setting}")
        connection.execute("BEGIN")
        for statement in TABLES.values():
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        yield connection
        connection.execute("COMMIT")
    part.replace(path)
    sync_folder(path.parent)


def _require_format(connection: Connection, path: Path) -> None:
    try:
        if value(connection, "PRAGMA application_id") != _APPLICATION:
            raise UnreadableFile(
                f"{path} is not a journal of pta (truncated?); restore a backup, or choose another data folder"
            )
        if (found := value(connection, "PRAGMA user_version")) not in _FORMATS:
            raise UnreadableFile(f"{path} has format {found}, and this pta reads format {FORMAT}; install a newer pta")
    except BaseException:
        connection.close()
        raise


def value(connection: Connection, query: str, *parameters: object) -> Any:
    """The first column of the first row."""
    with closing(connection.execute(query, parameters)) as cursor:
        row = cursor.fetchone()
    return None if row is None else row[0]


def read_batches(connection: Connection, where: str, *parameters: object) -> Iterator[Batch]:
    """The batches that fulfil a condition, which also gives their order, with their samples."""
    query = f"""
        SELECT b.id, b.stream, b.first, b.span, b.erased, b.time, b.group_, b.rest, b.operation, b.seal, s.*
        FROM (SELECT * FROM batches WHERE {where}) b LEFT JOIN samples s ON s.id BETWEEN b.id AND b.id + b.span - 1
    """
    with closing(connection.execute(query, parameters)) as cursor:
        for _, found in groupby(cursor, itemgetter(0)):
            rows = list(found)
            samples = [SampleRow._make(row[10:]) for row in rows if row[10] is not None]
            yield Batch(*[*rows[0][:10], samples])


def read_streams(connection: Connection) -> list[StreamRow]:
    """All streams, also those that are deleted, as their last batches and operations say."""
    return [newest for _, newest in stored_and_newest_streams(connection)]


def stored_and_newest_streams(connection: Connection) -> Iterator[tuple[StreamRow, StreamRow]]:
    """The streams as their rows say, and as their last batches and operations say."""
    query = """
        SELECT s.*, b.first + span - 1, b.time, b.id + span - 1, b.link, sequence, o.time, 0, o.link FROM streams s
        LEFT JOIN batches b ON b.stream = s.id AND b.first = (SELECT max(first) FROM batches WHERE stream = s.id)
        LEFT JOIN operations o
            ON o.stream = s.id AND sequence = (SELECT max(sequence) FROM operations WHERE stream = s.id)
        ORDER BY s.id
    """
    for row in connection.execute(query):
        stored = StreamRow(*row[:9])
        yield stored, _newest(stored, row[10:14], row[14:])


def _newest(stored: StreamRow, *ends: tuple[Any, ...]) -> StreamRow:
    """A stream with its last batch and its last operation, each (sequence, time, row, link)."""
    known = [end for end in ends if end[0] is not None]
    lasts, times, rows, _ = zip((stored.last, stored.time, stored.row, b""), *known, strict=True)
    last_link = max(known)[3] if known else b""
    return stored._replace(last=max(lasts), time=max(times), row=max(rows), link=last_link)


def unreadable(path: Path, error: sqlite3.Error) -> PtaError:
    """One line about what SQLite says of a file."""
    if family(error) is MachineFailure:
        return MachineFailure(f"{path} cannot be used: {first_line(error)}")
    return UnreadableFile(f"{path} cannot be read as a journal (truncated or damaged?): {first_line(error)}")
