"""Blocks with samples that one worker could not read: others try them before they count as unread."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

_WORKERS = 3  # that try a block


class Elsewhere:
    """Who has tried which task without being able to read all of its samples, and what it gave."""

    def __init__(self) -> None:
        self._tried = defaultdict[int, set[Any]](set)
        self._results = dict[int, Any]()

    def may_do(self, worker: Any, number: int) -> bool:
        """Whether a worker has not tried a task."""
        return worker not in self._tried[number]

    def is_needed(self, worker: Any, number: int, result: Any) -> bool:
        """Whether another worker is to try a task that this one gave a result for."""
        if not getattr(result, "unread", None):
            return False
        self._tried[number].add(worker)
        self._results[number] = min(self._results.get(number, result), result, key=lambda one: one.unread.count)
        return len(self._tried[number]) < _WORKERS

    def best(self, number: int, result: Any) -> Any:
        """The last result of a task, or the one with the fewest unread samples."""
        return self._results[number] if getattr(result, "unread", None) else result

    def without_more_workers(self, waiting: Iterable[int]) -> dict[int, Any]:
        """The results of those tasks that all there are have tried."""
        return {number: self._results[number] for number in waiting if number in self._results}
