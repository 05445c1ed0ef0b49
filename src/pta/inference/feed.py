"""Work done ahead, in order: while one batch is encoded, threads decode the next."""

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from pta.errors import PtaError

Item = TypeVar("Item")
Result = TypeVar("Result")

_NICENESS = 19
_POLL = 0.1  # seconds between looks at `stopping` while nothing arrives


def default_workers() -> int:
    """One thread per processor, at most eight: beyond that they wait for each other."""
    return min(8, os.cpu_count() or 1)


def _lower_priority() -> None:
    if sys.platform == "linux":  # where priorities belong to threads
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


@dataclass(frozen=True)
class Prepared(Generic[Item, Result]):
    """An item with what was made of it, or with the user's mistake that prevented that."""

    item: Item
    result: Result | None
    error: PtaError | None


@dataclass(frozen=True)
class _End:
    """The source has nothing more to give, perhaps because something went wrong in it."""

    error: BaseException | None = None


def prepare_in_batches(
    items: Iterable[Item],
    prepare: Callable[[Item], Result],
    batch: int,
    workers: int | None = None,
    *,
    ends: Callable[[Item], bool] = lambda item: False,
    live: bool = False,
    low_priority: bool = False,
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[list[Prepared[Item, Result]]]:
    """Batches of prepared items, in the order of the items, prepared by threads up to two batches ahead.

    Items are taken in a thread of its own, so that they may wait for a camera or a pipe. All threads end when the
    iterator is closed or forgotten; the one that waits for an item ends when that comes.

    Args:
        prepare: called in worker threads; a `PtaError` becomes the item's `error`.
        ends: whether a batch ends with this item, although it is not full.
        live: give what has arrived instead of waiting for a full batch.
        low_priority: prepare at the lowest priority, for a caller that computes on the same processors: all its threads
            wait for the one that is disturbed.
        stopping: called between batches and while waiting; True ends the stream, and a batch that is not full is left
            out unless the stream is live.
    """
    threads = workers or default_workers()
    ahead = 2 * max(batch, threads)  # no thread is idle, however small the batches
    waiting: queue.Queue[tuple[Item, Future[Result]] | _End] = queue.Queue(maxsize=ahead)
    stopped = threading.Event()
    pool = ThreadPoolExecutor(threads, "prepare", initializer=_lower_priority if low_priority else None)

    def put(entry: tuple[Item, Future[Result]] | _End) -> None:
        while not stopped.is_set():
            with suppress(queue.Full):
                waiting.put(entry, timeout=_POLL)
                return

    def produce() -> None:
        try:
            for item in items:
                if stopped.is_set():
                    return
                put((item, pool.submit(prepare, item)))
            put(_End())
        except BaseException as error:  # whatever the source raises belongs to the one who reads the batches
            put(_End(error))

    producer = threading.Thread(target=produce, name="produce", daemon=True)
    producer.start()
    try:
        end = None
        while end is None and not stopping():
            entries, end = _collect(waiting, batch, ends, live, stopping)
            if entries:
                yield [_finish(item, future) for item, future in entries]
        if end is not None and end.error is not None:
            raise end.error
    finally:
        stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)
        if producer is not threading.current_thread():  # which may collect a stream that was forgotten
            producer.join(2 * _POLL)  # a thread that wakes while the interpreter ends can abort the process


def _collect(
    waiting: "queue.Queue[tuple[Item, Future[Result]] | _End]",
    batch: int,
    ends: Callable[[Item], bool],
    live: bool,
    stopping: Callable[[], bool],
) -> tuple[list[tuple[Item, Future[Result]]], _End | None]:
    """The next entries in order, and the end if it was among them."""
    entries: list[tuple[Item, Future[Result]]] = []
    while len(entries) < batch:
        try:
            entry = waiting.get(block=not (live and entries), timeout=_POLL)
        except queue.Empty:
            if live and entries:
                break
            if stopping():
                return [], None
            continue
        if isinstance(entry, _End):
            return entries, entry
        entries.append(entry)
        if ends(entry[0]):
            break
    return entries, None


def _finish(item: Item, future: "Future[Result]") -> Prepared[Item, Result]:
    try:
        return Prepared(item, future.result(), None)
    except PtaError as error:
        return Prepared(item, None, error)
