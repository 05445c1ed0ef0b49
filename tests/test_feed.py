"""Work done ahead stays in order, bounded, and stops when it is told to."""

import threading
import time

import pytest
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import PATIENCE

from pta.errors import InvalidSamples, PtaError
from pta.run.feed.batches import prepare_in_batches


def itself(number):
    return number


def some_fail(number):
    time.sleep((number * 7919 % 5) / 5000)  # later items are often ready first
    if number % 3 == 1:
        raise InvalidSamples(f"{number} is bad")
    return number * number


@settings(max_examples=repeated(30), deadline=None)
@given(st.integers(0, 40), st.integers(1, 9), st.integers(1, 4), st.booleans())
def test_results_come_in_order_and_mistakes_beside_them(count, batch, workers, live):
    batches = list(prepare_in_batches(range(count), some_fail, batch=batch, workers=workers, live=live))
    done = [one for part in batches for one in part]
    assert [one.item for one in done] == list(range(count))
    assert [one.result for one in done] == [None if n % 3 == 1 else n * n for n in range(count)]
    assert [str(one.error) for one in done if one.error] == [f"{n} is bad" for n in range(count) if n % 3 == 1]
    assert all(0 < len(part) <= batch for part in batches)
    if not live:
        assert all(len(part) == batch for part in batches[:-1])


def test_a_batch_ends_where_it_is_told_to():
    batches = prepare_in_batches(range(3, 30), itself, batch=10, ends=lambda number: number % 10 == 9)
    assert [[part[0].item, part[-1].item] for part in batches] == [[3, 9], [10, 19], [20, 29]]


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_a_stream_that_is_closed_or_forgotten_leaves_no_thread(closed, live):
    before = set(threading.enumerate())
    more = threading.Event()

    def items():
        yield from range(20)
        more.wait()  # as a camera does
        yield from range(1000)

    batches = prepare_in_batches(items(), itself, batch=4, workers=3, live=live)
    next(batches)
    assert len(set(threading.enumerate()) - before) >= 2
    if closed:
        batches.close()
    del batches
    more.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_no_more_than_two_batches_are_prepared_ahead():
    taken = []

    def items():
        for number in range(1000):
            taken.append(number)
            yield number

    batches = prepare_in_batches(items(), itself, batch=5, workers=2)
    next(batches)
    time.sleep(0.3)
    assert len(taken) <= 5 + 2 * 5 + 2  # given out, waiting, and one in the hand of the producer
    batches.close()


def test_no_thread_is_idle_when_batches_are_small():
    together = threading.Barrier(4, timeout=PATIENCE)  # breaks unless four items are prepared at once
    batches = prepare_in_batches(range(8), lambda number: together.wait() and number, batch=1, workers=4)
    assert [one.error for part in batches for one in part] == [None] * 8


def test_a_live_stream_answers_what_has_arrived_instead_of_waiting_for_more():
    more = threading.Event()

    def camera():
        yield from range(3)
        more.wait(PATIENCE)
        yield 3

    batches = prepare_in_batches(camera(), itself, batch=64, live=True)
    seen = []
    while len(seen) < 3:
        seen += [one.item for one in next(batches)]
    assert seen == [0, 1, 2]
    more.set()
    assert [[one.item for one in part] for part in batches] == [[3]]


def test_stopping_ends_the_stream_even_while_it_waits():
    stop, end = threading.Event(), threading.Event()

    def silent():
        yield 1
        end.wait(PATIENCE)

    batches = prepare_in_batches(silent(), itself, batch=2, live=True, stopping=stop.is_set)
    assert [one.item for one in next(batches)] == [1]
    threading.Timer(0.2, stop.set).start()
    assert list(batches) == []
    end.set()


def test_a_batch_that_is_not_full_is_left_out_when_the_stream_is_stopped():
    stop, end = threading.Event(), threading.Event()

    def slow():
        yield from range(5)
        stop.set()
        end.wait(PATIENCE)

    batches = prepare_in_batches(slow(), itself, batch=3, stopping=stop.is_set)
    assert [one.item for part in batches for one in part] in ([0, 1, 2], [])
    end.set()


def test_an_error_of_the_source_comes_after_what_was_before_it():
    def broken():
        yield 1
        yield 2
        raise PtaError("the pipe burst")

    batches = prepare_in_batches(broken(), itself, batch=64)
    assert [one.item for one in next(batches)] == [1, 2]
    with pytest.raises(PtaError, match="the pipe burst"):
        next(batches)


def test_a_programming_error_is_not_taken_for_bad_input():
    with pytest.raises(ZeroDivisionError):
        list(prepare_in_batches([0], lambda number: 1 / number, batch=1))
