"""Any sequence of operations on a stream gives the state of a list that is replayed."""

import tempfile
from itertools import compress
from pathlib import Path

import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import wait_for
from serving import CLASSES, CLASSIFIER, ask, features, live_stream, open_service, state_of

from pta import create_adapter
from pta.core.labels import UNKNOWN
from pta.serve.requests import Refused, SampleLabel
from pta.serve.streams.answering import rounded, samples_from

SOURCES = st.sampled_from(["kitchen", "street", None])
LABELS = st.none() | st.integers(0, CLASSES - 1)
OPERATIONS = st.one_of(
    st.tuples(st.just("learn"), st.integers(0, 999), st.integers(1, 3), SOURCES),
    st.tuples(st.just("learn"), st.integers(0, 999), st.integers(1, 3), SOURCES),
    st.tuples(st.just("rewind"), st.integers(0, 40)),
    st.tuples(st.just("unlearn"), st.sampled_from(["kitchen", "street"])),
    st.tuples(st.just("reset"), st.none() | st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=2)),
    st.tuples(st.sampled_from(["undo", "freeze", "thaw", "restart", "settle"])),
    st.tuples(st.just("label"), st.lists(st.tuples(st.integers(1, 40), LABELS), min_size=1, max_size=3)),
    st.tuples(st.just("erase"), st.sampled_from(["kitchen", "street"])),
)


def named(kind, argument=None):
    """The argument of an operation, as the service takes it."""
    if kind == "reset" and argument is not None:
        return {"classes": [CLASSIFIER.class_names[number] for number in argument]}
    if kind == "label":
        names = ((n, None if one is None else CLASSIFIER.class_names[one]) for n, one in argument)
        return {"labels": [SampleLabel(name, sequence) for sequence, name in names]}
    if kind in ("unlearn", "erase"):
        return {"source": argument, "erase": kind == "erase"}
    return {}


NAMED = {"erase": "unlearn"}
LIFTABLE = ("reset", "rewind", "unlearn", "erase", "label")


def settle(service):
    """Wait until the state has come to its labels."""
    live = live_stream(service)
    wait_for(lambda: not live.waiting)


class ListModel:
    """Rows (kind, …, sequence) in a list, and a state that is computed from all of them whenever it is asked for."""

    def __init__(self):
        self.rows, self.undone, self.frozen = [], set(), False

    def lifted(self, row):
        after = self.rows[self.rows.index(row) + 1 :]
        rewound = any(r[0] == "rewind" and r[1] < row[-1] and not self.lifted(r) for r in after)
        return row[-1] in self.undone or (rewound and row[0] in ("reset", "rewind"))

    def in_force(self):
        return [r for r in self.rows if r[0] in LIFTABLE and not self.lifted(r)]

    def undoable(self):
        return [row for row in self.in_force() if row[0] != "erase"]

    def labels(self):
        return dict(one for row in self.in_force() if row[0] == "label" for one in row[1])

    def is_erased(self, sequence, source):
        return any(row[0] == "erase" and row[1] == source and sequence < row[-1] for row in self.rows)

    def is_sample(self, sequence):
        rows = [row for row in self.rows if row[0] == "learn" and row[-1] - row[2] < sequence <= row[-1]]
        return any(not self.is_erased(sequence, row[3]) for row in rows)

    def excluded(self, sequence, source):
        for kind, argument, at in self.in_force():
            if sequence < at and (
                (kind == "reset" and argument is None)
                or (kind in ("unlearn", "erase") and argument == source)
                or (kind == "rewind" and argument < sequence)
            ):
                return True
        return False

    def learn(self, seed, count, source, last):
        assert (last == -1) == self.frozen
        if not self.frozen:
            self.rows.append(("learn", seed, count, source, last))

    def operate(self, kind, argument=None, *, sequence):
        if kind == "undo":
            self.undone.add(self.undoable()[-1][-1])
        self.frozen = {"freeze": True, "thaw": False}.get(kind, self.frozen)
        self.rows.append((kind, argument, sequence))

    def allows(self, kind, argument=None):
        if kind in ("unlearn", "erase"):
            learned = [row for row in self.rows if row[0] == "learn" and row[3] == argument]
            return any(not self.is_erased(row[-1], argument) for row in learned)
        if kind == "label":
            return all(self.is_sample(sequence) for sequence, _ in argument)
        return kind != "undo" or bool(self.undoable())

    def state(self):
        adapter, labels = create_adapter("pta", CLASSIFIER), self.labels()
        for row in self.rows:
            if row[0] == "learn":
                _, seed, count, source, last = row
                numbers = [*range(last - count + 1, last + 1)]
                kept = [not self.excluded(n, source) and labels.get(n, UNKNOWN) is not None for n in numbers]
                if any(kept):
                    known = [labels.get(n, UNKNOWN) for n in compress(numbers, kept)]
                    adapter.step(samples_from(rounded(features(seed, count))[kept]), known)
            elif row[0] == "reset" and row in self.in_force() and row[1] is not None:
                adapter.reset(row[1])
        return adapter.state()


@settings(max_examples=repeated(40))
@given(st.lists(OPERATIONS, max_size=24))
def test_any_sequence_of_operations_equals_a_list_that_is_replayed(operations):
    with tempfile.TemporaryDirectory() as folder:
        service, model = open_service(Path(folder), snapshot_samples=4), ListModel()
        try:
            for kind, *arguments in operations:
                if kind == "learn":
                    seed, count, source = arguments
                    reply = ask(service, seed, count=count, source=source, learn="try")
                    model.learn(seed, count, source, int(reply.outputs["sequence"][-1]))
                elif kind == "restart":
                    service.close()
                    service = open_service(Path(folder), snapshot_samples=4)
                elif kind == "settle":
                    settle(service)
                elif kind == "rewind":
                    to = min(arguments[0], service._journal.last(1)[0])
                    done = service.operate("default", "rewind", sequence=to)
                    model.operate("rewind", to, sequence=done["sequence"])
                elif model.allows(kind, *arguments):
                    done = service.operate("default", NAMED.get(kind, kind), **named(kind, *arguments))
                    model.operate(kind, *arguments, sequence=done["sequence"])
                else:
                    with pytest.raises(Refused):
                        service.operate("default", NAMED.get(kind, kind), **named(kind, *arguments))
            settle(service)
            expected = model.state()
            for name, tensor in state_of(service).items():
                torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-6)
        finally:
            service.close()
