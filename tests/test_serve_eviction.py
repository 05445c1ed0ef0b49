"""A service that keeps no idle stream in memory answers and learns as one that keeps all.

PTA_EVICTION_CRASHES says how often a service is killed while it evicts streams (50 times in `make test-all`).
"""

import hashlib
import itertools
import json
import os
import random
import re
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import CLASSIFIER, DIM, ask, features, in_threads, open_service, request, settle
from test_serve_crash import FREQUENT_SNAPSHOTS, Load, kill_under_load, rows_of

from pta import create_adapter
from pta.errors import PtaError
from pta.methods import from_bytes
from pta.methods.state_file import read_monitor
from pta.serve.client import Client
from pta.serve.http.monitoring import Metrics
from pta.serve.journal.check import back_up, check_folder
from pta.serve.requests import Refused, Result, SampleLabel
from pta.serve.streams.answering import samples_from
from pta.serve.streams.stage import one_thread

NAMES = ("default", "hall", "door", "yard", "roof")
NOTHING, EVERYTHING = 1, 2**40  # bytes of streams in memory
PATIENCE = 60.0  # seconds in which idle streams are evicted
UNLIKE = ("time", "id_hash")  # ids that a service makes up are its own
RECENT = ("rate", "latency_ms", "changed", "entropy", "series", "last_answers")  # what a page shows of the last answers
HOLD = {"foreign-input": "hold"}


