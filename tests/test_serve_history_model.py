"""Any sequence of operations on a stream gives the state of a list that is replayed."""

import tempfile
from pathlib import Path

import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import CLASSES, CLASSIFIER, ask, features, open_service, state_of

from pta import create_adapter
from pta.serve.requests import Refused
from pta.serve.streams.answering import rounded, samples_from

SOURCES = st.sampled_from(["kitchen", "street", None])
OPERATIONS = st.one_of(
    st.tuples(st.just("learn"), st.integers(0, 999), st.integers(1, 3), SOURCES),
    st.tuples(st.just("learn"), st.integers(0, 999), st.integers(1, 3), SOURCES),
    st.tuples(st.just("rewind"), st.integers(0, 40)),
    st.tuples(st.just("unlearn"), st.sampled_from(["kitchen", "street"])),
    st.tuples(st.just("reset"), st.none() | st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=2)),
    st.tuples(st.sampled_from(["undo", "freeze", "thaw", "restart"])),
)


def named(kind, argument=None):
    """The argument of an operation, as the service takes it."""
    if kind == "reset" and argument is not None:
        return {"classes": [CLASSIFIER.class_names[number] for number in argument]}
    return {"source": argument} if kind == "unlearn" else {}


class ListModel:
    """Rows (sequence, kind, …) in a list, and a state that is computed from all of them whenever it is asked for."""

    def __init__(self):
        self.rows, self.undone, self.frozen = [], set(), False

    @property
    def last(self):
        return self.rows[-1][-1] if self.rows else 0

    def lifted(self, row):
        after = self.rows[self.rows.index(row) + 1 :]
        rewound = any(r[0] == "rewind" and r[1] < row[-1] and not self.lifted(r) for r in after)
        return row[-1] in self.undone or (rewound and row[0] in ("reset", "rewind"))

    def in_force(self):
        return [r for r in self.rows if r[0] in ("reset", "rewind", "unlearn") and not self.lifted(r)]

    def excluded(self, sequence, source):
        for kind, argument, at in self.in_force():
            if sequence < at and (
                (kind == "reset" and argument is None)
                or (kind == "unlearn" and argument == source)
                or (kind == "rewind" and argument < sequence)
            ):
                return True
        return False

    def learn(self, seed, count, source):
        if not self.frozen:
            self.rows.append(("learn", seed, count, source, self.last + count))

    def operate(self, kind, argument=None):
        if kind == "undo":
            self.undone.add(self.in_force()[-1][-1])
        self.frozen = {"freeze": True, "thaw": False}.get(kind, self.frozen)
        self.rows.append((kind, argument, self.last + 1))

    def allows(self, kind, argument=None):
        if kind == "unlearn":
            return any(row[0] == "learn" and row[3] == argument for row in self.rows)
        return kind != "undo" or bool(self.in_force())

    def state(self):
        adapter = create_adapter("pta", CLASSIFIER)
        for row in self.rows:
            if row[0] == "learn":
                _, seed, count, source, last = row
                kept = [not self.excluded(last - count + 1 + place, source) for place in range(count)]
                if any(kept):
                    adapter.step(samples_from(rounded(features(seed, count))[kept]))
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
                    ask(service, seed, count=count, source=source, learn="try")
                    model.learn(seed, count, source)
                elif kind == "restart":
                    service.close()
                    service = open_service(Path(folder), snapshot_samples=4)
                elif kind == "rewind":
                    to = min(arguments[0], model.last)
                    service.operate("default", "rewind", sequence=to)
                    model.operate("rewind", to)
                elif model.allows(kind, *arguments):
                    service.operate("default", kind, **named(kind, *arguments))
                    model.operate(kind, *arguments)
                else:
                    with pytest.raises(Refused):
                        service.operate("default", kind, **named(kind, *arguments))
            expected = model.state()
            for name, tensor in state_of(service).items():
                torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-6)
        finally:
            service.close()
