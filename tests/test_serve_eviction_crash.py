"""Clients of many streams at once, and kills, while no idle stream is in memory.

PTA_EVICTION_CRASHES says how often the service is killed (3 times in `make test`, 50 times in `make test-all`).
"""

import hashlib
import itertools
import json
import os
import random
import shutil
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from evicting import EVERYTHING, NAMES, NOTHING, exported, replayed, snapshots, wait, wait_for_eviction
from serving import CLASSIFIER, ask, features, in_threads, open_service, request, settle
from test_serve_crash import FREQUENT_SNAPSHOTS, Load, kill_under_load, rows_of

from pta.errors import PtaError
from pta.serve.client import Client
from pta.serve.journal.check import check_folder
from pta.serve.requests import Refused, SampleLabel


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
