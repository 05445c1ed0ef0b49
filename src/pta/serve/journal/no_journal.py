"""NoJournal: sequence numbers for a service that keeps nothing."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pta.serve.journal.rows import Committed, NewRequest, Operation, StoredAnswers


class NoJournal:
    """Counts rows as a journal does, and writes none."""

    read_only: str | None = None

    def __init__(self) -> None:
        self._group = 0
        self._last: dict[int, int] = {}

    def create(self, name: str, prepare: Callable[[int], object] = lambda number: None) -> int:
        """A number for a new stream."""
        number = len(self._last) + 1
        prepare(number)
        self._last[number] = 0
        return number

    def last(self, stream: int) -> tuple[int, float]:
        """Sequence number of the last row of a stream, and the time."""
        return self._last[stream], time.time()

    def delete(self, stream: int) -> None:
        """There is nothing to erase."""

    def commit(self, requests: Sequence[NewRequest], answers: StoredAnswers | None = None) -> Committed:
        """Number the rows of a group."""
        self._group += 1
        return Committed(self._group, time.time(), tuple(self._next(one.stream, len(one.features)) for one in requests))

    def find(self, stream: int, id_hash: bytes) -> None:
        """Nothing is found."""

    def operate(self, stream: int, kind: str, argument: Mapping[str, Any]) -> Operation:
        """Number an operation."""
        return Operation(self._next(stream, 1), time.time(), kind, argument)

    def close(self) -> None:
        """There is nothing to close."""

    def _next(self, stream: int, count: int) -> int:
        first = self._last[stream] + 1
        self._last[stream] += count
        return first
