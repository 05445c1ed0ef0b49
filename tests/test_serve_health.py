"""Alarms of a served stream: rows of the journal, reactions while they stand, and what is shown of them.

PTA_ALARM_CRASHES says how often a service is killed during attacks (50 times in `make test-all`).
"""

import itertools
import math
import os
import random
import re
import shutil
import threading
import time
from contextlib import closing, suppress

import numpy as np
import pytest
import torch
from effort import EFFORT, repeated
from http_serving import Asking, serving
from processes import PATIENCE
from serving import (
    CLASSIFIER,
    DIM,
    ask,
    features,
    in_threads,
    live_stream,
    open_service,
    replayed,
    request,
    same_bits,
    saved,
    settle,
    state_of,
)
from snippets import ROOT

from pta.core.classifier import ZeroShotClassifier
from pta.errors import PtaError
from pta.methods import load_adapter
from pta.methods.state_file import read_monitor
from pta.monitor import ScoreReference
from pta.monitor.alarms import KINDS
from pta.monitor.silence import Silence
from pta.serve.client import Client
from pta.serve.journal.journal import Journal
from pta.serve.streams.health import Health
from pta.serve.streams.served_model import ServedModel, ServiceSettings

CRASHES = int(os.environ.get("PTA_ALARM_CRASHES", repeated(50) if EFFORT >= 1 else 3))
FREQUENT_SNAPSHOTS = """
import functools, pta.cli.serve as command
command.ServiceSettings = functools.partial(command.ServiceSettings, snapshot_samples=300)
"""
HOLD = {"foreign-input": "hold"}


def foreign(seed, count=64):
    """Samples near no anchor."""
    return np.random.default_rng(seed).standard_normal((count, DIM)).astype(np.float32)


def health(service):
    return service.summary("default")["health"]


def standing(service):
    return {alarm["kind"]: alarm["reaction"] for alarm in health(service)["alarms"]}


def learn_usual(service, first=0, count=12):
    for seed in range(first, first + count):
        ask(service, seed, count=64)
    settle(service)


def flood(service, count=8):
    for seed in range(count):
        reply = ask(service, foreign(seed))
    settle(service)
    return reply


@pytest.mark.parametrize("durable", [True, False])
def test_hold_stops_learning_while_the_alarm_stands(tmp_path, durable):
    with open_service(tmp_path if durable else None, reactions=HOLD) as service:
        learn_usual(service)
        assert standing(service) == {}
        flood(service)
        assert standing(service) == HOLD
        before = state_of(service)
        reply = ask(service, 99, count=3, learn="true")
        assert not reply.learned
        assert "foreign-input" in reply.reason
        assert same_bits(before, state_of(service))
        assert not service.streams()[0]["frozen"]
        learn_usual(service, first=100, count=10)
        assert standing(service) == {}
        assert ask(service, 200).learned
        rows = health(service)["alarm_rows"]
        assert [(row["kind"], row["raised"], row["reaction"]) for row in rows] == [
            ("foreign-input", True, "hold"),
            ("foreign-input", False, "note"),
        ]
        assert "less sure" in rows[0]["sentence"]
        assert len(health(service)["series"]) == health(service)["position"] // 64
        assert len(health(service)["last_answers"]) == 20


def measured_in(folder):
    """The file with what was measured of the default stream."""
    return folder / "streams" / "1" / "monitor" / "latest.safetensors"


def test_without_a_reaction_an_alarm_is_noted(tmp_path):
    with open_service(tmp_path) as service:
        learn_usual(service)
        assert flood(service).learned
        assert standing(service)["foreign-input"] == "note"


def test_nothing_that_changes_the_past_removes_an_alarm(tmp_path):
    with open_service(tmp_path) as service:
        learn_usual(service)
        ask(service, 50, source="door")
        flood(service)
        rows = health(service)["alarm_rows"]
        assert rows
        service.operate("default", "rewind", sequence=10)
        service.operate("default", "unlearn", source="door", erase=True)
        service.operate("default", "reset")
        service.operate("default", "undo")
        assert health(service)["alarm_rows"] == rows
        state = state_of(service)
    with open_service(tmp_path) as service:
        assert health(service)["alarm_rows"] == rows
        assert "foreign-input" in live_stream(service).health.monitor.standing
        assert same_bits(state, state_of(service))


