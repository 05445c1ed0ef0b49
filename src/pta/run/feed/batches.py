"""Prefetching, in order: while one batch is encoded, workers decode the next ones."""

import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from pta.errors import PtaError, UnreadSample, UserMistake
from pta.run.feed.workers import Workers

Item = TypeVar("Item")
Result = TypeVar("Result")
_Outcome = tuple[Result | None, PtaError | None]

_NICENESS = 19
_POLL = 0.1  # seconds between looks at `stopping` while nothing arrives
_MOST_AT_ONCE = 32  # items that a thread is given at once
_MOST_BYTES = 2**30
_MOST_PROCESSES = 60  # of more, none was measured


def default_workers(processes: bool = False) -> int:
    """One worker per processor, but at most eight threads: more would wait for each other."""
    return min(os.cpu_count() or 1, _MOST_PROCESSES if processes else 8)


@dataclass(frozen=True)
class Prepared(Generic[Item, Result]):
    """An item with its result or its error."""

    item: Item
    result: Result | None
    error: PtaError | None


def prepare_in_batches(
    items: Iterable[Item],
    prepare: Callable[[Item], Result],
    batch: int,
    workers: int | None = None,
    *,
    ends: Callable[[Item], bool] = lambda item: False,
    size: Callable[[Result], int] = lambda result: 0,
    live: bool = False,
    processes: bool = False,
    low_priority: bool = False,
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[list[Prepared[Item, Result]]]:
    """Batches of prepared items, in the order of the items, prepared by threads up to two batches ahead.

    Items are taken in a thread of its own, so that they may wait for a camera or a pipe. All threads end when the
    iterator is closed or forgotten; the one that waits for an item ends when that comes.

    Args:
        prepare: called in worker threads; a user's mistake or an unread sample becomes the item's `error`.
        ends: whether a batch ends with this item, although it is not full.
        size: the bytes that a result holds; while results hold more than a gibibyte, only one batch is prepared ahead.
        live: give what has arrived instead of waiting for a full batch.
        processes: the workers are processes as soon as they have started; `prepare` and items are sent to them.
        low_priority: prepare at the lowest priority, for a caller that computes on the same processors: all its threads
            wait for the one that is disturbed.
        stopping: called between batches and while waiting; True ends the stream, and a batch that is not full is left
            out unless the stream is live.
    """
    workers = workers or default_workers(processes)
    ahead = 2 * max(batch, workers)  # no worker is idle, however small the batches
    most = 1 if live else min(_MOST_AT_ONCE, max(1, batch // (workers if processes else 2 * workers)))
    waiting: queue.Queue[_Work[Item, Result] | None] = queue.Queue(maxsize=max(1, ahead // most))  # None is the end
    failures = list[BaseException]()  # of the source, before its end
    held = _Held(size)
    stopped = threading.Event()
    start = _lower_priority if low_priority else None
    pool: Workers | ThreadPoolExecutor
    if processes and sys.platform == "linux":
        pool = Workers(workers, start)
    else:
        pool = ThreadPoolExecutor(workers, "prepare", initializer=start)

    def put(entry: "_Work[Item, Result] | None") -> None:
        while not stopped.is_set():
            with suppress(queue.Full):
                if held.bytes > _MOST_BYTES and waiting.qsize() * most >= batch:
                    stopped.wait(_POLL)
                    continue
                waiting.put(entry, timeout=_POLL)
                return

    def produce() -> None:
        try:
            for several, is_last in _in_groups(items, most, batch, ends):
                if stopped.is_set():
                    return
                future = pool.submit(partial(_prepare_all, prepare), several)
                future.add_done_callback(partial(held.count, 1))
                put(_Work(several, is_last, future))
        except BaseException as error:  # noqa: BLE001 (of the source; the reader of the batches raises it)
            failures.append(error)
        put(None)

    producer = threading.Thread(target=produce, name="produce", daemon=True)
    producer.start()
    try:
        is_over = False
        while not is_over and not stopping():
            entries, is_over = _collect(waiting, batch, live, stopping)
            if entries:
                yield [one for entry in entries for one in entry.wait()]
                for entry in entries:
                    held.count(-1, entry.future)
        if is_over and failures:
            raise failures[0]
    finally:
        stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)
        if producer is not threading.current_thread():  # which may collect a stream that was forgotten
            producer.join(2 * _POLL)  # a thread that wakes while the interpreter ends can abort the process


def _lower_priority() -> None:
    if sys.platform == "linux":  # where priorities belong to threads
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


@dataclass(frozen=True)
class _Work(Generic[Item, Result]):
    """A few items of one batch that a thread prepares: a future for each would cost more than to read a file."""

    items: list[Item]
    ends: bool  # whether the batch does
    future: Future[list[_Outcome[Result]]]

    def wait(self) -> list[Prepared[Item, Result]]:
        return [Prepared(item, *outcome) for item, outcome in zip(self.items, self.future.result(), strict=True)]


class _Held(Generic[Result]):
    """How many bytes are held by results that were not given out yet."""

    def __init__(self, size: Callable[[Result], int]) -> None:
        self.bytes, self._size, self._lock = 0, size, threading.Lock()

    def count(self, sign: int, done: Future[list[_Outcome[Result]]]) -> None:
        """Add results, or with the sign −1 take them away."""
        if done.cancelled() or done.exception() is not None:
            return
        total = sum(self._size(result) for result, _ in done.result() if result is not None)
        with self._lock:
            self.bytes += sign * total


def _in_groups(
    items: Iterable[Item], most: int, batch: int, ends: Callable[[Item], bool]
) -> Iterator[tuple[list[Item], bool]]:
    """The items, a few at a time and none of two batches together; what came before an error of the source, too.

    With each group, whether its batch ends, although it is not full.
    """
    group: list[Item] = []
    in_batch = 0
    try:
        for item in items:
            group.append(item)
            is_last = ends(item)
            in_batch = 0 if is_last else (in_batch + 1) % batch
            if len(group) == most or in_batch == 0:
                yield group, is_last
                group = []
    except Exception:
        if group:
            yield group, False
        raise
    if group:
        yield group, False


def _collect(
    waiting: "queue.Queue[_Work[Item, Result] | None]", batch: int, live: bool, stopping: Callable[[], bool]
) -> tuple[list[_Work[Item, Result]], bool]:
    """The next work in order, and whether it is the last."""
    entries: list[_Work[Item, Result]] = []
    while sum(len(entry.items) for entry in entries) < batch:
        try:
            entry = waiting.get(block=not (live and entries), timeout=_POLL)
        except queue.Empty:
            if live and entries:
                break
            if stopping():
                return [], False
            continue
        if entry is None:
            return entries, True
        entries.append(entry)
        if entry.ends:
            break
    return entries, False


def _prepare_all(prepare: Callable[[Item], Result], several: list[Item]) -> list[_Outcome[Result]]:
    outcomes: list[_Outcome[Result]] = []
    for item in several:
        try:
            outcomes.append((prepare(item), None))
        except (UserMistake, UnreadSample) as error:
            outcomes.append((None, error))
    return outcomes


Batch = TypeVar("Batch")
Decoded = TypeVar("Decoded")
Begun = TypeVar("Begun")


def in_stages(
    batches: Iterable[Batch], decode: Callable[[Batch], Decoded], begin: Callable[[Decoded], Begun], ahead: int
) -> Iterator[Begun]:
    """`begin(decode(batch))` for batch after batch, in order.

    A thread decodes so many batches ahead of what is begun, and that is begun so many ahead of what is given out. An
    error of the source comes after all that was before it.
    """
    with ThreadPoolExecutor(1, "decode") as pool:
        decoded = _held_back((pool.submit(decode, batch) for batch in batches), ahead)
        yield from _held_back((begin(future.result()) for future in decoded), ahead)


def _held_back(items: Iterable[Item], count: int) -> Iterator[Item]:
    """The items, so many of them later than they come; before an error of the source, those that are left."""
    held: deque[Item] = deque()
    try:
        for item in items:
            held.append(item)
            if len(held) > count:
                yield held.popleft()
    except Exception:
        yield from held
        raise
    yield from held
