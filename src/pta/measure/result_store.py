"""ResultStore: a cache of results in SQLite, shared by processes, so that nothing is measured twice.

A result is stored under the sha256 of everything it depends on. A process claims a result before it measures it. The
claim ends with the process, however that ends. A second process waits, or measures something else meanwhile.
"""

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

from pta.door.locks import claimed
from pta.door.plain_files import make_own_folder, require_plain_database
from pta.errors import InvalidParameter, family, first_line
from pta.measure.record import Record

_SCHEMA = """
CREATE TABLE IF NOT EXISTS results (
    key TEXT PRIMARY KEY,       -- sha256 of inputs
    inputs TEXT NOT NULL,       -- JSON: everything that the result depends on
    record TEXT NOT NULL,       -- JSON: the result
    made REAL NOT NULL          -- seconds since 1970
)
"""
_PATIENCE = 60  # seconds that a process waits for another's transaction, which takes milliseconds


def result_key(inputs: Mapping[str, Any]) -> str:
    """The key of a result.

    >>> result_key({"method": "pta", "seed": 1}) == result_key({"seed": 1, "method": "pta"})
    True
    """
    return hashlib.sha256(_json(inputs, sort_keys=True).encode()).hexdigest()


class ResultStore:
    """The results in a folder, which is made if it is not there."""

    def __init__(self, folder: Path) -> None:
        self._locks = folder / "claims"
        make_own_folder(self._locks)
        self._path = folder / "results.sqlite"
        require_plain_database(self._path)
        with self._connected() as connection:
            kept = set(connection.execute("SELECT name, type FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"))
            if kept - {("results", "table")}:
                names = ", ".join(sorted(name for name, _ in kept))
                raise sqlite3.DatabaseError(f"it belongs to another program, which keeps {names}")
            connection.execute(_SCHEMA)
            connection.execute("SELECT key, inputs, record, made FROM results LIMIT 0")

    def get(self, key: str) -> Record | None:
        """The result of a key, if it is there."""
        with self._connected() as connection:
            row = connection.execute("SELECT record FROM results WHERE key = ?", (key,)).fetchone()
            if row is None:
                return None
            record = json.loads(row[0])
            if not isinstance(record, dict):
                raise sqlite3.DatabaseError("a record is damaged")
            return record

    def put(self, inputs: Mapping[str, Any], record: Record) -> Record:
        """Store a result and return it as `get` will; an existing one with the same inputs is replaced."""
        row = (result_key(inputs), _json(inputs, sort_keys=True), _json(record), time.time())
        with self._connected() as connection:
            connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", row)
        return json.loads(row[2])

    def __len__(self) -> int:
        with self._connected() as connection:
            return int(connection.execute("SELECT COUNT(*) FROM results").fetchone()[0])

    def claim(self, key: str, *, wait: bool) -> AbstractContextManager[bool]:
        """Claim a key during the block; without `wait`, yields False if another process has it."""
        return claimed(self._locks / key, wait=wait)

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """One transaction, over before anything is computed, so that nobody waits long."""
        try:
            with closing(sqlite3.connect(self._path, timeout=_PATIENCE)) as connection, connection:
                yield connection
        except (sqlite3.Error, ValueError, TypeError, RecursionError) as error:  # of SQLite, and of damaged JSON
            raise family(error)(
                f"the results in {self._path} cannot be used: {error}; choose another folder or move the file away"
            ) from None


def _json(content: Mapping[str, Any], *, sort_keys: bool = False) -> str:
    try:
        return json.dumps(content, sort_keys=sort_keys, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidParameter(f"a result cannot be kept as JSON: {first_line(error)}") from None
