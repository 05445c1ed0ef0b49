"""A service that keeps no idle stream in memory answers and learns as one that keeps all."""

import itertools
import time

import pytest
from evicting import (
    EVERYTHING,
    HOLD,
    NAMES,
    NOTHING,
    UNLIKE,
    Both,
    alarms,
    comparable,
    foreign,
    learn_in_turn,
    snapshots,
    stream_metrics,
    wait,
    wait_for_eviction,
)
from serving import CLASSIFIER, ask, in_threads, open_service, settle

from pta.methods import from_bytes
from pta.methods.state_file import read_monitor
from pta.serve.http.monitoring import Metrics
from pta.serve.requests import SampleLabel
from pta.serve.streams.saving import Saving


@pytest.fixture
def both(tmp_path):
    with Both(tmp_path) as both:
        yield both


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


def test_labels_that_wait_when_their_stream_could_be_evicted_are_not_lost(tmp_path):
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


def test_recent_answers_are_counted_as_those_of_a_stream_that_stayed_in_memory(both):
    """The curves of the page and its list of the last answers begin anew."""
    for turn, name in itertools.product(range(5), NAMES[:3]):
        both.ask(turn, stream=name, count=40)
    wait_for_eviction(both.evicting)
    for name in NAMES[:3]:
        both.same(
            lambda service, name=name: service.summary(name), (*UNLIKE, "rate", "latency_ms", "series", "last_answers")
        )


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


def test_a_stream_is_not_packed_between_its_answer_and_its_snapshot(tmp_path, monkeypatch, caplog):
    save_if_due = Saving.save_if_due

    def later(saving, stream):
        time.sleep(0.02)
        save_if_due(saving, stream)

    monkeypatch.setattr(Saving, "save_if_due", later)
    with open_service(tmp_path, stream_memory=NOTHING, auto_create=9, snapshot_samples=1) as service:
        for seed, name in itertools.product(range(3), NAMES):
            assert ask(service, seed, stream=name).learned
        assert [stream["position"] for stream in service.streams()] == [3] * len(NAMES)
    assert "could not be answered" not in caplog.text
