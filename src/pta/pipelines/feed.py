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

_POLITE = 19
_POLL = 0.1  # seconds between looks at `stopping` while nothing arrives


def default_workers() -> int:
    """As many threads as there are processors, up to eight: beyond that the encoder is the narrow place."""
    return min(8, os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count() or 1)


def _step_back() -> None:
    """Let an encoder on the same processors go first: all its threads wait for the one that is disturbed."""
    if sys.platform == "linux":  # where priorities belong to threads
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _POLITE)


@dataclass(frozen=True)
class Prepared(Generic[Item, Result]):
    """An item with what was made of it, or with the user's mistake that prevented that."""

    item: Item
    result: Result | None
    error: PtaError | None


def prepare_in_batches(
    items: Iterable[Item],
    prepare: Callable[[Item], Result],
    *,
    batch: int,
    workers: int | None = None,
    live: bool = False,
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[list[Prepared[Item, Result]]]:
    """Batches of prepared items, in the order of the items, prepared by threads up to two batches ahead.

    Args:
        items: taken from a thread of its own, so that it may wait for a camera or a pipe.
        prepare: called in worker threads; a `PtaError` becomes the item's `error`.
        batch: the most items given at once.
        workers: threads; by default as many as there are processors.
        live: give what has arrived instead of waiting for a full batch.
        stopping: looked at between batches and while waiting; True ends the stream.
    """
    waiting: queue.Queue[tuple[Item, Future[Result]] | BaseException | None] = queue.Queue(maxsize=2 * batch)
    stopped = threading.Event()
    pool = ThreadPoolExecutor(workers or default_workers(), thread_name_prefix="prepare", initializer=_step_back)

    def put(entry: tuple[Item, Future[Result]] | BaseException | None) -> None:
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
        except BaseException as error:  # whatever the source raises belongs to the one who reads the batches
            put(error)
        else:
            put(None)

    threading.Thread(target=produce, name="produce", daemon=True).start()
    try:
        ended = False
        while not ended and not stopping():
            entries, ended = _collect(waiting, batch, live, stopping)
            if entries:
                yield [_finish(item, future) for item, future in entries]
    finally:
        stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _collect(
    waiting: "queue.Queue[tuple[Item, Future[Result]] | BaseException | None]",
    batch: int,
    live: bool,
    stopping: Callable[[], bool],
) -> tuple[list[tuple[Item, Future[Result]]], bool]:
    """The next entries in order, and whether the source has ended."""
    entries: list[tuple[Item, Future[Result]]] = []
    while len(entries) < batch:
        try:
            entry = waiting.get(block=not (live and entries), timeout=_POLL)
        except queue.Empty:
            if stopping() or (live and entries):
                break
            continue
        if entry is None:
            return entries, True
        if isinstance(entry, BaseException):
            if entries:  # what came before the trouble is still worth an answer
                waiting.queue.appendleft(entry)
                break
            raise entry
        entries.append(entry)
    return entries, False


def _finish(item: Item, future: "Future[Result]") -> Prepared[Item, Result]:
    try:
        return Prepared(item, future.result(), None)
    except PtaError as error:
        return Prepared(item, None, error)
