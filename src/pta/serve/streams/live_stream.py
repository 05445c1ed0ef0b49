"""LiveStream: a stream as the running service has it, and counts of its answers since the start."""

import time
from collections import deque
from collections.abc import Collection, Iterable
from threading import Lock
from typing import Any

import numpy as np

from pta.serve.journal.rows import OperationRow
from pta.serve.streams.answering import Answered, StreamState
from pta.serve.streams.history import History
from pta.serve.streams.past import Past

_SECONDS = 10


class LiveStream:
    """The state of a stream, the operations on it, and what was answered.

    The writing thread decides by `frozen`, `gone` and the quota. The learning thread changes the state and the
    operations, under `lock`; others read them under it.
    """

    def __init__(
        self,
        name: str,
        number: int,
        state: StreamState,
        operations: Iterable[OperationRow] = (),
        past: Past | None = None,
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

    def add_operation(self, row: OperationRow) -> None:
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


class StreamStatistics:
    """Counts that grow with every group, and the last 1,000 answers."""

    def __init__(self, classes: int) -> None:
        self.answered = self.learned = self._all_changed = 0
        self.answers = [0] * classes
        self._prediction = np.zeros(classes)
        self._changed, self._adapted, self._zero_shot, self._latencies = (deque[float](maxlen=1000) for _ in range(4))
        self._per_second: deque[tuple[int, int]] = deque(maxlen=_SECONDS + 1)

    def add(self, given: Answered, learned: bool, latencies: list[float]) -> None:
        """Count the answers of a group, which were learned or not, with the seconds that each request took."""
        labels, alone = given.labels.tolist(), given.scored.labels.tolist()
        changed = [one != other for one, other in zip(labels, alone, strict=True)]
        self.answered += len(labels)
        self.learned += len(labels) if learned else 0
        self._all_changed += sum(changed)
        for label in labels:
            self.answers[label] += 1
        self._prediction += given.chances.sum(axis=0)
        self._changed.extend(changed)
        self._adapted.extend(given.entropies.tolist())
        self._zero_shot.extend(given.scored.entropies.tolist())
        self._latencies.extend(latencies)
        second, count = int(time.monotonic()), len(labels)
        if self._per_second and self._per_second[-1][0] == second:
            count += self._per_second.pop()[1]
        self._per_second.append((second, count))

    def summary(self) -> dict[str, Any]:
        """Rates, shares and entropies; None where there was no answer yet."""
        now = int(time.monotonic())
        recent = sum(count for second, count in self._per_second if now - _SECONDS <= second < now)
        return {
            "answered": self.answered,
            "learned": self.learned,
            "rate": recent / _SECONDS,
            "latency_ms": {f"p{share}": self._latency(share) for share in (50, 99)},
            "changed": {
                "100": _mean(list(self._changed)[-100:]),
                "1000": _mean(self._changed),
                "all": self._all_changed / self.answered if self.answered else None,
            },
            "entropy": {"adapted": _mean(self._adapted), "zero_shot": _mean(self._zero_shot)},
            "mean_prediction_entropy": self._mean_prediction_entropy(),
        }

    def _latency(self, share: int) -> float | None:
        return 1000 * float(np.percentile(self._latencies, share)) if self._latencies else None

    def _mean_prediction_entropy(self) -> float | None:
        if not self.answered:
            return None
        mean = self._prediction / self._prediction.sum()
        return float(-(mean * np.log(mean, out=np.zeros_like(mean), where=mean > 0)).sum())


def _mean(values: Collection[float]) -> float | None:
    return sum(values) / len(values) if values else None
