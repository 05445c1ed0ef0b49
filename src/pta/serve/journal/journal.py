"""The journal of a data folder: every learned sample and every operation, on the disk before it is acknowledged.

It is read in `reader.py` and added to in `writer.py`. Here it is opened, closed, and rows are removed.
"""

import json
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from pta.door.locks import claimed, holder
from pta.errors import FileInUse, MachineFailure, StateMismatch, UnreadableFile, shown
from pta.serve.journal.chain import add_chain, last_link, unchain
from pta.serve.journal.check import damage
from pta.serve.journal.private import keep_data_private, make_private_folder
from pta.serve.journal.reader import ITS_BATCH
from pta.serve.journal.repair import repair_journal
from pta.serve.journal.rows import ANSWER
from pta.serve.journal.schema import (
    FILE_NAME,
    INSERT_ABOUT,
    INSERT_SOURCE,
    INSERT_STREAM,
    SET_ASIDE,
    Batch,
    about_columns,
    connect_to_read,
    new_journal,
    read_batches,
    read_streams,
    require_plain_data,
    unreadable,
    value,
)
from pta.serve.journal.tail import Witnesses
from pta.serve.journal.wal import is_damaged, log_of
from pta.serve.journal.writer import JournalWriter

_OF_A_REPAIR = (f"{FILE_NAME}.damaged", f"{FILE_NAME}.new")


class Journal(JournalWriter):
    """The journal of a data folder, which this process owns until `close`."""

    _held: ExitStack

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
            require_plain_data(folder)
            keep_data_private(folder)
            try:
                if repair and path.exists():
                    repair_journal(path)
                _prepare(path, json.loads(json.dumps(identity)))
                journal = cls(path)
                stack.callback(journal._disconnect)
                journal._begin()
            except sqlite3.Error as error:
                raise unreadable(path, error) from None
            journal._held = stack.pop_all()
        return journal

    def _begin(self) -> None:
        if value(self._writer, "SELECT is_erasing FROM about"):  # a process ended before it had erased everything
            for stream in self.streams().values():
                for operation in self.operations(stream):
                    if operation.argument.get("erase"):
                        self._delete_source(stream, operation.argument["source"], operation.sequence - 1)
            self._scrub()
        self.checkpoint()  # the log then holds only what this process writes, as `wal.py` expects

    def _disconnect(self) -> None:
        self._count.close()
        self._reader.close()
        self._writer.close()

    def close(self) -> None:
        """End the connections and the claim on the folder."""
        with self._writing, self._reading:
            self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def erase(self, stream: int, source: str, until: int) -> int:
        """Remove the samples of a source up to a sequence number from all files of the journal; says how many.

        After an operation that has `erase` in its argument, the next `open` does it if the process ends before.
        """
        with self._writing:
            self._stream(stream)
            erased = self._delete_source(stream, source, until)
            self._scrub()
        return erased

    def _delete_source(self, stream: int, source: str, until: int) -> int:
        known = self._sources.get((stream, source))
        if known is None:
            return 0
        theirs = f"FROM samples s {ITS_BATCH} WHERE s.source = ?"
        erased = 0
        with self._transaction():
            ids = self._writer.execute(f"SELECT DISTINCT b.id {theirs} AND b.first <= ?", (known.id, until)).fetchall()
            for (id,) in ids:
                (batch,) = read_batches(self._writer, "id = ?", id)
                gone = {row.id for row in batch.rows if row.source == known.id and batch.sequence(row) <= until}
                self._delete_rows(batch, gone)
                erased += len(gone)
            first = value(self._writer, f"SELECT b.first + s.id - b.id {theirs} ORDER BY s.id LIMIT 1", known.id)
            if first is None:
                self._writer.execute("DELETE FROM sources WHERE id = ?", (known.id,))
            else:
                self._writer.execute(INSERT_SOURCE, replace(known, first=first).columns())
            self._mark_erasing(1)
        self._read_sources()
        return erased

    def _delete_rows(self, batch: Batch, gone: set[int]) -> None:
        self._writer.executemany("DELETE FROM samples WHERE id = ?", [(id,) for id in gone])
        rows = [row for row in batch.rows if row.id not in gone]
        new = replace(batch, erased=batch.erased + len(gone), rows=rows).sealed()
        self._writer.execute("UPDATE batches SET erased = ?, seal = ? WHERE id = ?", (new.erased, new.seal, new.id))
        stored = value(self._writer, "SELECT answers FROM batches WHERE id = ?", batch.id)
        if not rows:
            self._writer.execute("UPDATE batches SET answers = NULL WHERE id = ?", (batch.id,))
        elif stored is not None:
            answers = np.frombuffer(stored[:-8], ANSWER).copy()
            answers[[id - batch.id for id in gone]] = 0
            self._put_answers(batch.id, answers.tobytes())

    def delete(self, stream: int) -> None:
        """Remove a stream with all its rows from all files of the journal."""
        with self._writing:
            new = replace(self._stream(stream), is_deleted=1, link=b"")
            with self._transaction():
                for table in ("batches", "operations"):
                    unchain(self._writer, table, "stream = ?", stream)
                for table in ("samples", "batches", "operations", "sources"):
                    self._writer.execute(f"DELETE FROM {table} WHERE stream = ?", (stream,))
                self._writer.execute(INSERT_STREAM, new.columns())
                self._mark_erasing(1)
            self._take_note({stream: new})
            self._read_links()
            self._read_sources()
            self._scrub()

    def _scrub(self) -> None:
        """Write the file anew without what was deleted, empty the log, and remove what a repair has left.

        `secure_delete` alone is not enough: where SQLite moves rows between pages, it can leave a copy in the unused
        part of a page, which it no longer knows of when the row is deleted later.
        """
        try:
            self._writer.execute("VACUUM")
            with self._reading:
                is_busy = value(self._writer, "PRAGMA wal_checkpoint(TRUNCATE)")
            for left in self.path.parent.glob(f"{FILE_NAME}.*"):
                if left.name.startswith(_OF_A_REPAIR) and not left.is_dir():
                    left.unlink()
            if (set_aside := self.path.parent / SET_ASIDE).is_dir():
                shutil.rmtree(set_aside)
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
        with self._transaction():
            self._mark_erasing(0)

    def drop_until(self, stream: int, sequence: int) -> int:
        """Remove the samples up to a sequence number, for room; says how many. The caller has a snapshot there.

        A group that goes on after that number stays whole.
        """
        across = "SELECT first - 1 FROM batches WHERE stream = ? AND first <= ? AND first + span - 1 > ?"
        ids = """
            SELECT s.id FROM batches b JOIN samples s ON s.id BETWEEN b.id AND b.id + span - 1
            WHERE b.stream = ? AND first <= ?
        """
        last_time = """
            SELECT max(time) FROM (
                SELECT time FROM batches WHERE stream = ? AND first <= ?
                UNION ALL SELECT time FROM operations WHERE stream = ? AND sequence <= ?
            )
        """
        with self._writing:
            known = self._stream(stream)
            end = value(self._writer, across, stream, sequence, sequence)
            end = min(sequence, known.last) if end is None else end
            at = value(self._writer, last_time, stream, end, stream, end)
            if at is None:
                return 0
            counts = f"SELECT source, count(*) FROM samples WHERE id IN ({ids}) GROUP BY source"
            dropped = dict(self._writer.execute(counts, (stream, end)).fetchall())
            with self._transaction():
                self._writer.execute(f"DELETE FROM samples WHERE id IN ({ids})", (stream, end))
                unchain(self._writer, "batches", "stream = ? AND first <= ?", stream, end)
                self._writer.execute("DELETE FROM batches WHERE stream = ? AND first <= ?", (stream, end))
                new = replace(known, dropped=end, dropped_time=at, link=last_link(self._writer, stream))
                self._writer.execute(INSERT_STREAM, new.columns())
            self._take_note({stream: new})
            self._read_links()
            self._counts.subtract(dropped)
            self._empty_log("PASSIVE")
        return sum(dropped.values())


