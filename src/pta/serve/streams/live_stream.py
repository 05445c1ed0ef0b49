"""LiveStream: a stream as the running service has it."""

import time
from collections.abc import Iterable
from threading import Lock

from pta.serve.journal.rows import Operation
from pta.serve.streams.history import History
from pta.serve.streams.past import Past
from pta.serve.streams.statistics import StreamStatistics
from pta.serve.streams.stream_state import StreamState


class LiveStream:
    """The state of a stream, the operations on it, and what was answered.

    The writing thread decides by `frozen`, `gone` and the quota. The learning thread changes the state and the
    operations, under `lock`; others read them under it.
    """

    def __init__(
        self, name: str, number: int, state: StreamState, operations: Iterable[Operation] = (), past: Past | None = None
    ) -> None:
        self.name, self.number, self.past = name, number, past
        self.lock, self.changing = Lock(), Lock()  # `changing` is held by the one operation under way
        self.state, self.operations = state, list(operations)
        self.history = History.of(self.operations)
        self.frozen, self.gone = self.history.frozen, False
        self.failed: str | None = None  # why it learns nothing until the service is started again
        self.statistics = StreamStatistics(len(state.touches))
        self.version = 0
        self.time = 0.0  # of the last row
        self.since_snapshot, self.snapshot_taken = 0, time.monotonic()
        self._minute, self._learned_in_it = 0, 0

    def add_operation(self, row: Operation) -> None:
        """Take note of an operation that is in the journal."""
        self.operations.append(row)
        self.history = History.of(self.operations)
        self.time = row.time
        self.version += 1

    def within_quota(self, count: int, quota: int) -> bool:
        """Whether `count` more samples may be learned in this minute; they are counted if so."""
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._learned_in_it = minute, 0
        if self._learned_in_it + count > quota:
            return False
        self._learned_in_it += count
        return True
