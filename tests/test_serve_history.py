"""What is in force after any operations equals what a list says from which entries are taken away."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st

from pta.core.labels import NONE, UNKNOWN
from pta.serve.journal.rows import OperationRow
from pta.serve.streams.history import LIFTABLE, History, waiting
from pta.serve.streams.labels import label_argument

SOURCES = ("door", "yard", None)


@dataclass
class Model:
    """The meaning of operations, on a list: `tape` is the list of entries that a state is replayed from."""

    log: list = field(default_factory=list)  # (sequence, kind, argument); the argument of a sample is its source
    undone: set = field(default_factory=set)

    def tape(self):
        tape, at = [], {0: []}
        for sequence, kind, argument in self.log:
            if sequence not in self.undone:
                if kind == "rewind":
                    staying = [one for one in self.log if one[1] in ("unlearn", "label")]
                    between = [one for one in staying if argument["to"] < one[0] < sequence]
                    tape = at[argument["to"]] + [one for one in between if one[0] not in self.undone]
                tape = [*tape, (sequence, kind, argument)]
            at[sequence] = tape
        return tape

    def last_in_force(self):
        operations = [one for one in self.tape() if one[1] in LIFTABLE]
        return next((one[0] for one in reversed(operations) if not one[2].get("erase")), None)

    def add(self, kind, argument):
        if kind == "undo":
            self.undone.add(self.last_in_force())
        self.log.append((len(self.log) + 1, kind, argument))

    def state(self):
        """What is learned, in order with its labels, and what happens to the state besides."""
        learned, events, labels = [], [], {}
        for sequence, kind, argument in self.tape():
            if kind == "sample":
                learned.append((sequence, argument))
            elif kind == "unlearn":
                learned = [one for one in learned if one[1] != argument["source"]]
            elif kind == "label":
                for sequences, classes in argument["labels"].values():
                    labels |= dict(zip(sequences, classes, strict=True))
            elif kind == "reset" and "classes" in argument:
                events.append((sequence, kind))
            elif kind in ("reset", "import"):
                learned, events = [], [(sequence, kind)] if kind == "import" else []
        labelled = [(sequence, source, labels.get(sequence, UNKNOWN)) for sequence, source in learned]
        return [one for one in labelled if one[2] != NONE], events


def history(model):
    return History.of(OperationRow(n, float(n), kind, argument) for n, kind, argument in model.log if kind != "sample")


def learned(history, model):
    samples = [(sequence, source) for sequence, kind, source in model.log if kind == "sample"]
    sequences = np.array([s for s, _ in samples], np.int64)
    mask = history.mask(sequences, [source for _, source in samples])
    labels = history.labels_of(sequences)
    labels = [UNKNOWN] * len(samples) if labels is None else labels.tolist()
    rows = zip(samples, labels, mask, strict=True)
    return [(*sample, label) for sample, label, is_excluded in rows if not is_excluded]


def events(history):
    return [(one.sequence, one.kind) for one in history.events]


ACTIONS = st.one_of(
    st.tuples(st.just("sample"), st.sampled_from(SOURCES)),
    st.tuples(st.just("sample"), st.sampled_from(SOURCES)),
    st.tuples(st.sampled_from(["reset", "reset classes", "import", "undo", "undo", "freeze", "thaw"]), st.none()),
    st.tuples(st.sampled_from(["unlearn", "erase"]), st.sampled_from(SOURCES[:2])),
    st.tuples(st.just("rewind"), st.floats(0, 1)),
    st.tuples(st.just("label"), st.dictionaries(st.floats(0, 1), st.sampled_from([NONE, 0, 1]), max_size=3)),
)


def perform(model, kind, value):
    """One action on the model, with the argument that the service would write."""
    if kind == "sample":
        model.add("sample", value)
    elif kind in ("unlearn", "erase"):
        first = next((s for s, kind, source in model.log if kind == "sample" and source == value), None)
        if first is not None:
            model.add("unlearn", {"source": value, "erase": kind == "erase", "first": first})
    elif kind == "label":
        samples = {s: source for s, kind, source in model.log if kind == "sample"}
        chosen = {round(place * len(model.log)): label for place, label in value.items()}
        model.add("label", label_argument({s: (samples[s], label) for s, label in chosen.items() if s in samples}))
    elif kind == "rewind":
        model.add("rewind", {"to": round(value * len(model.log))})
    elif kind != "undo" or model.last_in_force() is not None:
        model.add(kind.split()[0], {"classes": [1]} if kind == "reset classes" else {})


@settings(max_examples=repeated(300), deadline=None)
@given(st.lists(ACTIONS, max_size=25))
def test_any_operations_leave_in_force_what_the_list_leaves(actions):
    model, seen = Model(), {}
    for action in actions:
        perform(model, *action)
        now, expected = history(model), model.state()
        assert (learned(now, model), events(now)) == expected
        assert (now.undoable.sequence if now.undoable else None) == model.last_in_force()
        for until in range(len(model.log) + 1):
            before = tuple([one for one in part if one[0] <= until] for part in expected)
            assert seen.setdefault((until, now.fingerprint(until)), before) == before


def of(*log):
    model = Model()
    for kind, *argument in log:
        model.add(kind, *(argument or [{}]))
    return history(model)


def excludes(history, sequence, source):
    return history.mask(np.array([sequence]), [source])[0]


SAMPLE = ("sample", "door")


def test_a_rewind_over_a_reset_brings_back_what_was_before_and_undo_takes_it_away_again():
    log = [SAMPLE, SAMPLE, ("reset",), SAMPLE]
    assert excludes(of(*log), 1, "door")
    assert not excludes(of(*log, ("rewind", {"to": 2})), 1, "door")
    assert excludes(of(*log, ("rewind", {"to": 2})), 4, "door")
    undone = of(*log, ("rewind", {"to": 2}), ("undo",))
    assert excludes(undone, 1, "door")
    assert not excludes(undone, 4, "door")


def test_unlearning_stays_in_force_through_a_rewind_and_is_for_the_past_alone():
    log = [SAMPLE, ("unlearn", {"source": "door", "first": 1}), SAMPLE, ("rewind", {"to": 1}), SAMPLE]
    assert [excludes(of(*log), n, "door") for n in (1, 3, 5)] == [True, True, False]
    assert not excludes(of(*log), 1, "yard")


def test_an_erasing_unlearn_cannot_be_undone():
    log = [SAMPLE, ("reset",), ("unlearn", {"source": "door", "first": 1, "erase": True})]
    assert of(*log).undoable.kind == "reset"
    assert of(*log, ("undo",)).undoable is None
    assert excludes(of(*log, ("undo",)), 1, "door")


@pytest.mark.parametrize("later", [SAMPLE, ("freeze",), ("unlearn", {"source": "yard", "first": 4}), ("reset",)])
def test_a_fingerprint_stands_until_something_before_it_changes(later):
    log = [SAMPLE, ("import",), SAMPLE]
    assert (of(*log).fingerprint(3) == of(*log, SAMPLE, later).fingerprint(3)) == (later != ("reset",))
    assert of(*log, SAMPLE, ("reset",), ("undo",)).fingerprint(3) == of(*log).fingerprint(3)


LABEL = ("label", {"labels": {"door": ([1], [2])}})


def test_a_fingerprint_has_the_labels_that_have_an_effect_and_no_others():
    log = [SAMPLE, ("sample", "yard"), LABEL]
    plain = of(*log[:2], ("freeze",))
    assert of(*log).fingerprint(3) != plain.fingerprint(3)
    assert of(*log).fingerprint(0) == plain.fingerprint(0)
    assert of(*log, ("undo",)).fingerprint(3) == plain.fingerprint(3)
    without, unlearned = of(*log[:2], ("freeze",), UNLEARN), of(*log, UNLEARN)
    assert unlearned.fingerprint(4) == without.fingerprint(4)


UNLEARN = ("unlearn", {"source": "door", "first": 1})


@pytest.mark.parametrize(
    ("later", "left"),
    [
        ([("freeze",)], [3]),
        ([("rewind", {"to": 1})], []),
        ([("undo",)], []),
        ([LABEL, ("corrected", {"until": 3})], [4]),
        ([LABEL, ("corrected", {"until": 4})], []),
        ([("corrected", {"until": 3}), LABEL, ("reset",)], [5]),
    ],
)
def test_labels_wait_until_a_replay_has_reached_them(later, left):
    model = Model()
    for kind, *argument in (SAMPLE, SAMPLE, LABEL, *later):
        model.log.append((len(model.log) + 1, kind, *(argument or [{}])))
    rows = [OperationRow(n, float(n), kind, argument) for n, kind, argument in model.log if kind != "sample"]
    assert [row.sequence for row in waiting(rows)] == left
    lifted = History.of(rows, lifted=waiting(rows))
    assert [row.sequence for row in lifted.in_force if row.kind == "label" and row.sequence in left] == []


@pytest.mark.parametrize("given", [[], ["zero-shot"], ["zero-shot", "adapted"]])
def test_whose_answers_are_given_changes_with_its_row_and_is_never_lifted(given):
    log = [entry for one in given for entry in (SAMPLE, ("answers", {"answers": one}))]
    history = of(*log, SAMPLE, ("rewind", {"to": 0}))
    assert history.answers == (given or ["adapted"])[-1]
    expected = ["adapted", *given]
    samples = np.arange(1, 2 * len(expected), 2)
    assert history.was_zero_shot(samples).tolist() == [one == "zero-shot" for one in expected]


def test_a_stream_is_frozen_until_it_is_thawed():
    assert of(("freeze",)).frozen
    assert of(("freeze",), ("rewind", {"to": 0})).frozen
    assert not of(("freeze",), ("thaw",)).frozen
    assert not of().frozen
