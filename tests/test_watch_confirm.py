"""An answer changes after so many equal ones in a row: compared with a slow twin that looks at the whole past."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pta.errors import InvalidParameter
from pta.run.watch.confirm import Confirm, Confirmation

NAMES = ("open", "shut", "half open")


@st.composite
def recordings(draw):
    """Probabilities of pictures by class, best first, that stay for a while, as those of a camera."""
    pictures = []
    for _ in range(draw(st.integers(0, 12))):
        weights = [draw(st.integers(0, 20)) for _ in NAMES]
        total = max(1, sum(weights))
        known = {name: weight / total for name, weight in zip(NAMES, weights, strict=True)}
        ranked = dict(sorted(known.items(), key=lambda one: -one[1])[: draw(st.integers(1, 3))])
        pictures += [ranked] * draw(st.integers(1, 6))
    return pictures


needs = st.builds(Confirmation, st.integers(1, 5), st.floats(0, 1), st.floats(0, 1))


def slow_changes(pictures, need):
    """Which picture changes the answer to what, from the definition."""
    changes = []  # (number of the picture, answer)
    for now in range(len(pictures)):
        since, answer = changes[-1] if changes else (-1, None)
        window = pictures[max(since + 1, now + 1 - need.equal) : now + 1]
        bests = {max(one, key=one.get) for one in window if one} if len(window) == need.equal else set()
        if len(bests) == 1 and (best := bests.pop()) != answer:
            is_sure = all(one[best] >= need.enter for one in window)
            is_left = answer is None or all(one.get(answer, 0) < need.leave for one in window)
            if is_sure and is_left:
                changes.append((now, best))
    return changes


def changes(pictures, confirm):
    return [(number, label) for number, one in enumerate(pictures) if (label := confirm.add(one)) is not None]


@given(recordings(), needs)
@example([{"open": 0.5, "shut": 0.5}] * 3, Confirmation(3, 0.5, 0.5))
def test_changes_are_those_of_the_definition(pictures, need):
    assert changes(pictures, Confirm(need)) == slow_changes(pictures, need)


@given(recordings(), needs)
def test_two_changes_are_never_to_the_same_answer_nor_closer_than_confirm(pictures, need):
    found = changes(pictures, Confirm(need))
    for (before, label), (after, other) in pairwise(found):
        assert label != other
        assert after - before >= need.equal


@given(recordings(), needs, st.integers(0, 72))
def test_a_restart_at_any_picture_neither_repeats_nor_loses_a_change(pictures, need, stop):
    confirm = Confirm(need)
    first = changes(pictures[:stop], confirm)
    second = changes(pictures[stop:], Confirm.unpacked(need, confirm.packed()))
    assert first + [(stop + number, label) for number, label in second] == changes(pictures, Confirm(need))


def test_a_picture_between_two_answers_keeps_the_old_one():
    unsure = [{"open": 0.55, "shut": 0.45}, {"shut": 0.55, "open": 0.45}] * 20
    confirm = Confirm(Confirmation(2, enter=0.5, leave=0.4), label="open")
    assert changes(unsure, confirm) == []
    assert changes([{"shut": 0.7, "open": 0.3}] * 2, confirm) == [(1, "shut")]


def test_answers_before_and_after_a_gap_do_not_confirm_each_other():
    confirm = Confirm(Confirmation(2), label="open")
    assert confirm.add({"shut": 0.9}) is None
    confirm.begin_again()
    assert changes([{"shut": 0.9}] * 2, confirm) == [(1, "shut")]


@pytest.mark.parametrize("wrong", [{"equal": 0}, {"equal": 2.5}, {"enter": 1.5}, {"leave": "often"}])
def test_impossible_needs_are_refused(wrong):
    with pytest.raises(InvalidParameter, match=r"confirm|enter|leave"):
        Confirmation(**wrong)


@pytest.mark.parametrize("kept", [{"label": 3, "candidate": None, "seen": 0}, {"label": "open"}])
def test_a_damaged_record_is_refused(kept):
    with pytest.raises((TypeError, KeyError)):
        Confirm.unpacked(Confirmation(), kept)