def test_zero_shot_is_answered_while_the_alarm_stands_and_again_after_a_restart(tmp_path):
    with open_service(tmp_path, reactions={"foreign-input": "zero-shot"}) as service:
        learn_usual(service)
        flood(service)
        assert service.summary("default")["answers"] == "zero-shot"
        first = ask(service, foreign(77), id="one").outputs
        assert first["label"].tolist() == first["zero_shot_label"].tolist()
        learn_usual(service, first=100)
        assert service.summary("default")["answers"] == "adapted"
    with open_service(tmp_path) as service:
        again = ask(service, foreign(77), id="one")
        assert again.repeated
        for name in ("label", "probability", "adapted_label"):
            assert again.outputs[name].tolist() == first[name].tolist()


def flood_of_one_source(service, count=3):
    """The reply to the last of some requests of a source that gives one class alone."""
    for seed in range(6):
        ask(service, seed, count=64, source=f"door {seed % 3}")
    for seed in range(count):
        reply = ask(service, near_first(seed, 64), source="flood")
        settle(service)
    assert "one-source" in standing(service)
    return reply


def near_first(seed, count):
    """Samples near the first anchor."""
    return np.repeat(CLASSIFIER.anchors.numpy()[:1], count, axis=0) + 0.05 * foreign(seed, count)


CAP = {"one-source": "cap"}


def test_a_cap_leaves_out_the_excess_of_one_source_alone(tmp_path):
    with open_service(tmp_path, reactions=CAP) as service:
        reply = flood_of_one_source(service)
        assert not reply.learned
        assert "share of a class" in reply.reason
        assert ask(service, 500, source="door 1").learned
        both = np.concatenate([near_first(7, 3), CLASSIFIER.anchors.numpy()[1:3]])
        assert (ask(service, both, source="flood").outputs["sequence"] >= 0).tolist() == [False] * 3 + [True] * 2


def test_a_cap_counts_requests_that_come_at_once(tmp_path):
    with open_service(tmp_path, reactions=CAP) as service:
        flood_of_one_source(service)
        for seed in range(5):  # what the source gave so far leaves the window
            ask(service, near_first(seed, 60), source="flood", learn="false")
            ask(service, seed, count=4, source="door", learn="false")
        settle(service)
        assert "one-source" in standing(service)
        futures = [service.submit(request(near_first(seed, 1), source="flood")) for seed in range(100)]
        assert 0 < sum(future.result().learned for future in futures) < 10


def test_no_sample_is_written_while_an_alarm_holds(tmp_path):
    with open_service(tmp_path, reactions=HOLD) as service:
        learn_usual(service)
        in_threads(4, lambda number: [ask(service, foreign(100 * number + one, 16)) for one in range(20)])
        settle(service)
        assert standing(service) == HOLD
        require_held(service._journal.operations(1), service._journal.groups(1))


def require_held(operations, groups):
    """No sample has a row between that of an alarm with the reaction hold and the next row of the alarm."""
    written, since = {int(sequence) for group in groups for sequence in group.sequences}, {}
    for row in operations:
        if row.kind == "alarm":
            first = since.pop(row.argument["kind"], None)
            assert first is None or not written & set(range(first, row.sequence))
            if row.argument["reaction"] == "hold":
                since[row.argument["kind"]] = row.sequence
    assert not any(sequence > first for first in since.values() for sequence in written)


def test_another_reaction_is_in_force_from_the_start(tmp_path):
    with open_service(tmp_path, reactions=HOLD) as service:
        learn_usual(service)
        for seed in range(8):
            ask(service, foreign(seed))  # and the rows of the last alarms are written before the end
    for reactions in ({}, HOLD):
        with open_service(tmp_path, reactions=reactions) as service:
            service.summary("default")  # which loads the stream
            settle(service)
            assert standing(service)["foreign-input"] == reactions.get("foreign-input", "note")
            assert ask(service, foreign(50)).learned == (not reactions)


def test_alarms_of_requests_that_wait_at_the_end_are_written(tmp_path):
    with open_service(tmp_path) as service:
        learn_usual(service)
        for seed in range(8):
            service.submit(request(foreign(seed)))
    with open_service(tmp_path) as service:
        assert "foreign-input" in standing(service)


