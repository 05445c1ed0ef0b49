"""Processes that prepare samples: what they make is shared, and they end with whoever started them."""

import gc
import os
import signal
import sys
import time

import numpy as np
import pytest
from processes import PATIENCE

from pta.errors import MachineFailure, UnreadableSample
from pta.run.feed import batches, workers
from pta.run.feed.batches import prepare_in_batches
from pta.run.feed.workers import Workers, start_server

if sys.platform != "linux":
    pytest.skip("processes are used on Linux", allow_module_level=True)


def squares(numbers):
    """The process, and an array for each number."""
    return os.getpid(), [np.full(1000, number * number) for number in numbers]


def large(number):
    """More than a slot holds."""
    return np.arange(number)


def refuse(number):
    raise UnreadableSample(f"{number} is bad")


def blocked(number):
    """The signals that a process leaves to others, as the server does that it was forked from."""
    return signal.pthread_sigmask(signal.SIG_BLOCK, [])


def end(number):
    os._exit(3)


def test_a_server_that_was_started_before_leaves_signals_to_others_and_its_caller_as_it_was():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    start_server()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    made = Workers(1)
    assert made.started.wait(PATIENCE)
    assert made.submit(blocked, 0).result(PATIENCE) >= {signal.SIGINT, signal.SIGTERM}
    made.shutdown(wait=False, cancel_futures=True)


@pytest.fixture(scope="module")
def started():
    """Workers that have started; those that no test ends."""
    made = Workers(2)
    assert squares([1])[0] == made.submit(squares, [1]).result()[0]  # a thread, as long as there is no process
    assert made.started.wait(PATIENCE)
    yield made
    made.shutdown(wait=False, cancel_futures=True)


def test_results_come_from_another_process_and_lie_in_shared_memory(started):
    futures = [started.submit(squares, [number, number + 1]) for number in range(8)]
    for number, future in enumerate(futures):
        process, arrays = future.result(PATIENCE)
        assert process != os.getpid()
        assert [array[999] for array in arrays] == [number**2, (number + 1) ** 2]
        assert not arrays[0].flags.owndata


def test_a_slot_is_free_again_when_nobody_looks_into_it(started):
    gc.collect()
    free = started._memory._free.qsize()
    kept = started.submit(squares, [1, 2]).result(PATIENCE)[1][1]
    assert started._memory._free.qsize() == free - 1
    for number in range(2 * workers._SLOTS):
        started.submit(squares, [number]).result(PATIENCE)
    assert (kept == 4).all()
    del kept
    gc.collect()
    assert started._memory._free.qsize() == free


def test_what_does_not_fit_comes_all_the_same(started, monkeypatch):
    count = workers._SHARED // workers._SLOTS // 8 + 1
    assert np.array_equal(started.submit(large, count).result(PATIENCE), np.arange(count))
    monkeypatch.setattr(started._memory, "take", lambda: None)
    assert started.submit(squares, [3]).result(PATIENCE)[1][0][0] == 9


def test_an_error_in_a_process_is_the_error_of_the_call(started):
    with pytest.raises(UnreadableSample, match="7 is bad"):
        started.submit(refuse, 7).result(PATIENCE)


def test_ctrl_c_does_not_reach_processes_nor_the_server_that_imports_for_them(started):
    assert {signal.SIGINT, signal.SIGTERM} <= started.submit(blocked, 0).result(PATIENCE)


def test_a_process_that_is_ended_is_noticed():
    made = Workers(1, batches._lower_priority)
    assert made.started.wait(PATIENCE)
    for call in (end, square):  # when the process ends, and afterwards
        with pytest.raises(MachineFailure, match="a worker process has died"):
            made.submit(call, 1).result(PATIENCE)
    made.shutdown(wait=False, cancel_futures=True)


def square(number):
    return np.full(10, number * number)


def test_a_stream_moves_from_threads_to_processes_in_order_and_ends_them():
    def slowly():
        for number in range(400):
            time.sleep(0.01 if number > 100 else 0)  # so long that processes start meanwhile
            yield number

    batches = prepare_in_batches(slowly(), square, batch=8, workers=2, processes=True)
    results = [one.result[0] for part in batches for one in part]
    assert results == [number * number for number in range(400)]
