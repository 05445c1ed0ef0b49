"""Class-keyed caches a batch at a time: at every moment, and afterwards, what a cache of plain lists holds."""

import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st

from pta.core.plain import is_host_readable
from pta.engines.caches import admission as admissions
from pta.engines.caches.admission import EMPTY, admit, admit_nothing, rows_worth_picking

NOTHING = -1


@pytest.fixture(
    scope="module", autouse=True, params=[is_host_readable, lambda _: False], ids=["host-readable", "on a device"]
)
def _readable(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admissions, "is_host_readable", request.param)
        yield


def batches(classes):
    """Samples as (class, score, may enter): few scores, so that many are equal, and EMPTY is among them."""
    scores = st.integers(0, 5) | st.just(EMPTY)
    return st.lists(st.tuples(st.integers(0, classes - 1), scores, st.booleans()), min_size=1, max_size=25)


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


def admission_of(scores, samples):
    labels, new, may_enter = (torch.tensor(column) for column in zip(*samples, strict=True))
    return admit(scores, labels, new.double(), may_enter)


def numbers_at(admission, numbers, new_numbers, time):
    """What the admission says is in the cache at a time, as (class, number)."""
    times, found = torch.tensor([time]), set()
    for m, rows, present in admission.old_at(times):
        labels = torch.arange(len(numbers))[rows][present[:, 0]]
        found |= {(int(label), int(numbers[label, m])) for label in labels}
    ever, present = admission.new_at(times)
    labels, entered = (
        of_items[ever][present[:, 0]] for of_items in (admission.classes, new_numbers[admission.samples])
    )
    return found | {(int(label), int(number)) for label, number in zip(labels, entered, strict=True)}


@settings(max_examples=repeated(60))
@given(st.data(), st.integers(1, 5), st.integers(0, 4))
def test_the_cache_holds_what_plain_lists_hold_at_every_moment(data, classes, slots):
    scores, numbers = fresh(classes, slots)
    lists, count = ListCache(classes, slots), 0
    for _ in range(3):
        samples = data.draw(batches(classes))
        new_numbers = torch.arange(count, count + len(samples))
        admission = admission_of(scores, samples)
        assert numbers_at(admission, numbers, new_numbers, -1) == lists.numbers()
        for time, (label, score, may_enter) in enumerate(samples):
            if may_enter and score < EMPTY:
                lists.insert(label, score, count + time)
            assert numbers_at(admission, numbers, new_numbers, time) == lists.numbers()
        admission.store(numbers, new_numbers[admission.samples])
        admission.store(scores, admission.scores)
        count += len(samples)
        for label, kept in enumerate(lists.lists):
            free = slots - len(kept)
            assert numbers[label].tolist() == [number for _, number in kept] + [NOTHING] * free
            assert scores[label].tolist() == [score for score, _ in kept] + [EMPTY] * free


@settings(max_examples=repeated(30))
@given(st.data(), st.integers(1, 5), st.integers(1, 4))
def test_several_moments_at_once_are_each_by_itself(data, classes, slots):
    scores, _ = fresh(classes, slots)
    for _ in range(2):
        samples = data.draw(batches(classes))
        admission = admission_of(scores, samples)
        times, items = torch.arange(-1, len(samples)), torch.arange(len(admission.scores))
        ever, present = admission.new_at(times)
        for column, time in enumerate(times):
            alone, inside = admission.new_at(time[None])
            assert torch.equal(items[ever][present[:, column]], items[alone][inside[:, 0]])
        old = torch.zeros(classes, slots, len(times), dtype=torch.bool)
        for m, rows, stays in admission.old_at(times):
            old[rows, m] = stays
        assert torch.equal(old, times < admission.old_leaves[:, :, None])
        admission.store(scores, admission.scores)


def test_nothing_admitted_changes_nothing():
    scores, _ = fresh(3, 2)
    scores[1, 0] = 0.5
    admission = admit_nothing(scores, 4)
    assert admission.old_leaves.tolist() == [[-1, -1], [4, -1], [-1, -1]]
    before = scores.clone()
    admission.store(scores, admission.scores)
    assert torch.equal(scores, before)


def test_admitting_alone_changes_nothing():
    scores, _ = fresh(2, 2)
    admission_of(scores, [(1, 2, True), (1, 1, True)])
    assert (scores == EMPTY).all()


def test_rows_are_picked_if_they_are_few_and_can_be_read_for_free():
    few, many = torch.tensor([False, True, False, False]), torch.tensor([False, True, True, False])
    assert rows_worth_picking(many) == slice(None)
    if admissions.is_host_readable(few):
        assert rows_worth_picking(few).tolist() == [1]
    else:
        assert rows_worth_picking(few) == slice(None)