def test_an_alarm_that_cannot_end_is_not_reacted_to(tmp_path):
    """Without what was measured the reference is gone, and without learning there would never be another."""
    with open_service(tmp_path, reactions=HOLD | {"changed-more": "hold"}) as service:
        learn_usual(service)
        flood(service)
        assert standing(service)["foreign-input"] == "hold"
        saved(service)
        assert read_monitor(measured_in(tmp_path))[1]["standing"].keys() == {"foreign-input"}  # because of the alarm
    measured_in(tmp_path).unlink()
    with open_service(tmp_path, reactions=HOLD) as service:
        service.summary("default")
        settle(service)
        assert standing(service)["foreign-input"] == "note"
        assert ask(service, 1).learned


@pytest.mark.parametrize("operation", ["reset", "rewind"])
def test_a_prototype_that_an_operation_moves_is_no_alarm(tmp_path, operation):
    with open_service(tmp_path) as service:
        ask(service, 0)
        for seed in range(16):
            ask(service, foreign(seed))
        service.operate("default", operation, **({"sequence": 1} if operation == "rewind" else {}))
        learn_usual(service, first=100, count=17)
        assert "class-moved" not in {row["kind"] for row in health(service)["alarm_rows"]}


def test_alarms_outlive_the_rows_that_are_dropped_for_room(tmp_path):
    with open_service(tmp_path, reactions=HOLD, journal_max=1, snapshot_samples=64) as service:
        learn_usual(service)
        flood(service)
        saved(service)
        rows = health(service)["alarm_rows"]
    with open_service(tmp_path, reactions=HOLD) as service:
        assert service.summary("default")["oldest"]["sequence"] > 0
        assert health(service)["alarm_rows"][: len(rows)] == rows
        assert not ask(service, 1).learned


def test_a_reference_is_what_samples_are_compared_with_from_the_start(tmp_path):
    trusted = ScoreReference.of(CLASSIFIER, torch.nn.functional.normalize(torch.from_numpy(features(7, 300)), dim=1))
    with open_service(tmp_path, reference=trusted, window=128) as service:
        flood(service)
        assert "foreign-input" in standing(service)


def test_the_end_keeps_the_monitor_and_a_damaged_one_starts_empty(tmp_path, monkeypatch, caplog):
    with open_service(tmp_path) as service:
        learn_usual(service)
        position = health(service)["position"]
    assert "counts" in read_monitor(measured_in(tmp_path))[0]
    with open_service(tmp_path) as service:
        assert health(service)["position"] == position
    monkeypatch.setattr("pta.serve.streams.health.read_monitor", lambda path: ({}, {}))
    with open_service(tmp_path) as service:
        assert health(service)["position"] == 0
    assert "empty monitor" in caplog.text


def test_a_packed_monitor_goes_on_as_it_was(tmp_path):
    with open_service(tmp_path) as service:
        learn_usual(service, count=3)
        ask(service, 77, count=7)
        settle(service)
        health = live_stream(service).health
        before, (tensors, about) = health.numbers_now(), health.rest()
        assert health.position == 3 * 64 + 7
        health.wake((tensors, about))
        assert health.numbers_now() == before
        assert health.position == 3 * 64 + 7


def test_numbers_are_nan_before_the_first_block():
    numbers = Health(ServedModel(CLASSIFIER, "pta"), ServiceSettings(), Silence(None)).numbers_now()
    assert math.isnan(numbers["changed"])
    assert numbers["position"] == 0


def test_an_erased_source_leaves_no_feature_in_the_monitor(tmp_path):
    with open_service(tmp_path) as service:
        ask(service, 1, count=10, source="door")
        service._saving.save(live_stream(service)).result()
        assert read_monitor(measured_in(tmp_path))[0]["pending_features"].any()
        service.operate("default", "unlearn", source="door", erase=True)
        assert not read_monitor(measured_in(tmp_path))[0]["pending_features"].any()


def test_silence_is_an_alarm_that_the_next_sample_ends(tmp_path):
    with open_service(tmp_path, silent_after=0.2) as service:
        ask(service, 1)
        end = time.monotonic() + PATIENCE
        while "silent" not in standing(service):
            assert time.monotonic() < end
            time.sleep(0.02)
        ask(service, 2)
        settle(service)
        assert [row["raised"] for row in health(service)["alarm_rows"]][:2] == [True, False]


@pytest.fixture
def start(commands, tmp_path):
    """Start the service with reactions; gives its address and token."""
    named = {"classnames": CLASSIFIER.class_names, "scale": CLASSIFIER.scale, "text_features": CLASSIFIER.anchors}
    np.savez(tmp_path / "features.npz", image_features=features(0, 2), **named)

    def start(*more):
        options = ["--features-only", "features.npz", "--data", "data", "--port", 0, "--method", "pta", *more]
        commands.start("serve", *options, folder=tmp_path, first=FREQUENT_SNAPSHOTS)
        threading.Thread(target=commands.stderr.read, daemon=True).start()
        address = commands.stdout.readline().split()[0].rstrip("/")
        return address, (tmp_path / "data" / "token").read_text().strip()

    return start


