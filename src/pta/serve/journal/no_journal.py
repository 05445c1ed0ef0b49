"""JournalLike: what a service needs of a journal; and NoJournal, for a service that keeps nothing."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pta.serve.journal.rows import Committed, Found, NewRequest, OperationRow, StoredAnswers


class JournalLike(Protocol):
    """Numbers the rows of streams. Streams go by the numbers that `create` gives."""

    is_durable: bool

    @property
    def read_only(self) -> str | None:
        """Why nothing can be written any more."""

    def create(self, name: str, prepare: Callable[[int], object]) -> int:
        """A new stream; `prepare` makes what else has to be there, and if it fails, there is no stream."""

    def last(self, stream: int) -> tuple[int, float]:
        """Sequence number and time of the last row of a stream."""

    def find(self, stream: int, id_hash: bytes) -> Found | None:
        """What was learned under an id."""

    def commit(self, requests: Sequence[NewRequest], answers: StoredAnswers | None = None) -> Committed:
        """Write one group, and with it the answers of an earlier group."""

    def operate(self, stream: int, kind: str, argument: Mapping[str, Any]) -> OperationRow:
        """Write an operation, which gets a sequence number of its own."""

    def delete(self, stream: int) -> None:
        """Remove a stream with all its rows."""

    def close(self) -> None:
        """End writing."""


class NoJournal:
    """Counts rows as a journal does, and writes none."""

    is_durable = False
    read_only: str | None = None

    def __init__(self) -> None:
        self._group = 0
        self._last: dict[int, int] = {}

    def create(self, name: str, prepare: Callable[[int], object]) -> int:
        """A number for a new stream."""
        number = len(self._last) + 1
        prepare(number)
        self._last[number] = 0
        return number

    def last(self, stream: int) -> tuple[int, float]:
        """Sequence number of the last row of a stream, and the time."""
        return self._last[stream], time.time()

    def find(self, stream: int, id_hash: bytes) -> None:
        """Nothing is found."""

    def commit(self, requests: Sequence[NewRequest], answers: StoredAnswers | None = None) -> Committed:
        """Number the rows of a group."""
        self._group += 1
        firsts = tuple(self._next(request.stream, len(request.features)) for request in requests)
        return Committed(self._group, time.time(), firsts)

    def operate(self, stream: int, kind: str, argument: Mapping[str, Any]) -> OperationRow:
        """Number an operation."""
        return OperationRow(self._next(stream, 1), time.time(), kind, argument)

    def delete(self, stream: int) -> None:
        """There is nothing to erase."""

    def close(self) -> None:
        """There is nothing to close."""

    def _next(self, stream: int, count: int) -> int:
        first = self._last[stream] + 1
        self._last[stream] += count
        return first
