"""Class-keyed caches a batch at a time: at every moment, and afterwards, what a cache of plain lists holds."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pta.engines import admission as admissions
from pta.engines.admission import EMPTY, admit, picked
from pta.engines.host_readable import is_host_readable

NOTHING = -1


@pytest.fixture(
    scope="module", autouse=True, params=[is_host_readable, lambda _: False], ids=["looking", "without looking"]
)
def _looking(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admissions, "is_host_readable", request.param)
        yield


@st.composite
def batches(draw, classes):
    """A batch size, and items as (time, class, score): few scores, so that many are equal, and EMPTY is among them."""
    size = draw(st.integers(1, 12))
    item = st.tuples(st.integers(0, size - 1), st.integers(0, classes - 1), st.integers(0, 5) | st.just(EMPTY))
    return size, sorted(draw(st.lists(item, max_size=25)), key=lambda item: item[0])


class ListCache:
    """For each class a list of (score, number), the best first."""

    def __init__(self, classes, slots):
        self.slots = slots
        self.lists = [[] for _ in range(classes)]

    def insert(self, label, score, number):
        kept = self.lists[label]
        if len(kept) < self.slots:
            kept.append((score, number))
        elif self.slots and score < kept[-1][0]:
            kept[-1] = (score, number)
        kept.sort(key=lambda item: item[0])

    def numbers(self):
        return {(label, number) for label, kept in enumerate(self.lists) for _, number in kept}


def fresh(classes, slots):
    scores = torch.full((classes, slots), EMPTY, dtype=torch.float64)
    return scores, torch.full((classes, slots), NOTHING)


def admission_of(scores, items, size):
    times, labels = (torch.tensor([item[k] for item in items], dtype=torch.int64) for k in range(2))
    return admit(scores, times, labels, torch.tensor([item[2] for item in items], dtype=torch.float64), size)


def numbers_at(admission, numbers, new_numbers, time):
    """What the admission says is in the cache at a time, as (class, number)."""
    times, found = torch.tensor([time]), set()
    for m, rows, present in admission.old_at(times):
        labels = torch.arange(len(numbers))[rows][present[:, 0]]
        found |= {(int(label), int(numbers[label, m])) for label in labels}
    ever, present = admission.new_at(times)
    inside = torch.arange(len(new_numbers))[ever][present[:, 0]]
    return found | {(int(admission.classes[e]), int(new_numbers[e])) for e in inside}


@settings(max_examples=30)
@given(st.data(), st.integers(1, 5), st.integers(0, 4))
def test_the_cache_holds_what_plain_lists_hold_at_every_moment(data, classes, slots):
    scores, numbers = fresh(classes, slots)
    lists, count = ListCache(classes, slots), 0
    for _ in range(3):
        size, items = data.draw(batches(classes))
        new_numbers = torch.arange(count, count + len(items))
        admission = admission_of(scores, items, size)
        assert numbers_at(admission, numbers, new_numbers, -1) == lists.numbers()
        for time in range(size):
            for (when, label, score), number in zip(items, new_numbers.tolist(), strict=True):
                if when == time and score < EMPTY:
                    lists.insert(label, score, number)
            assert numbers_at(admission, numbers, new_numbers, time) == lists.numbers()
        admission.store(numbers, new_numbers)
        admission.store(scores, admission.scores)
        count += len(items)
        for label, kept in enumerate(lists.lists):
            free = slots - len(kept)
            assert numbers[label].tolist() == [number for _, number in kept] + [NOTHING] * free
            assert scores[label].tolist() == [score for score, _ in kept] + [EMPTY] * free


@settings(max_examples=60)
@given(st.data(), st.integers(1, 5), st.integers(0, 4))
def test_what_is_not_to_enter_changes_nothing(data, classes, slots):
    scores, _ = fresh(classes, slots)
    for _ in range(2):
        size, items = data.draw(batches(classes))
        enters = torch.tensor([score < EMPTY for _, _, score in items], dtype=torch.bool)
        marked, plain = (admission_of(scores, given_, size) for given_ in (items, [i for i in items if i[2] < EMPTY]))
        assert torch.equal(marked.old_leaves, plain.old_leaves)
        stays, alone = ((it.leaves - it.arrives).clamp(min=0) for it in (marked, plain))
        assert torch.equal(stays[enters], alone)
        assert not stays[~enters].any()
        other = scores.clone()
        marked.store(scores, marked.scores)
        plain.store(other, plain.scores)
        assert torch.equal(scores, other)


@settings(max_examples=30)
@given(st.data(), st.integers(1, 5), st.integers(1, 4))
def test_several_moments_at_once_are_each_by_itself(data, classes, slots):
    scores, _ = fresh(classes, slots)
    for _ in range(2):
        size, items = data.draw(batches(classes))
        admission = admission_of(scores, items, size)
        times = torch.arange(-1, size)
        ever, present = admission.new_at(times)
        for column, time in enumerate(times):
            alone, inside = admission.new_at(time[None])
            everyone = torch.arange(len(items))
            assert torch.equal(everyone[ever][present[:, column]], everyone[alone][inside[:, 0]])
        old = torch.zeros(classes, slots, len(times), dtype=torch.bool)
        for m, rows, stays in admission.old_at(times):
            old[rows, m] = stays
        assert torch.equal(old, times < admission.old_leaves[:, :, None])
        admission.store(scores, admission.scores)


def test_equal_scores_do_not_replace():
    scores, numbers = fresh(1, 1)
    admission = admission_of(scores, [(0, 0, 4), (1, 0, 4), (2, 0, 3)], 3)
    assert admission.leaves.tolist() == [2, 0, 3]
    admission.store(numbers, torch.tensor([10, 11, 12]))
    assert numbers.tolist() == [[12]]


def test_a_batch_without_items_changes_nothing():
    scores, _ = fresh(3, 2)
    scores[1, 0] = 0.5
    admission = admission_of(scores, [], 4)
    assert admission.old_leaves.tolist() == [[-1, -1], [4, -1], [-1, -1]]
    before = scores.clone()
    admission.store(scores, admission.scores)
    assert torch.equal(scores, before)


def test_admitting_alone_changes_nothing():
    scores, _ = fresh(2, 2)
    admission_of(scores, [(0, 1, 2), (0, 1, 1)], 1)
    assert (scores == EMPTY).all()


def test_rows_are_picked_where_it_pays():
    few, many = torch.tensor([False, True, False, False]), torch.tensor([False, True, True, False])
    assert picked(many) == slice(None)
    if admissions.is_host_readable(few):
        assert picked(few).tolist() == [1]
    else:
        assert picked(few) == slice(None)