def wait(happened):
    """Wait for something that the service does soon."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def wait_for_eviction(service):
    """Wait until no stream is in memory but perhaps the last that was asked for."""
    wait(lambda: service.streams_loaded <= 1)


def comparable(value, without=UNLIKE):
    """A value without what two services need not share: times, and the ids that they made up."""
    if isinstance(value, Result):
        value = {name: one for name, one in vars(value).items() if name != "id"}
    if isinstance(value, dict):
        return {name: comparable(one, without) for name, one in value.items() if name not in without}
    if isinstance(value, list):
        kept = [one for one in value if not (isinstance(one, dict) and one.get("kind") == "snapshot")]
        return [comparable(one, without) for one in kept]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return repr(value) if isinstance(value, float) else value  # nan is nan


def outcome(call, service, without):
    try:
        return comparable(call(service), without)
    except Refused as refused:
        return refused.status, re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "then", str(refused))


class Both:
    """Two services that are given the same: one evicts every idle stream, and one never evicts any."""

    def __init__(self, folder, **settings):
        self.folders = {name: folder / name for name in ("evicting", "keeping")}
        self._settings = {"auto_create": 100, **settings}
        self.open()

    def open(self):
        self.evicting = open_service(self.folders["evicting"], stream_memory=NOTHING, **self._settings)
        self.keeping = open_service(self.folders["keeping"], stream_memory=EVERYTHING, **self._settings)

    def close(self):
        for service in self:
            service.close()

    def restart(self):
        self.close()
        self.open()

    def __iter__(self):
        return iter((self.evicting, self.keeping))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def same(self, call, without=UNLIKE):
        """What a call gives with both services, or how it is refused; it must be the same."""
        one, other = (outcome(call, service, without) for service in self)
        assert one == other
        for service in self:
            settle(service)
        return one

    def ask(self, given, **others):
        return self.same(lambda service: ask(service, given, **others))

    def operate(self, name, operation, **argument):
        done = self.same(lambda service: service.operate(name, operation, **argument))
        if operation == "label":
            self.follow_labels(name)
        return done

    def follow_labels(self, name):
        """Wait until the states have come to their labels."""
        for service in self:
            wait(lambda service=service: not service.summary(name)["corrections"]["waiting"])

    def compare(self, *, health=True):
        """Everything that can be asked about all streams: states to the last bit, rows, summaries, lists, metrics."""
        without = (*UNLIKE, *RECENT, *(() if health else ("health",)))
        listed = self.same(lambda service: service.streams())
        for stream in listed:
            name = stream["name"]
            self.same(lambda service, name=name: service.export(name))
            self.same(lambda service, name=name: service.rows(name, 0, 4096))
            summary = self.same(lambda service, name=name: service.summary(name), without)
            assert stream.items() <= summary.items()
        assert self.same(lambda service: service.streams()) == listed
        if health:
            self.same(stream_metrics)
        return {stream["name"]: stream for stream in listed}


def stream_metrics(service):
    """The lines of /metrics that name a stream, and how many there are."""
    lines = Metrics(service, per_stream=True).text().decode().splitlines()
    return sorted(line for line in lines if line.startswith(("pta_stream_", "pta_streams ")))


@pytest.fixture
def both(tmp_path):
    with Both(tmp_path) as both:
        yield both


def learn_in_turn(both, rounds=4, streams=NAMES, **others):
    """Some samples of every stream, one stream after another, so that each is loaded again in every round."""
    for turn, (number, name) in itertools.product(range(rounds), enumerate(streams)):
        both.ask(100 * turn + number, stream=name, count=1 + (turn + number) % 3, **others)


# -- any operations ----------------------------------------------------------------------------------------------------

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
    id=st.none() | st.sampled_from(["a", "b"]),
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
    """Do the same to both services; refusals are compared, too."""
    if kind == "ask":
        both.ask(**argument, stream=name)
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
    with tempfile.TemporaryDirectory() as folder, Both(Path(folder)) as both:
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
    for folder in both.folders.values():
        assert not folder.exists() or check_folder(folder) == []


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
            id = chosen.choice([None, f"id {chosen.randrange(10)}"])
            given = {"given": chosen.randrange(999), "count": chosen.randrange(1, 4), "source": source, "id": id}
            return "ask", name, given | {"learn": chosen.choice(["try", "true", "false"])}
        kind, argument = chosen.choice(others)
        return kind, name, argument

    run([one() for _ in range(200)])


# -- one thing after another -------------------------------------------------------------------------------------------


def test_idle_streams_leave_memory_and_looking_at_lists_brings_none_back(both):
    names = [f"camera-{number}" for number in range(30)]
    learn_in_turn(both, 2, names)
    wait_for_eviction(both.evicting)
    assert both.keeping.streams_loaded == len(names) + 1
    listed = both.same(lambda service: service.streams())
    assert [stream["name"] for stream in listed] == ["default", *names]
    both.same(stream_metrics)
    assert both.evicting.streams_loaded <= 1
    assert f"\npta_streams_loaded {both.evicting.streams_loaded}" in Metrics(both.evicting).text().decode()
    both.compare()
    wait_for_eviction(both.evicting)


def test_a_start_loads_no_stream_that_is_not_asked_for(both):
    learn_in_turn(both)
    states = {name: both.keeping.export(name) for name in NAMES}
    both.restart()
    assert all(service.streams_loaded <= 1 for service in both)
    listed = both.same(lambda service: service.streams())
    assert [(stream["name"], stream["position"]) for stream in listed] == [
        (name, from_bytes(states[name], CLASSIFIER).position) for name in NAMES
    ]
    assert {name: both.evicting.export(name) for name in NAMES} == states
    both.compare(health=False)


@pytest.mark.parametrize("method", ["wpta", "tda", "dota"])
def test_other_methods_are_the_same_with_eviction(tmp_path, method):
    with Both(tmp_path, method=method) as both:
        learn_in_turn(both, 6)
        both.operate("hall", "rewind", sequence=4)
        learn_in_turn(both, 2)
        both.compare()
        both.restart()
        both.compare(health=False)


def test_rewind_undo_and_unlearning_of_evicted_streams(both):
    learn_in_turn(both, 3, source="kitchen")
    learn_in_turn(both, 3, source="street")
    for name in NAMES[:4]:
        wait_for_eviction(both.evicting)
        both.operate(name, "rewind", sequence=3)
    learn_in_turn(both, 1, source="kitchen")
    both.operate("default", "undo")
    both.operate("hall", "unlearn", source="street")
    both.operate("door", "unlearn", source="kitchen", erase=True)
    both.compare()
    both.operate("hall", "undo")
    both.operate("door", "undo")
    both.operate("roof", "reset", classes=CLASSIFIER.class_names[:2])
    learn_in_turn(both, 1)
    both.compare()
    both.restart()
    both.compare(health=False)


def test_a_dry_run_counts_the_samples_of_an_evicted_stream(both):
    learn_in_turn(both, 4, source="kitchen")
    wait_for_eviction(both.evicting)
    assert both.operate("hall", "rewind", sequence=2, dry_run=True)["samples"] > 0
    wait_for_eviction(both.evicting)
    assert both.operate("door", "unlearn", source="kitchen", dry_run=True)["samples"] > 0
    both.compare()


def test_a_stream_that_is_deleted_and_made_again_is_empty(both):
    learn_in_turn(both, id="the same everywhere")
    for name in ("hall", "default"):
        wait_for_eviction(both.evicting)
        both.operate(name, "delete")
    assert not any(stream["name"] == "hall" for stream in both.same(lambda service: service.streams()))
    wait_for_eviction(both.evicting)
    assert not both.ask(7, stream="hall", id="the same everywhere")["repeated"]
    learn_in_turn(both, 1, ("door", "hall", "default"))
    assert both.compare()["hall"]["position"] < both.compare()["door"]["position"]
    both.restart()
    both.compare(health=False)


def test_labels_of_evicted_streams_are_learned_and_first_answers_are_repeated(both):
    first = {}
    for turn, (number, name) in itertools.product(range(4), enumerate(NAMES)):
        first[turn, name] = both.ask(100 * turn + number, stream=name, count=2, id=f"request {turn}")
    for name in NAMES[:3]:
        wait_for_eviction(both.evicting)
        labels = [SampleLabel(CLASSIFIER.class_names[2], 1), SampleLabel(None, id="request 2", place=1)]
        both.operate(name, "label", labels=labels)
    learn_in_turn(both, 1)
    both.compare()
    for (turn, name), answer in first.items():
        again = both.ask(100 * turn + NAMES.index(name), stream=name, count=2, id=f"request {turn}")
        assert again["repeated"]
        assert again["outputs"] == answer["outputs"]
    both.operate("hall", "undo")
    both.compare()
    both.restart()
    both.compare(health=False)


def test_labels_that_wait_when_their_stream_could_be_evicted_are_not_lost(tmp_path, monkeypatch):
    with open_service(tmp_path, stream_memory=NOTHING, auto_create=9) as service:
        for seed in range(8):
            ask(service, seed, stream="hall", count=2)
        labels = [SampleLabel(None, sequence) for sequence in (2, 5, 9)]
        service.operate("hall", "label", labels=labels)
        for seed in range(40):  # other streams have their turns meanwhile
            ask(service, seed, stream=NAMES[2 + seed % 3])
        wait(lambda: not service.summary("hall")["corrections"]["waiting"])
        assert service.summary("hall")["position"] == 13
        live = service.export("hall")
    with open_service(tmp_path, stream_memory=EVERYTHING) as service:
        assert service.export("hall") == live


def test_an_id_is_learned_once_although_its_stream_was_evicted(both):
    learn_in_turn(both, 3, id=None)
    answers = {name: both.ask(5, stream=name, id="the same", count=3) for name in NAMES}
    positions = {name: both.compare()[name]["position"] for name in NAMES}
    for name in (*NAMES, *NAMES):
        wait_for_eviction(both.evicting)
        again = both.ask(5, stream=name, id="the same", count=3)
        assert again == answers[name] | {"repeated": True}
        assert both.ask(6, stream=name, id="the same", count=3)[0] == 409
    assert {name: both.compare()[name]["position"] for name in NAMES} == positions


def test_an_id_that_many_send_at_once_is_learned_once_while_streams_come_and_go(tmp_path):
    with open_service(tmp_path, stream_memory=NOTHING, auto_create=20) as service:
        for turn in range(10):
            name = f"camera-{turn % 4}"
            replies = in_threads(8, lambda _, turn=turn, name=name: ask(service, turn, stream=name, id=f"{turn}"))
            assert sum(not reply.repeated for reply in replies) == 1
            assert len({reply.outputs["sequence"].item() for reply in replies}) == 1
        assert sorted(one["position"] for one in service.streams()) == [0, 2, 2, 3, 3]


def test_frozen_and_shadowed_streams_stay_so(both):
    learn_in_turn(both)
    both.operate("hall", "freeze")
    both.operate("door", "answers", answers="zero-shot")
    learn_in_turn(both, 2, learn="try", top=2, logits=True)
    wait_for_eviction(both.evicting)
    assert both.ask(1, stream="hall", learn="true")[0] == 409
    shadowed = both.ask(1, stream="door", top=3)["outputs"]
    assert shadowed["label"] == shadowed["zero_shot_label"]
    listed = both.compare()
    assert [name for name, stream in listed.items() if stream["frozen"]] == ["hall"]
    assert [name for name, stream in listed.items() if stream["answers"] == "zero-shot"] == ["door"]
    both.restart()
    assert both.ask(1, stream="hall", learn="true")[0] == 409
    both.operate("hall", "thaw")
    learn_in_turn(both, 1)
    both.compare(health=False)


def test_a_quota_counts_the_samples_that_a_stream_learned_before_it_was_evicted(tmp_path):
    while time.monotonic() % 60 > 50:  # a quota is for a minute of this clock
        time.sleep(0.1)
    with Both(tmp_path, quota=4) as both:
        for name in NAMES:
            both.ask(1, stream=name, count=3)
        wait_for_eviction(both.evicting)
        for name in NAMES:
            assert both.ask(2, stream=name, count=2, learn="true")[0] == 429
            assert not both.ask(2, stream=name, count=2, learn="try")["learned"]


def test_a_version_changes_with_every_group_although_the_stream_was_evicted(both):
    seen = []
    for seed in range(6):
        both.ask(seed, stream="hall")
        seen.append(both.evicting.version("hall"))
        learn_in_turn(both, 1, ("door", "yard"))
        wait_for_eviction(both.evicting)
    assert len(set(seen)) == len(seen)


def test_exported_and_imported_states_of_evicted_streams(both):
    learn_in_turn(both)
    content = both.same(lambda service: service.export("hall"))
    for name in ("door", "yard"):
        wait_for_eviction(both.evicting)
        both.operate(name, "import", content=content)
    wait_for_eviction(both.evicting)
    assert both.same(lambda service: service.export("door")) == content
    learn_in_turn(both, 3)
    both.compare()
    both.operate("yard", "undo")
    both.restart()
    learn_in_turn(both, 1)
    both.compare(health=False)


def test_without_a_journal_no_stream_is_lost():
    services = [open_service(None, stream_memory=memory, auto_create=9) for memory in (NOTHING, EVERYTHING)]
    try:
        for turn, name in itertools.product(range(4), NAMES):
            one, other = (ask(service, turn, stream=name, count=3) for service in services)
            assert comparable(one) == comparable(other)
        for name in NAMES:
            one, other = (service.export(name) for service in services)
            assert one == other
            assert from_bytes(one, CLASSIFIER).position == 12
    finally:
        for service in services:
            service.close()


def test_recent_answers_of_a_page_are_those_of_a_stream_that_stayed_in_memory(both):
    for turn, name in itertools.product(range(5), NAMES[:3]):
        both.ask(turn, stream=name, count=40)
    wait_for_eviction(both.evicting)
    for name in NAMES[:3]:
        both.same(lambda service, name=name: service.summary(name), (*UNLIKE, "rate", "latency_ms"))


# -- alarms ------------------------------------------------------------------------------------------------------------


def foreign(seed, count=64):
    """Samples near no anchor."""
    return np.random.default_rng(seed).standard_normal((count, DIM)).astype(np.float32)


def alarms(service, name):
    return {alarm["kind"]: alarm["reaction"] for alarm in service.summary(name)["health"]["alarms"]}


@pytest.mark.parametrize("reaction", ["hold", "zero-shot", "note"])
def test_alarms_of_evicted_streams_rise_and_end_as_those_of_others(tmp_path, reaction):
    flooded = NAMES[:2]
    with Both(tmp_path, reactions={"foreign-input": reaction}) as both:
        for turn, name in itertools.product(range(12), NAMES[:3]):
            both.ask(turn, stream=name, count=64)
        for turn in range(8):
            for name in flooded:
                both.ask(foreign(turn), stream=name, learn="try")
            both.ask(100 + turn, stream="door", count=64)
        wait_for_eviction(both.evicting)
        for name in flooded:
            assert alarms(both.evicting, name).get("foreign-input") == reaction
        assert alarms(both.evicting, "door") == alarms(both.keeping, "door") == {}
        both.compare()
        for turn in range(10):
            for name in flooded:
                both.ask(100 + turn, stream=name, count=64, learn="try")
        assert "foreign-input" not in alarms(both.evicting, "hall")
        both.compare()


def test_a_cap_counts_the_samples_of_a_source_that_came_before_an_eviction(tmp_path):
    with Both(tmp_path, reactions={"one-source": "cap"}) as both:
        for turn, name in itertools.product(range(12), NAMES[:2]):
            for number in range(4):
                both.ask(10 * turn + number, stream=name, count=16, source=f"door {number}")
        for turn, name in itertools.product(range(20), NAMES[:2]):
            both.ask(1000 + turn, stream=name, count=16, source="door 1", learn="try")
        both.compare()


def test_an_alarm_that_stands_holds_after_a_restart_when_its_stream_is_asked_for(tmp_path):
    with Both(tmp_path, reactions=HOLD) as both:
        for turn, name in itertools.product(range(12), NAMES[:2]):
            both.ask(turn, stream=name, count=64)
        for turn in range(8):
            both.ask(foreign(turn), stream="hall", learn="try")
        both.restart()
        assert both.evicting.streams_loaded <= 1
        held = both.ask(1, stream="hall", learn="true")
        assert not held["learned"]
        assert "foreign-input" in held["reason"]
        assert both.ask(1, stream="default", learn="true")["learned"]


def test_silence_of_evicted_streams_is_an_alarm_that_their_next_sample_ends(tmp_path):
    with open_service(tmp_path, stream_memory=NOTHING, auto_create=9, silent_after=1.0) as service:
        for name in NAMES:
            ask(service, 1, stream=name)
        wait(lambda: all("silent" in alarms(service, name) for name in NAMES))
        ask(service, 2, stream="hall")
        settle(service)
        rows = service.summary("hall")["health"]["alarm_rows"]
        assert [row["raised"] for row in rows][:2] == [True, False]
        written = {name: len(service.summary(name)["health"]["alarm_rows"]) for name in NAMES[2:]}
        time.sleep(1.5)  # an alarm that stands is not raised again
        assert {name: len(service.summary(name)["health"]["alarm_rows"]) for name in NAMES[2:]} == written


def test_an_erased_source_leaves_no_feature_in_the_monitor_of_an_evicted_stream(tmp_path):
    with open_service(tmp_path, stream_memory=NOTHING, auto_create=9) as service:
        ask(service, 1, stream="hall", count=10, source="door")
        for seed in range(10):
            ask(service, seed, stream=NAMES[2 + seed % 3])
        service.operate("hall", "unlearn", source="door", erase=True)
        for seed in range(10):
            ask(service, seed, stream=NAMES[2 + seed % 3])
    for path in (*snapshots(tmp_path), *tmp_path.glob("streams/*/*.safetensors")):
        if (monitor := read_monitor(path)) is not None and "pending_features" in monitor[0]:
            assert path.parent.parent.name != "2" or not monitor[0]["pending_features"].any()


# -- files -------------------------------------------------------------------------------------------------------------


def snapshots(folder):
    return sorted(folder.glob("streams/*/snapshots/*.safetensors"))


def replayed(journal, number, method="pta"):
    """The position and the tensors after all groups of a stream without operations."""
    adapter = create_adapter(method, CLASSIFIER)
    with one_thread("replay") as alone:
        for group in journal.groups(number):
            alone.submit(adapter.step, samples_from(group.features)).result()
    return adapter.position, bits(adapter.state())


def exported(service, name):
    adapter = from_bytes(service.export(name), CLASSIFIER)
    return adapter.position, bits(adapter.state())


def bits(state):
    return {name: tensor.numpy().tobytes() for name, tensor in state.items()}


def fill_with_snapshots(folder):
    """Streams of which each has snapshots; their states."""
    with open_service(folder, stream_memory=NOTHING, auto_create=9, snapshot_samples=5) as service:
        for turn, name in itertools.product(range(12), NAMES):
            ask(service, turn, stream=name, count=3)
        settle(service)
        states = {name: service.export(name) for name in NAMES}
    assert len({path.parent.parent for path in snapshots(folder)}) == len(NAMES)
    return states


@pytest.mark.parametrize("damage", ["truncated", "changed", "empty", "not a file of ours"])
def test_a_damaged_snapshot_costs_its_stream_that_snapshot_and_others_nothing(tmp_path, damage):
    states = fill_with_snapshots(tmp_path)
    for path in (tmp_path / "streams" / "2" / "snapshots").glob("*.safetensors"):
        content = bytearray(path.read_bytes())
        content[-5] ^= 1
        half = content[: len(content) // 2]
        path.write_bytes({"truncated": half, "changed": content, "empty": b""}.get(damage, b"hello"))
    for memory in (NOTHING, EVERYTHING):
        with open_service(tmp_path, stream_memory=memory) as service:
            assert {name: service.export(name) for name in NAMES} == states
            assert all(ask(service, 1, stream=name, learn="false").outputs for name in NAMES)


def test_a_snapshot_that_is_damaged_while_the_service_runs_costs_that_snapshot(tmp_path):
    with open_service(tmp_path, stream_memory=NOTHING, auto_create=9, snapshot_samples=5) as service:
        for turn, name in itertools.product(range(12), NAMES):
            ask(service, turn, stream=name, count=3)
        states = {name: service.export(name) for name in NAMES}
        for path in snapshots(tmp_path):
            with suppress(FileNotFoundError):  # an older one may go at any time
                path.write_bytes(path.read_bytes()[:100])
        assert {name: service.export(name) for name in NAMES} == states
        before = service.summary("hall")["position"]
        assert ask(service, 99, stream="hall").learned
        assert service.summary("hall")["position"] == before + 1


def test_without_snapshots_streams_are_the_replay_of_their_rows(tmp_path):
    states = fill_with_snapshots(tmp_path)
    for path in snapshots(tmp_path):
        path.unlink()
    with open_service(tmp_path, stream_memory=NOTHING) as service:
        assert {name: service.export(name) for name in NAMES} == states


def test_a_backup_has_the_streams_that_are_not_in_memory(tmp_path):
    with open_service(tmp_path / "state", stream_memory=NOTHING, auto_create=9) as service:
        for turn, name in itertools.product(range(6), NAMES):
            ask(service, turn, stream=name, count=2, source="door")
        service.operate("door", "import", content=service.export("hall"))
        service.operate("yard", "rewind", sequence=4)
        wait_for_eviction(service)
        back_up(tmp_path / "state", tmp_path / "copy")
        states = {name: service.export(name) for name in NAMES}
    for memory in (NOTHING, EVERYTHING):
        with open_service(tmp_path / "copy", stream_memory=memory) as copy:
            assert {name: copy.export(name) for name in NAMES} == states
            assert [one["name"] for one in copy.streams()] == list(NAMES)


def test_a_bounded_journal_keeps_what_evicted_streams_need(tmp_path):
    """Which rows are dropped depends on snapshots. The states do not, and a restart has them."""
    settings = {"auto_create": 9, "journal_max": 60_000, "snapshot_samples": 10}
    with Both(tmp_path, **settings) as both:
        for turn, name in itertools.product(range(150), NAMES):
            both.ask(turn, stream=name, count=2, source="door" if turn % 2 else "gate")
        states = {name: both.same(lambda service, name=name: service.export(name)) for name in NAMES}
        dropped = [both.evicting.summary(name)["oldest"]["sequence"] for name in NAMES]
        assert max(dropped) > 0
        with pytest.raises(Refused, match="no longer reaches back"):
            both.evicting.operate(NAMES[int(np.argmax(dropped))], "rewind", sequence=0)
    for memory in (NOTHING, EVERYTHING):
        with open_service(tmp_path / "evicting", stream_memory=memory) as service:
            assert {name: service.export(name) for name in NAMES} == states
    assert check_folder(tmp_path / "evicting") == []


def test_a_stream_that_cannot_be_loaded_keeps_no_other_from_learning(tmp_path):
    with open_service(tmp_path, stream_memory=NOTHING, auto_create=9) as service:
        for turn, name in itertools.product(range(3), NAMES):
            ask(service, turn, stream=name)
        service.operate("hall", "import", content=service.export("door"))
    (damaged,) = (tmp_path / "streams" / "2" / "imports").glob("*.safetensors")
    for path in snapshots(tmp_path):
        path.unlink()
    damaged.write_bytes(b"damaged")
    with suppress(PtaError), open_service(tmp_path, stream_memory=NOTHING) as service:  # a start may refuse it, too
        with pytest.raises(PtaError):
            ask(service, 1, stream="hall")
        assert all(ask(service, 9, stream=name).learned for name in NAMES if name != "hall")


# -- at the same time --------------------------------------------------------------------------------------------------


def test_clients_of_many_streams_at_once_lose_nothing(tmp_path):
    names = [f"camera-{number}" for number in range(12)]

    def send(number):
        chosen, answers = random.Random(number), []
        for count in range(60):
            name = chosen.choice(names)
            reply = ask(service, 1000 * number + count, stream=name, count=1 + count % 3, id=f"{number}-{count}")
            answers.append((name, reply.outputs["sequence"].tolist()))
        return answers

    with open_service(tmp_path, stream_memory=NOTHING, auto_create=20) as service:
        answers = list(itertools.chain(*in_threads(6, send)))
        numbers = service._journal.streams()
        for name in names:
            sequences = [one for stream, own in answers if stream == name for one in own]
            assert sorted(sequences) == list(range(1, len(sequences) + 1))
            assert exported(service, name) == replayed(service._journal, numbers[name])
        wait_for_eviction(service)


def test_operations_beside_streams_that_learn_and_are_evicted_give_the_states_of_a_restart(tmp_path):
    stop = threading.Event()

    def learn(number):
        seeds = itertools.count(1000 * number)
        while not stop.is_set():
            with suppress(Refused):  # a stream is frozen or being deleted
                ask(service, next(seeds), stream=random.choice(NAMES), source=f"camera {number}", learn="try")

    with open_service(tmp_path, stream_memory=NOTHING, auto_create=9) as service:
        for name in NAMES:
            ask(service, 1, stream=name, count=3, source="camera 1")
        clients = threading.Thread(target=in_threads, args=(3, learn))
        clients.start()
        try:
            for name, turn in itertools.product(NAMES, range(3)):
                service.operate(name, "unlearn", source="camera 1")
                service.operate(name, "rewind", sequence=2 + turn)
                service.operate(name, "undo")
                service.operate(name, "freeze" if turn == 1 else "thaw")
                service.operate(name, "label", labels=[SampleLabel(CLASSIFIER.class_names[turn], 1)])
            service.operate("roof", "delete")
        finally:
            stop.set()
            clients.join()
        for name in NAMES[:4]:
            wait(lambda name=name: not service.summary(name)["corrections"]["waiting"])
        settle(service)
        states = {one["name"]: service.export(one["name"]) for one in service.streams()}
    for path in snapshots(tmp_path):
        path.unlink()
    with open_service(tmp_path, stream_memory=EVERYTHING) as service:
        assert {one["name"]: service.export(one["name"]) for one in service.streams()} == states
    assert check_folder(tmp_path) == []


def test_requests_that_wait_while_a_stream_is_loaded_are_answered_in_their_order(tmp_path):
    with open_service(tmp_path, stream_memory=NOTHING, auto_create=9) as service:
        for name in NAMES:
            ask(service, 1, stream=name, count=50)
        wait_for_eviction(service)
        waiting = {name: [] for name in NAMES}
        for seed, name in itertools.product(range(20), NAMES):
            waiting[name].append(service.submit(request(seed, stream=name)))
        for name in NAMES:
            assert [reply.result().outputs["sequence"].item() for reply in waiting[name]] == list(range(51, 71))


# -- kills -------------------------------------------------------------------------------------------------------------


class LoadOfStreams(Load):
    """Clients of several streams each; a client's samples of a stream have numbers in their order."""

    def _send(self, id, rows):
        self.sent[id] = len(rows)
        while not self._stop.is_set():
            with suppress(PtaError), Client(*self.server, retries=0) as client:
                result = client.infer(rows, id=id, stream=stream_of(id), learn=True, source=id.partition("-")[0])
                self.acknowledged[id] = result.outputs["sequence"].tolist()
                self.repeated += result.repeated
                self.answered[id] = result.outputs["probability"].tolist()
                return
            time.sleep(0.02)


