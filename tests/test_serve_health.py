"""Alarms of a served stream: rows of the journal, reactions while they stand, and what is shown of them."""

import os
import re
import threading
import time

import numpy as np
import pytest
from effort import repeated
from http_serving import serving
from processes import PATIENCE
from serving import CLASSIFIER, DIM, ask, features, open_service, same_bits, state_of
from snippets import ROOT

from pta.methods.state_file import read_monitor
from pta.monitor import KINDS
from pta.serve.client import Client

CRASHES = int(os.environ.get("PTA_ALARM_CRASHES", repeated(3)))
HOLD = {"foreign-input": "hold"}


def foreign(seed, count=64):
    """Samples near no anchor."""
    return np.random.default_rng(seed).standard_normal((count, DIM)).astype(np.float32)


def health(service):
    return service.summary("default")["health"]


def standing(service):
    return {alarm["kind"]: alarm["reaction"] for alarm in health(service)["alarms"]}


def settled(service):
    """Wait until the rows that were on their way are applied."""
    for _ in range(2):
        service._pipeline.write(lambda: None)


def learn_usual(service, first=0, count=12):
    for seed in range(first, first + count):
        ask(service, seed, count=64)
    settled(service)


def flood(service, count=8):
    for seed in range(count):
        reply = ask(service, foreign(seed))
    settled(service)
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
        assert "foreign-input" in service._streams.require("default").health.monitor.standing
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


def test_a_cap_leaves_out_requests_of_one_source_alone(tmp_path):
    with open_service(tmp_path, reactions={"one-source": "cap"}) as service:
        for seed in range(6):
            ask(service, seed, count=64, source=f"door {seed % 3}")
        anchor = CLASSIFIER.anchors.numpy()[:1]
        for seed in range(3):
            reply = ask(service, np.repeat(anchor, 64, axis=0) + 0.05 * foreign(seed), source="flood")
            settled(service)
        assert "one-source" in standing(service)
        assert not reply.learned
        assert "caps" in reply.reason
        assert ask(service, 500, source="door 1").learned


def test_a_snapshot_keeps_the_monitor_and_a_damaged_one_starts_empty(tmp_path, monkeypatch, caplog):
    with open_service(tmp_path) as service:
        learn_usual(service)
        position = health(service)["position"]
    (snapshot,) = (tmp_path / "streams" / "1" / "snapshots").glob("*.safetensors")
    assert "counts" in read_monitor(snapshot)[0]
    with open_service(tmp_path) as service:
        assert health(service)["position"] == position
    monkeypatch.setattr("pta.serve.streams.health.read_monitor", lambda path: ({}, {}))
    with open_service(tmp_path) as service:
        assert health(service)["position"] == 0
    assert "empty monitor" in caplog.text


def test_an_erased_source_leaves_no_feature_in_the_monitor(tmp_path):
    with open_service(tmp_path) as service:
        ask(service, 1, count=10, source="door")
        service.operate("default", "unlearn", source="door", erase=True)
        for snapshot in (tmp_path / "streams" / "1" / "snapshots").glob("*.safetensors"):
            assert not read_monitor(snapshot)[0]["pending_features"].any()


def test_silence_is_an_alarm_that_the_next_sample_ends(tmp_path):
    with open_service(tmp_path, silent_after=0.2) as service:
        ask(service, 1)
        end = time.monotonic() + PATIENCE
        while "silent" not in standing(service):
            assert time.monotonic() < end
            time.sleep(0.02)
        ask(service, 2)
        settled(service)
        assert [row["raised"] for row in health(service)["alarm_rows"]][:2] == [True, False]


@pytest.fixture
def start(commands, tmp_path):
    """Start the service with reactions; gives a client."""
    named = {"classnames": CLASSIFIER.class_names, "scale": CLASSIFIER.scale, "text_features": CLASSIFIER.anchors}
    np.savez(tmp_path / "features.npz", image_features=features(0, 2), **named)

    def start(*more):
        options = ["--features-only", "features.npz", "--data", "data", "--port", 0, "--method", "pta", *more]
        commands.start("serve", *options, folder=tmp_path)
        threading.Thread(target=commands.stderr.read, daemon=True).start()
        address = commands.stdout.readline().split()[0].rstrip("/")
        return Client(address, (tmp_path / "data" / "token").read_text().strip())

    return start


def test_a_killed_service_has_the_same_alarms_and_state(start, commands, tmp_path):
    rows, seed = [], 0
    for kill in range(CRASHES + 1):
        with start("--on", "foreign-input=hold") as client:
            found = client.show("default")["health"]["alarm_rows"]
            assert found[: len(rows)] == rows
            for _ in range(12):
                seed += 1
                client.infer(foreign(seed) if kill % 2 else features(seed, 64), id=str(seed), learn="try")
            rows = client.show("default")["health"]["alarm_rows"]
            alarms = {row["kind"] for row in client.show("default")["health"]["alarms"]}
        commands.kill()
    states = []
    for _ in range(2):
        with open_service(tmp_path / "data", "pta") as service:
            assert alarms <= standing(service).keys()
            states.append(state_of(service))
    assert same_bits(*states)


@pytest.mark.parametrize("given", ["foreign=hold", "foreign-input=stop", "foreign-input", "silent=cap"])
def test_an_unknown_alarm_or_reaction_is_one_line(pta, tmp_path, given):
    np.savez(
        tmp_path / "f.npz",
        image_features=features(0, 2),
        text_features=CLASSIFIER.anchors,
        classnames=CLASSIFIER.class_names,
    )
    done = pta("serve", "--features-only", "f.npz", "--data", "data", "--port", "0", "--on", given, cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


def test_metrics_name_alarms_and_every_metric_of_the_dashboard(pets, tmp_path):
    with serving(pets, tmp_path / "state", {"stream_metrics": True}) as server:
        told = server.ask("GET", "/metrics").body.decode()
        known = set(re.findall(r"^(\w+)\{", told, flags=re.MULTILINE))
        named = set(re.findall(r"pta_\w+", (ROOT / "deploy" / "grafana-dashboard.json").read_text(encoding="utf-8")))
        assert named
        assert named <= known
        for kind in KINDS:
            assert f'pta_stream_alarm{{kind="{kind}",stream="default"}} 0.0' in told
