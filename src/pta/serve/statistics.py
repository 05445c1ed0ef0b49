"""StreamStatistics: what the page shows of a stream's answers since the service started."""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pta.serve.answering import Answered

_RECENT = 1000
_SECONDS = 10


class StreamStatistics:
    """Counts that grow with every group, and the last 1,000 answers."""

    def __init__(self, classes: int) -> None:
        self.answered = self.learned = self._changed = 0
        self.answers = np.zeros(classes, np.int64)
        self._prediction = np.zeros(classes)
        self._last = np.zeros((3, _RECENT), np.float32)  # changed, entropy, zero-shot entropy
        self._latencies = np.zeros(_RECENT, np.float32)
        self._requests = 0
        self._per_second = np.zeros((2, _SECONDS + 2), np.int64)  # the second, the answers in it

    def add(self, given: Answered, learned: bool, latencies: list[float]) -> None:
        """Count the answers of a group, which were learned or not, with the seconds that each request took."""
        count, changed = len(given.labels), given.labels != given.scored.labels
        kept = min(count, _RECENT)
        places = np.arange(self.answered + count - kept, self.answered + count) % _RECENT
        for row, values in zip(self._last, (changed, given.entropies, given.scored.entropies), strict=True):
            row[places] = values[-kept:]
        self.answered += count
        self.learned += count if learned else 0
        self._changed += int(changed.sum())
        np.add.at(self.answers, given.labels, 1)
        self._prediction += given.spread.sum(axis=0)
        for latency in latencies:
            self._latencies[self._requests % _RECENT] = latency
            self._requests += 1
        second = int(time.monotonic())
        place = second % (_SECONDS + 2)
        if self._per_second[0, place] != second:
            self._per_second[:, place] = second, 0
        self._per_second[1, place] += count

    def summary(self) -> dict[str, Any]:
        """Rates, shares and entropies; None where there was no answer yet."""
        changed, adapted, zero_shot = self._last
        now = int(time.monotonic())
        recent = (self._per_second[0] >= now - _SECONDS) & (self._per_second[0] < now)
        shares = {str(most): self._mean(changed, most) for most in (100, _RECENT)}
        return {
            "answered": self.answered,
            "learned": self.learned,
            "rate": float(self._per_second[1, recent].sum()) / _SECONDS,
            "latency_ms": {f"p{share}": self._latency(share) for share in (50, 99)},
            "changed": {**shares, "all": self._changed / self.answered if self.answered else None},
            "entropy": {"adapted": self._mean(adapted), "zero_shot": self._mean(zero_shot)},
            "mean_prediction_entropy": self._mean_prediction_entropy(),
        }

    def _mean(self, values: NDArray[np.float32], most: int = _RECENT) -> float | None:
        """Of the last so many answers."""
        count = min(self.answered, most)
        return float(values[np.arange(self.answered - count, self.answered) % _RECENT].mean()) if count else None

    def _latency(self, share: int) -> float | None:
        known = self._latencies[: min(self._requests, _RECENT)]
        return 1000 * float(np.percentile(known, share)) if len(known) else None

    def _mean_prediction_entropy(self) -> float | None:
        if not self.answered:
            return None
        mean = self._prediction / self._prediction.sum()
        return float(-(mean * np.log(mean, out=np.zeros_like(mean), where=mean > 0)).sum())