def stream_of(id):
    """Each client goes from stream to stream, and all have the same ones."""
    number, count = map(int, id.split("-"))
    return f"camera-{(3 * number + count) % 7}"


@pytest.fixture
def start(commands, tmp_path):
    """Start the service, which has no room for an idle stream; gives its address and token."""
    named = {"classnames": CLASSIFIER.class_names, "scale": CLASSIFIER.scale, "text_features": CLASSIFIER.anchors}
    np.savez(tmp_path / "features.npz", image_features=features(0, 2), **named)
    options = ["--features-only", "features.npz", "--data", "data", "--port", 0]
    options += ["--auto-create", 20, "--stream-memory", 1]

    def start(method):
        commands.start("serve", *options, "--method", method, folder=tmp_path, first=FREQUENT_SNAPSHOTS)
        threading.Thread(target=commands.stderr.read, daemon=True).start()  # a line per request
        address = commands.stdout.readline().split()[0].rstrip("/")
        return address, (tmp_path / "data" / "token").read_text().strip()

    yield start
    if commands._process:  # a test has failed before it ended the service
        commands.kill()


def require_nothing_lost(load, folder, method):
    """What was acknowledged is in the journal once, and every state is the replay of its rows."""
    with open_service(folder, method, stream_memory=NOTHING) as service:
        journal = service._journal
        numbers, rows = journal.streams(), {name: [] for name in journal.streams()}
        for id in load.sent:
            digest = hashlib.blake2b(id.encode(), digest_size=16).digest()
            found = journal.find(numbers[stream_of(id)], digest) if stream_of(id) in numbers else None
            if found is not None:
                rows[stream_of(id)] += found.sequences.tolist()
            if id in load.acknowledged:
                assert found is not None
                assert found.sequences.tolist() == load.acknowledged[id]
        for name, number in numbers.items():
            assert len(set(rows[name])) == len(rows[name]) == journal.count(number)
            assert exported(service, name) == replayed(journal, number, method)
    assert check_folder(folder) == []


