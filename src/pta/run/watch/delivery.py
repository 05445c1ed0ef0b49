"""Delivery: hands items to something that may fail or hang, in order, without delaying whoever has them."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from threading import Condition, Thread
from typing import Generic, TypeVar

from pta.errors import PtaError, first_line

Item = TypeVar("Item")
PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Seconds after the first failure, the second one and so on, until the next try; the last one is repeated."""
_log = logging.getLogger("pta.watch")


class Delivery(Generic[Item]):
    """Calls a function with each item in a thread that ends with the process; what fails is tried again.

    Args:
        name: what it is called in messages.
        deliver: raises an error if it is to be tried again.
        tries: how often an item is tried; None until it is delivered or there is no room for it.
        most: items that may wait. The oldest one makes room for another.
        waiting: items that an earlier process could not deliver.
    """

    def __init__(
        self,
        name: str,
        deliver: Callable[[Item], object],
        *,
        tries: int | None = None,
        most: int = 256,
        waiting: Iterable[Item] = (),
        pauses: Sequence[float] = PAUSES,
    ) -> None:
        self.name, self._deliver, self._tries, self._most, self._pauses = name, deliver, tries, most, pauses
        self.delivered = self.failed = self.lost = 0
        """Items that were delivered, tries that failed, and items that were given up."""
        self.defect: Exception | None = None
        """What ended the thread, if it was not `close`."""
        self._queue, self._changed = deque(waiting), Condition()
        self._failures, self._is_closing = 0, False  # the former in a row
        self._tried = 0  # of the oldest item
        self._thread = Thread(target=self._run, name=f"pta-{name}", daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        """Deliver it soon."""
        with self._changed:
            if len(self._queue) >= self._most:
                self._remove_oldest()
                self._lose(f"{self._most:,} others wait")
            self._queue.append(item)
            self._changed.notify_all()

    @property
    def waiting(self) -> list[Item]:
        """What is not delivered yet, the oldest first."""
        with self._changed:
            return list(self._queue)

    def begin_to_close(self) -> None:
        """Deliver what waits, until one fails, and end."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()

    def close(self, timeout: float) -> None:
        """Do so, and wait for the end for so many seconds; `waiting` is what is left."""
        self.begin_to_close()
        self._thread.join(timeout)

    def _run(self) -> None:
        while self.defect is None:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._is_closing)
                if not self._queue:
                    return
                oldest, self._tried = self._queue[0], self._tried + 1
            problem = self._problem_with(oldest)
            with self._changed:
                is_there = bool(self._queue) and self._queue[0] is oldest  # else it made room meanwhile
                if problem is None:
                    self.delivered += 1
                    if is_there:
                        self._remove_oldest()
                elif is_there and self._tried == self._tries:
                    self._remove_oldest()
                    self._lose(first_line(problem))
                elif self._is_closing:
                    return
                else:
                    pause = self._pauses[min(self._failures, len(self._pauses)) - 1]
                    self._changed.wait_for(lambda: self._is_closing, pause)

    def _problem_with(self, item: Item) -> Exception | None:
        """Try to deliver an item; tells of the first failure in a row, and of the end of failures."""
        try:
            self._deliver(item)
        except (OSError, ValueError, PtaError) as problem:
            self.failed, self._failures = self.failed + 1, self._failures + 1
            if self._failures == 1:
                _log.warning("%s failed: %s", self.name, first_line(problem))
            return problem
        except Exception as defect:  # noqa: BLE001 (whoever looks at `defect` raises it)
            self.defect = defect
            return defect
        if self._failures:
            _log.info("%s: delivered again, after %d failures", self.name, self._failures)
        self._failures = 0
        return None

    def _remove_oldest(self) -> None:
        self._queue.popleft()
        self._tried = 0

    def _lose(self, why: str) -> None:
        self.lost += 1
        if self.lost == 1 or not self.lost % 100:
            _log.warning("%s: %d given up so far: %s", self.name, self.lost, why)