def _prepare(path: Path, identity: Mapping[str, Any]) -> None:
    """Make a new journal, or see that the one that is there is whole and belongs to the same service."""
    log = log_of(path)
    if is_damaged(log):
        raise UnreadableFile(f"{log} is damaged in the middle; --repair cuts before the damage")
    if not path.exists():
        if (path.parent / "streams").exists():
            raise UnreadableFile(f"{path} is gone; restore a backup, or choose another data folder")
        with new_journal(path) as connection:
            text = json.dumps(identity, sort_keys=True)
            connection.execute(INSERT_ABOUT, about_columns(text, 0, 0))
    witnesses = Witnesses.of(path.parent)
    with closing(connect_to_read(path)) as connection:
        if (problem := next(damage(connection), None)) is not None:
            raise UnreadableFile(
                f"{path} is damaged: {problem}; pta journal check lists all damage, and --repair cuts before it"
            )
        if (problem := next(witnesses.lost(read_streams(connection)), None)) is not None:
            raise UnreadableFile(
                f"{path}: {problem}; restore its log or a backup, or go on without them with --repair, which sets "
                "newer snapshots aside; pta journal check says more"
            )
        found = json.loads(value(connection, "SELECT identity FROM about"))
    for key in {**identity, **found}:
        if found.get(key) != identity.get(key):
            raise StateMismatch(
                f"{path} was written with {key} {shown(found.get(key))}, and is opened with "
                f"{shown(identity.get(key))}; start as before, or choose another data folder"
            )
    add_chain(path)
