"""Batches that are decoded, begun and given out at the same time keep their order and lose nothing."""

import threading

import pytest
from processes import PATIENCE

from pta.run.feed.batches import in_stages


@pytest.mark.parametrize("ahead", [0, 1, 2])
@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_every_batch_goes_through_both_stages_in_order(count, ahead):
    given = list(in_stages(range(count), lambda batch: batch * 10, lambda decoded: decoded + 1, ahead))
    assert given == [10 * batch + 1 for batch in range(count)]


@pytest.mark.parametrize("ahead", [0, 1])
def test_an_error_of_the_source_comes_after_what_was_before_it(ahead):
    def source():
        yield from (1, 2, 3)
        raise OSError("the pipe burst")

    given = []
    with pytest.raises(OSError, match="the pipe burst"):
        given.extend(in_stages(source(), lambda batch: batch, lambda decoded: decoded, ahead))
    assert given == [1, 2, 3]


def test_one_batch_is_decoded_and_one_begun_while_another_is_in_use():
    decoded, begun, both = [], [], threading.Semaphore(0)

    def decode(batch):
        decoded.append(batch)
        both.release()
        return batch

    for given in in_stages(range(6), decode, lambda batch: begun.append(batch) or batch, ahead=1):
        for _ in range(3 if given == 0 else given < 4):
            assert both.acquire(timeout=PATIENCE)
        assert decoded == list(range(min(6, given + 3)))
        assert begun == list(range(min(6, given + 2)))


def test_nothing_is_decoded_ahead_where_that_would_delay_answers():
    decoded = []
    for given in in_stages(range(3), lambda batch: decoded.append(batch) or batch, lambda batch: batch, ahead=0):
        assert decoded == list(range(given + 1))
