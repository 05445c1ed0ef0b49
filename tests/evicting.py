"""Two services that are given the same, of which one evicts every idle stream, and what is compared of them."""

import itertools
import re
import time

import numpy as np
from serving import CLASSIFIER, DIM, ask, learn_rows, open_service, settle

from pta import create_adapter
from pta.methods import from_bytes
from pta.serve.http.monitoring import Metrics
from pta.serve.requests import Refused, Result
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


def differences(one, other, where="it"):
    """Where two values differ, with what the service that evicts has and what the other one has."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [found for name in one for found in differences(one[name], other[name], f"{where}.{name}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [found for number, pair in pairs for found in differences(*pair, f"{where}[{number}]")]
    return [] if one == other else [f"{where}: {one!r:.300} with eviction, {other!r:.300} without"]


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
        assert one == other, "; ".join(differences(one, other))
        for service in self:
            settle(service)
        return one

    def ask(self, given, **others):
        return self.same(lambda service: ask(service, given, **others))

    def operate(self, name, operation, **argument):
        done = self.same(lambda service: service.operate(name, operation, **argument))
        if operation == "label" and isinstance(done, dict):  # else it was refused
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


def learn_in_turn(both, rounds=4, streams=NAMES, **others):
    """Some samples of every stream, one stream after another, so that each is loaded again in every round."""
    for turn, (number, name) in itertools.product(range(rounds), enumerate(streams)):
        both.ask(100 * turn + number, stream=name, count=1 + (turn + number) % 3, **others)


def foreign(seed, count=64):
    """Samples near no anchor."""
    return np.random.default_rng(seed).standard_normal((count, DIM)).astype(np.float32)


def alarms(service, name):
    return {alarm["kind"]: alarm["reaction"] for alarm in service.summary(name)["health"]["alarms"]}


def snapshots(folder):
    return sorted(folder.glob("streams/*/snapshots/*.safetensors"))


def replayed(journal, number, method="pta"):
    """The position and the tensors after all groups of a stream without operations."""
    adapter = create_adapter(method, CLASSIFIER)
    with one_thread("replay") as alone:
        for group in journal.groups(number):
            alone.submit(learn_rows, adapter, group.features).result()
    return adapter.position, bits(adapter.state())


def exported(service, name):
    adapter = from_bytes(service.export(name), CLASSIFIER)
    return adapter.position, bits(adapter.state())


def bits(state):
    return {name: tensor.numpy().tobytes() for name, tensor in state.items()}