def rows_in(folder, copy):
    """The state that the rows of a copy of a data folder give, and those of its alarms."""
    shutil.copytree(folder, copy)
    with closing(Journal.open(copy, ServedModel(CLASSIFIER, "pta").identity)) as journal:
        operations = journal.operations(1)
        require_held(operations, journal.groups(1))
        return replayed(journal), [row for row in operations if row.kind == "alarm"]


def test_a_killed_service_has_the_alarms_and_the_state_of_its_rows(start, commands, tmp_path):
    chance, sent, raised = random.Random(1), itertools.count(), set()
    state, alarms = None, []

    def send(server, is_attack, acknowledged):
        with suppress(PtaError), Client(*server, retries=0) as client:  # until it is killed
            while True:
                seed = next(sent)
                client.infer(foreign(seed, 32) if is_attack else features(seed, 32), source=str(seed % 3))
                acknowledged.append(seed)

    for kill in range(CRASHES + 1):
        server = start("--on", "foreign-input=hold", "--on", "one-source=cap")
        with Client(*server) as client:
            if state is not None:
                asking = Asking(int(server[0].rpartition(":")[2]), server[1], tmp_path / "data")
                (tmp_path / "export").write_bytes(asking.ask("GET", "/streams/default/export").body)
                assert same_bits(state, load_adapter(tmp_path / "export", CLASSIFIER).state())
            found = client.show("default")["health"]
            assert [row["sequence"] for row in found["alarm_rows"]][: len(alarms[-100:])] == [
                row.sequence for row in alarms[-100:]
            ]
            last = {row.argument["kind"]: row.argument["raised"] for row in alarms}
            assert {row["kind"] for row in found["alarms"]} == {kind for kind, is_raised in last.items() if is_raised}
            acknowledged = []
            given = server, kill % 3 > 0, acknowledged
            threads = [threading.Thread(target=send, args=given, daemon=True) for _ in range(2)]
            for thread in threads:
                thread.start()
            enough = chance.randrange(30, 60)
            while len(acknowledged) < enough:
                assert commands.is_running(0.001)
            commands.kill()
            for thread in threads:
                thread.join()
        state, alarms = rows_in(tmp_path / "data", tmp_path / f"copy {kill}")
        raised |= {row.argument["kind"] for row in alarms}
    assert "foreign-input" in raised


@pytest.mark.parametrize(
    "given",
    [
        *(("--on", one) for one in ("foreign=hold", "foreign-input=stop", "foreign-input", "silent=cap")),
        *(("--window", "0"), ("--window", "100"), ("--reference", "missing"), ("--reference", "f.npz")),
        ("--reference", "other.safetensors"),
    ],
)
def test_a_wrong_option_is_one_line(pta, tmp_path, given):
    other = ZeroShotClassifier(CLASSIFIER.anchors.flip(0), CLASSIFIER.class_names)
    trusted = torch.nn.functional.normalize(torch.from_numpy(features(7, 300)), dim=1)
    ScoreReference.of(other, trusted).save(tmp_path / "other.safetensors", other)
    np.savez(
        tmp_path / "f.npz",
        image_features=features(0, 2),
        text_features=CLASSIFIER.anchors,
        classnames=CLASSIFIER.class_names,
    )
    done = pta("serve", "--features-only", "f.npz", "--data", "data", "--port", "0", *given, cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "data").exists()


def test_metrics_name_alarms_and_every_metric_of_the_dashboard(pets, tmp_path):
    with serving(pets, tmp_path / "state", {"stream_metrics": True}) as server:
        told = server.ask("GET", "/metrics").body.decode()
        known = set(re.findall(r"^(\w+)\{", told, flags=re.MULTILINE))
        named = set(re.findall(r"pta_\w+", (ROOT / "deploy" / "grafana-dashboard.json").read_text(encoding="utf-8")))
        assert named
        assert named <= known
        assert 'pta_stream_changed_ratio{stream="default"} NaN' in told  # before the first block
        for kind in KINDS:
            assert f'pta_stream_alarm{{kind="{kind}",stream="default"}} 0.0' in told