@pytest.mark.parametrize(
    ("method", "crashes"),
    [
        ("pta", int(os.environ.get("PTA_EVICTION_CRASHES", "3"))),
        pytest.param("pta", 50, marks=pytest.mark.extensive),
        pytest.param("wpta", 50, marks=pytest.mark.extensive),
    ],
)
def test_a_service_that_is_killed_while_it_evicts_streams_loses_nothing(start, commands, tmp_path, method, crashes):
    kill_under_load(start, method, commands, load := LoadOfStreams(), crashes)
    with Client(*start(method), retries=0) as client:
        for id, probabilities in [*load.answered.items()][-40:]:
            rows = rows_of(id)
            again = client.infer(rows, id=id, stream=stream_of(id), learn=True, source=id.partition("-")[0])
            assert again.repeated
            assert again.outputs["probability"].tolist() == probabilities
    commands.kill()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    for path in snapshots(tmp_path / "copy"):
        path.unlink()
    require_nothing_lost(load, tmp_path / "data", method)
    require_nothing_lost(load, tmp_path / "copy", method)
    assert len({stream_of(id) for id in load.acknowledged}) == 7


def test_metrics_of_a_process_tell_how_many_streams_are_in_memory(start, commands):
    address, token = start("pta")
    with Client(address, token, retries=0) as client:
        for number in range(10):
            client.infer(features(number), stream=f"camera-{number}", learn=True)

        def loaded():
            lines = client._ask("GET", "/metrics")[0].decode().splitlines()
            return [float(line.split()[1]) for line in lines if line.startswith("pta_streams_loaded ")]

        wait(lambda: max(loaded()) <= 1)
        assert len(json.loads(client._ask("GET", "/streams")[0])["streams"]) == 11
