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
from serving import CLASSIFIER, features, learn_rows, open_service, replayed, same_bits, state_of

from pta import create_adapter
from pta.core.labels import NONE, UNKNOWN
from pta.errors import PtaError
from pta.methods import DEFAULT_METHOD
from pta.serve.client import Client
from pta.serve.streams.stage import one_thread

CRASHES = int(os.environ.get("PTA_CRASHES", repeated(5)))
CLIENTS = 4
FREQUENT_SNAPSHOTS = """
import functools, pta.cli.serve as command
command.ServiceSettings = functools.partial(command.ServiceSettings, snapshot_samples=40)
"""


def rows_of(id):
    """The samples that a client sends under an id."""
    number, count = map(int, id.split("-"))
    return features(10_000 * number + count, 1 + count % 3)


class Load:
    """Clients that send samples with ids, one after another, until each is acknowledged."""

    def __init__(self):
        self.server = ("http://127.0.0.1:1", "")  # address and token
        self.sent, self.acknowledged, self.repeated, self.answered = {}, {}, 0, {}
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
            id = f"{number}-{count}"
            self._send(id, rows_of(id))

    def _send(self, id, rows):
        self.sent[id] = len(rows)
        while not self._stop.is_set():
            with suppress(PtaError), Client(*self.server, retries=0) as client:
                result = client.infer(rows, id=id, learn=True, source=id.partition("-")[0])
                self.acknowledged[id] = result.outputs["sequence"].tolist()
                self.repeated += result.repeated
                self.answered[id] = result.outputs["probability"].tolist()
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


def kill_under_load(start, method, commands, load, crashes):
    """Kill the service so often, and end it once, while clients send what they have."""
    random_numbers = random.Random(0)
    with load:
        for kills in range(crashes + 1):
            load.server = start(method)
            enough = len(load.acknowledged) + random_numbers.randrange(5, 60)
            while len(load.acknowledged) < enough:
                assert commands.is_running(0.001)
            if kills < crashes:
                commands.kill()
        commands.send_signal(signal.SIGTERM)
        assert commands.wait() == 0


@pytest.mark.parametrize("method", [DEFAULT_METHOD, pytest.param("pta", marks=pytest.mark.extensive)])
def test_what_was_acknowledged_is_there_once_in_order_and_learned(start, commands, tmp_path, method):
    kill_under_load(start, method, commands, load := Load(), CRASHES)
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


class Labelling:
    """A person who labels samples that were acknowledged."""

    def __init__(self, load):
        self.load, self.acknowledged = load, {}
        self._random, self._stop = random.Random(1), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.is_set():
            known = [sequence for rows in list(self.load.acknowledged.values()) for sequence in rows]
            chosen = self._random.sample(known, min(len(known), 3))
            labels = {sequence: self._random.choice([None, *CLASSIFIER.class_names]) for sequence in chosen}
            given = [{"sequence": sequence, "label": label} for sequence, label in labels.items()]
            with suppress(PtaError), Client(*self.load.server, retries=0) as client:
                done = client.operate("default", "label", labels=given)
                self.acknowledged[done["sequence"]] = labels
            time.sleep(0.01)


def state_with_labels(journal, method):
    """The state of a stream that had the labels of a journal from the start; and these, by their rows."""
    rows = {row.sequence: row.argument["labels"] for row in journal.operations(1) if row.kind == "label"}
    given = {
        row: {s: c for sequences in by.values() for s, c in zip(*sequences, strict=True)} for row, by in rows.items()
    }
    labels = {sequence: label for row in sorted(given) for sequence, label in given[row].items()}
    adapter = create_adapter(method, CLASSIFIER)
    with one_thread("replay") as alone:
        for group in journal.groups(1):
            known = np.array([labels.get(sequence, UNKNOWN) for sequence in group.sequences.tolist()])
            if (kept := known != NONE).any():
                own = (known[kept],) if (known[kept] >= 0).any() else ()
                alone.submit(learn_rows, adapter, group.features[kept], *own).result()
    return adapter.state(), given


@pytest.mark.parametrize("crashes", [2, pytest.param(50, marks=pytest.mark.extensive)])
def test_no_label_that_was_acknowledged_is_lost(start, commands, tmp_path, crashes):
    load = Load()
    with Labelling(load) as person:
        kill_under_load(start, "pta", commands, load, crashes)
    with Client(*start("pta"), retries=0) as client:
        for id, probabilities in load.answered.items():
            again = client.infer(rows_of(id), id=id, learn=True, source=id.partition("-")[0])
            assert again.repeated
            assert again.outputs["probability"].tolist() == probabilities
    commands.kill()
    with open_service(tmp_path / "data", "pta") as service:
        expected, written = state_with_labels(service._journal, "pta")
        numbers = {None: NONE} | {name: number for number, name in enumerate(CLASSIFIER.class_names)}
        for row, labels in person.acknowledged.items():
            assert written[row] == {sequence: numbers[label] for sequence, label in labels.items()}
        assert same_bits(state_of(service), expected)
    assert len(person.acknowledged) > crashes
