"""The whole service is killed under load, and its clients send everything again that was not answered.

PTA_CRASHES says how often (200 times in `make test-crash`), and PTA_CRASH_TABLE names a file for the counts.
"""

import hashlib
import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import result_file
from effort import repeated
from serving import CLASSIFIER, features, open_service, replayed, same_bits, state_of

from pta.errors import PtaError
from pta.methods import DEFAULT_METHOD
from pta.serve.client import Client

CRASHES = int(os.environ.get("PTA_CRASHES", repeated(5)))
CLIENTS = 4
FREQUENT_SNAPSHOTS = """
import functools, pta.cli.serve as command
command.ServiceSettings = functools.partial(command.ServiceSettings, snapshot_samples=40)
"""


class Load:
    """Clients that send samples with ids, one after another, until each is acknowledged."""

    def __init__(self):
        self.server = ("http://127.0.0.1:1", "")  # address and token
        self.sent, self.acknowledged, self.repeated = {}, {}, 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CLIENTS)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number):
        count = 0
        while not self._stop.is_set():
            count += 1
            self._send(f"{number}-{count}", features(10_000 * number + count, 1 + count % 3))

    def _send(self, id, rows):
        self.sent[id] = len(rows)
        while not self._stop.is_set():
            with suppress(PtaError), Client(*self.server, retries=0) as client:
                result = client.infer(rows, id=id, learn=True, source=id.partition("-")[0])
                self.acknowledged[id] = result.outputs["sequence"].tolist()
                self.repeated += result.repeated
                return
            time.sleep(0.02)


@pytest.fixture
def start(commands, tmp_path):
    """Start the service; gives its address and token."""
    named = {"classnames": CLASSIFIER.class_names, "scale": CLASSIFIER.scale, "text_features": CLASSIFIER.anchors}
    np.savez(tmp_path / "features.npz", image_features=features(0, 2), **named)
    options = ["--features-only", "features.npz", "--data", "data", "--port", 0]

    def start(method):
        commands.start("serve", *options, "--method", method, folder=tmp_path, first=FREQUENT_SNAPSHOTS)
        threading.Thread(target=commands.stderr.read, daemon=True).start()  # a line per request
        address = commands.stdout.readline().split()[0].rstrip("/")
        return address, (tmp_path / "data" / "token").read_text().strip()

    return start


def kill_under_load(start, method, commands):
    """The clients, after the service was killed so often and ended once by itself."""
    random_numbers = random.Random(0)
    with Load() as load:
        for kills in range(CRASHES + 1):
            load.server = start(method)
            enough = len(load.acknowledged) + random_numbers.randrange(5, 60)
            while len(load.acknowledged) < enough:
                assert commands.is_running(0.001)
            if kills < CRASHES:
                commands.kill()
        commands.send_signal(signal.SIGTERM)
        assert commands.wait() == 0
    return load


@pytest.mark.parametrize("method", [DEFAULT_METHOD, pytest.param("pta", marks=pytest.mark.extensive)])
def test_what_was_acknowledged_is_there_once_in_order_and_learned(start, commands, tmp_path, method):
    load = kill_under_load(start, method, commands)
    with open_service(tmp_path / "data", method) as service:
        journal, live = service._journal, state_of(service)
        found = {id: journal.find(1, hashlib.blake2b(id.encode(), digest_size=16).digest()) for id in load.sent}
        rows = {id: one.sequences.tolist() for id, one in found.items() if one is not None}
        counts = {
            "kills": CRASHES,
            "acknowledged": len(load.acknowledged),
            "lost": sum(rows.get(id) != sequences for id, sequences in load.acknowledged.items()),
            "repeated": load.repeated,
            "learned_twice": journal.count(1) - sum(map(len, rows.values())),
            "bit_equal": same_bits(live, replayed(journal, method)),
        }
    for number in range(CLIENTS):
        of_client = [s for id, one in load.acknowledged.items() if id.startswith(f"{number}-") for s in one]
        assert of_client == sorted(set(of_client))
    if "PTA_CRASH_TABLE" in os.environ:
        result_file.write(Path(os.environ["PTA_CRASH_TABLE"]), [counts])
    assert (counts["lost"], counts["learned_twice"], counts["bit_equal"]) == (0, 0, True)
