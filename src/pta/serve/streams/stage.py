"""Stage: a thread that takes whatever waits, up to a group, and works on it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import torch

from pta.serve.streams.served_model import LARGEST_GROUP


def use_threads(count: int) -> None:
    """Set the number of threads that torch uses for this thread.

    At its first look a thread takes the number that was set last in any thread, so it looks before it sets its own.
    """
    torch.get_num_threads()
    torch.set_num_threads(count)


def one_thread(name: str) -> ThreadPoolExecutor:
    """A thread in which torch uses no other."""
    return ThreadPoolExecutor(1, name, initializer=use_threads, initargs=(1,))


@contextmanager
def errors_told_to(tell: Callable[[Exception], object]) -> Iterator[None]:
    """Tell an error to those who wait for this thread's work, which goes on: the door between two threads."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (those who wait for the work are told)
        tell(error)


class Stage:
    """Works on items in order; those that came during the work before are taken together. Torch uses no other thread.

    Items have a length: how many samples they are.

    Args:
        fail: told of items whose work raised what it must not raise.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[list[Any]], None],
        fail: Callable[[Sequence[Any], Exception], None],
    ) -> None:
        self._work, self._fail = work, fail
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._held: Any = None  # taken, but too large for the last group
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, items: Iterable[Any]) -> None:
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
                with errors_told_to(partial(self._fail, items)):
                    self._work(items)

    def _take(self) -> tuple[list[Any], bool]:
        """What waits, up to a group of samples, and whether there will be more."""
        item = self._queue.get() if self._held is None else self._held
        self._held = None
        items: list[Any] = []
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
