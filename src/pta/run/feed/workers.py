"""Workers that prepare samples: threads, or processes, which do not share one interpreter lock.

Processes take seconds to start, so threads work until they have. What processes make lies in memory that they share
with this one: only a few bytes per sample go through a pipe. The memory has no name, so a kill leaves nothing behind.
"""

import mmap
import os
import pickle
import queue
import signal
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from multiprocessing import forkserver, get_context, parent_process, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.reduction import DupFd
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from pta.errors import MachineFailure

Given = TypeVar("Given")
Made = TypeVar("Made")

_SHARED = 2**32  # bytes of memory in which results lie; what was never used is not taken from the system
_SLOTS = 256  # pieces of it, one for each call of which the results are still in use
# Imported once, by a server from which all processes of this one and of later workers are forked.
_PRELOADED = ["pta.run.encoding"]
_ENDED = "a worker process has died, perhaps out of memory"
_THREADS = 4  # that work until processes have started
# Left to the process that the user has started; a terminal and a service manager send them to all.
_ENDING = [one for one in signal.Signals if one.name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")]


def start_server() -> None:
    """Start the server from which processes are forked, if it does not run; its imports take seconds."""
    get_context("forkserver").set_forkserver_preload(_PRELOADED)
    resource_tracker.ensure_running()  # which ends with all signals let through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # the server inherits it
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Workers:
    """Calls functions in threads, and in processes as soon as these have started; only on Linux.

    `start` is called first in each of them.
    """

    def __init__(self, count: int, start: Callable[[], None] | None = None) -> None:
        self._threads = ThreadPoolExecutor(min(count, _THREADS), "prepare", initializer=start)
        self.started = threading.Event()  # whether calls go to processes
        self._memory = _SharedMemory()
        given: tuple[Any, ...] = (self._memory, start)
        self._processes = ProcessPoolExecutor(count, get_context("forkserver"), _begin_process, given)
        self._threads.submit(self._start, count)

    def submit(self, call: Callable[[Given], Made], given: Given) -> "Future[Made]":
        """The result of a call to come."""
        if not self.started.is_set():
            return self._threads.submit(call, given)
        done: Future[Made] = Future()
        slot = self._memory.take()
        try:
            packed = self._processes.submit(_call, call, given, slot)
        except BrokenProcessPool:  # while nobody waited for a result
            done.set_exception(MachineFailure(_ENDED))
        else:
            packed.add_done_callback(partial(self._settle, done, slot))
        return done

    def _settle(self, done: "Future[Made]", slot: int | None, packed: "Future[tuple[bytes, list[int]]]") -> None:
        try:
            done.set_result(self._memory.unpacked(slot, *packed.result()))
        except BrokenProcessPool:
            done.set_exception(MachineFailure(_ENDED))
        except BaseException as error:  # noqa: BLE001 (of the call; whoever waits for it raises it)
            done.set_exception(error)

    def _start(self, count: int) -> None:
        start_server()
        with suppress(RuntimeError):  # closed meanwhile
            for future in [self._processes.submit(os.getpid) for _ in range(count)]:
                future.result()
            self.started.set()

    def shutdown(self, **how: bool) -> None:
        """As of an executor."""
        for pool in (self._threads, self._processes):
            pool.shutdown(**how)


class _SharedMemory:
    """Memory without a name in slots of one size. A slot is free again when nothing looks into it any more."""

    def __init__(self) -> None:
        self._file = os.memfd_create("pta")
        weakref.finalize(self, os.close, self._file)
        os.ftruncate(self._file, _SHARED)
        self._mapped, self._free = mmap.mmap(self._file, _SHARED), queue.SimpleQueue[int]()
        for slot in range(_SLOTS):
            self._free.put(slot)

    def __reduce__(self) -> tuple[Any, ...]:
        """As a process that is just being started gets it."""
        return _mapped_again, (DupFd(self._file),)

    def take(self) -> int | None:
        """A slot that nobody uses, if there is one."""
        try:
            return self._free.get_nowait()
        except queue.Empty:
            return None

    def unpacked(self, slot: int | None, head: bytes, lengths: list[int]) -> Any:
        """What was packed into a slot; its arrays lie there."""
        buffers: list[npt.NDArray[np.uint8]] = []
        if slot is not None:
            place = _place(self._mapped, slot)
            weakref.finalize(place, self._free.put, slot)
            buffers = [place[end - length : end] for length, end in zip(lengths, np.cumsum(lengths), strict=True)]
        return pickle.loads(head, buffers=buffers)


def _place(mapped: mmap.mmap, slot: int) -> npt.NDArray[np.uint8]:
    size = _SHARED // _SLOTS
    return np.frombuffer(mapped, np.uint8, size, slot * size)


# -- in a process ------------------------------------------------------------------------------------------------------

_shared: mmap.mmap


def _mapped_again(handle: Any) -> mmap.mmap:
    file = handle.detach()
    try:
        return mmap.mmap(file, _SHARED)
    finally:
        os.close(file)


def _begin_process(shared: mmap.mmap, start: Callable[[], None] | None) -> None:
    """Leave signals to the process that the user has started, and end with it."""
    global _shared
    _shared = shared
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if start is not None:
        start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _call(call: Callable[[Given], Any], given: Given, slot: int | None) -> tuple[bytes, list[int]]:
    """The result of a call without the contents of its arrays, which are in a slot if they fit, and their lengths."""
    result = call(given)
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(result, 5, buffer_callback=buffers.append)
    contents = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
    if slot is None or sum(map(len, contents)) > _SHARED // _SLOTS:
        return pickle.dumps(result, 5), []
    place, start = _place(_shared, slot), 0
    for content in contents:
        place[start : start + len(content)] = content
        start += len(content)
    return head, list(map(len, contents))
