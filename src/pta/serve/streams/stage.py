"""Stage: a thread that takes whatever waits, up to a group, and works on it."""

import logging
from collections.abc import Callable, Iterable, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

import torch

from pta.serve.streams.served import LARGEST_GROUP

_log = logging.getLogger("pta.serve")
Item = TypeVar("Item", bound=Sized)


def use_threads(count: int) -> None:
    """Set the number of threads that torch uses for this thread.

    At its first look a thread takes the number that was set last in any thread, so it looks before it sets its own.
    """
    torch.get_num_threads()
    torch.set_num_threads(count)


def one_thread(name: str) -> ThreadPoolExecutor:
    """A thread in which torch uses no other."""
    return ThreadPoolExecutor(1, name, initializer=use_threads, initargs=(1,))


class Stage(Generic[Item]):
    """Works on items in order; those that came during the work before are taken together. Torch uses no other thread.

    Args:
        fail: told of items whose work raised what it must not raise.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[list[Item]], None],
        fail: Callable[[Sequence[Item], Exception], None],
    ) -> None:
        self._work, self._fail = work, fail
        self._queue: SimpleQueue[Item | None] = SimpleQueue()
        self._held: Item | None = None  # taken, but too large for the last group
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, items: Iterable[Item]) -> None:
        """Queue items."""
        for item in items:
            self._queue.put(item)

    def close(self) -> None:
        """Finish what is queued and end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        use_threads(1)
        going_on = True
        while going_on:
            items, going_on = self._take()
            if items:
                try:
                    self._work(items)
                except Exception as error:
                    _log.exception("a request could not be answered")
                    self._fail(items, error)

    def _take(self) -> tuple[list[Item], bool]:
        """What waits, up to a group of samples, and whether there will be more."""
        item, self._held = self._queue.get() if self._held is None else self._held, None
        items: list[Item] = []
        count = 0
        while item is not None:
            count += len(item)
            if items and count > LARGEST_GROUP:
                self._held = item
                return items, True
            items.append(item)
            try:
                item = self._queue.get_nowait()
            except Empty:
                return items, True
        return items, False
