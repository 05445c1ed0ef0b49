"""Any sequence of operations is the same in a service that keeps no idle stream in memory."""

import random
import tempfile
from pathlib import Path

import pytest
from effort import repeated
from evicting import NAMES, Both
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import CLASSIFIER

from pta.serve.journal.check import check_folder
from pta.serve.requests import SampleLabel

CONFLICTING = "another body each time"
STREAM = st.sampled_from(NAMES)
SOURCES = st.sampled_from(["kitchen", "street"])
SEEDS, COUNTS = st.integers(0, 999), st.integers(1, 3)
LABELS = st.tuples(st.integers(1, 25), st.sampled_from([None, *CLASSIFIER.class_names]))
LEARN = st.builds(
    lambda name, seed, **others: ("ask", name, {"given": seed, **others}),
    STREAM,
    SEEDS,
    count=COUNTS,
    source=st.none() | SOURCES,
    learn=st.sampled_from(["try", "try", "try", "true", "false"]),
    id=st.none() | st.sampled_from(["a", "id", CONFLICTING]),
    top=st.sampled_from([0, 2]),
)


def operation(kind, **argument):
    return st.tuples(st.just(kind), STREAM, st.fixed_dictionaries(argument))


OPERATIONS = st.one_of(
    LEARN,
    LEARN,
    LEARN,
    LEARN,
    operation("rewind", sequence=st.integers(0, 25)),
    operation("unlearn", source=SOURCES, erase=st.booleans()),
    operation("undo"),
    st.one_of(operation("freeze"), operation("thaw"), operation("delete")),
    operation("reset", classes=st.none() | st.lists(st.sampled_from(CLASSIFIER.class_names), min_size=1, max_size=2)),
    operation("answers", answers=st.sampled_from(["adapted", "zero-shot"])),
    operation("label", labels=st.lists(LABELS, min_size=1, max_size=3)),
    operation("import", source=STREAM),
    st.sampled_from([("restart", "", {}), ("compare", "", {})]),
)


def apply(both, kind, name, argument):
    """Do the same to both services; refusals are compared, too. Most ids come with the same request every time."""
    if kind == "ask":
        id = argument["id"]
        same = {"given": len(id), "count": 2, "source": "street", "learn": "try"} if id and id != CONFLICTING else {}
        both.ask(**argument | same, stream=name)
    elif kind == "restart":
        both.restart()
    elif kind == "compare":
        both.compare(health=False)
    elif kind == "import":
        both.same(lambda service: service.operate(name, "import", content=service.export(argument["source"])))
    elif kind == "label":
        labels = [SampleLabel(label, sequence) for sequence, label in argument["labels"]]
        both.operate(name, "label", labels=labels)
    else:
        both.operate(name, kind, **argument)


def run(operations):
    with tempfile.TemporaryDirectory() as folder:
        with Both(Path(folder)) as both:
            for name in NAMES:
                both.same(lambda service, name=name: service.create(name))
            for one in operations:
                apply(both, *one)
            both.compare(health=False)  # a monitor need not be on the disk at a restart
            both.restart()
            both.compare(health=False)
            for number, name in enumerate(NAMES):
                both.ask(number, stream=name, learn="try")
            both.compare(health=False)
        assert all(check_folder(one) == [] for one in both.folders.values())


@settings(max_examples=repeated(40))
@given(st.lists(OPERATIONS, min_size=8, max_size=30))
def test_any_sequence_of_operations_is_the_same_with_eviction(operations):
    run(operations)


@pytest.mark.extensive
@pytest.mark.parametrize("seed", range(20))
def test_a_long_sequence_of_operations_is_the_same_with_eviction(seed):
    chosen = random.Random(seed)
    names = CLASSIFIER.class_names

    def one():
        name, source = chosen.choice(NAMES), chosen.choice(["kitchen", "street"])
        label = [(chosen.randrange(1, 60), chosen.choice([None, *names])) for _ in range(chosen.randrange(1, 3))]
        others = (
            ("rewind", {"sequence": chosen.randrange(60)}),
            ("unlearn", {"source": source, "erase": chosen.random() < 0.3}),
            ("undo", {}),
            ("freeze", {}),
            ("thaw", {}),
            ("thaw", {}),
            ("reset", {"classes": chosen.choice([None, [chosen.choice(names)]])}),
            ("answers", {"answers": chosen.choice(["adapted", "zero-shot"])}),
            ("label", {"labels": label}),
            ("import", {"source": chosen.choice(NAMES)}),
            ("delete", {}),
            ("restart", {}),
        )
        if chosen.random() < 0.75:
            id = chosen.choice([None, None, "i" * chosen.randrange(1, 20), CONFLICTING])
            given = {"given": chosen.randrange(999), "count": chosen.randrange(1, 4), "source": source, "id": id}
            return "ask", name, given | {"learn": chosen.choice(["try", "true", "false"])}
        kind, argument = chosen.choice(others)
        return kind, name, argument

    run([one() for _ in range(200)])
