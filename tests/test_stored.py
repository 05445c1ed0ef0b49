"""Evaluations are made once: by whichever process, after whatever kill, and again exactly when an input changes."""

import copy
import importlib.util
import json
import os
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from processes import PATIENCE, Forked, wait_until
from streams import feature_file

from pta import Samples, ZeroShotClassifier, engines, list_adapters
from pta.adapters import registry
from pta.datasets.features import FeatureFile
from pta.encoders import EMBEDDED_TEMPLATES, EmbeddedEncoder
from pta.errors import InvalidParameter, InvalidSamples
from pta.evaluation import bits, metrics, stream_run, version
from pta.evaluation import record as records
from pta.evaluation.cached_evaluation import evaluate_once, inputs_of
from pta.evaluation.evaluate import evaluate
from pta.evaluation.result_store import ResultStore, result_key
from pta.evaluation.stream import Stream
from pta.evaluation.version import method_version
from pta.prompts import build_classifier

COUNTING = '''
import os, time
from pathlib import Path
from pta.adapters import CLIP, register
from pta.parameters import number, parameter


@register
class Counting(CLIP):
    """CLIP that writes a line for every step on more than a warm-up.

    In a process with PAUSE_AT it waits after that line until there is another, which another process writes.
    """

    name = "counting"
    file: str = parameter("", lambda name, value: value, "a path", "where the lines go")
    base: float = number(2.0, 0.0, 9.0, "no method's name")

    def _step(self, samples):
        if len(samples) > 16 and self.file:
            with open(self.file, "a") as file:
                file.write(f"{samples.features[0, 0].item():.9g}\\n")
            while len(Path(self.file).read_text().splitlines()) == int(os.environ.get("PAUSE_AT", "-1")):
                time.sleep(0.01)
        return super()._step(samples)
'''


def load_module(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def parameters(tmp_path):
    """Those with which the method below counts."""
    return {"file": str(tmp_path / "lines")}


@pytest.fixture
def counting(tmp_path):
    """A third-party method in a file of its own; gives the number of evaluations so far."""
    path = tmp_path / "counting_method.py"
    path.write_text(COUNTING)
    load_module(path, "counting_method")
    lines = tmp_path / "lines"
    yield lambda: len(lines.read_text().splitlines()) if lines.exists() else 0
    del registry._registered["counting"], sys.modules["counting_method"]


@pytest.fixture
def store(tmp_path):
    return ResultStore(tmp_path / "store")


def once(store, *arguments, **options):
    return sorted(evaluate_once(store, *arguments, **options), key=lambda record: record["seed"])


def without_time(record):
    return {key: value for key, value in record.items() if key not in ("seconds", "made")}


# -- once -------------------------------------------------------------------------------------------------------------


def test_a_second_call_runs_nothing_and_gives_the_same_records(store, counting, parameters):
    first = once(store, feature_file(64), "counting", parameters, [1, 2, 2])
    assert counting() == 2
    assert [(record["seed"], record["params"]["base"]) for record in first] == [(1, 2.0), (2, 2.0)]  # no method's name
    assert once(store, feature_file(64), "counting", parameters, [2, 1]) == first
    assert counting() == 2
    assert len(once(store, feature_file(64), "counting", parameters, [1, 2, 3])) == 3
    assert counting() == 3


def test_a_stored_record_is_what_an_evaluation_gives_and_says_where_it_comes_from(store):
    data = feature_file(64)
    (record,) = once(store, data, "pta", {"h": 3.0}, [4], stream=Stream(drop_last=True), batch=20)
    (expected,) = evaluate(data, {"pta": {"h": 3.0}}, [4], stream=Stream(drop_last=True), batch=20)
    assert without_time(record) == json.loads(json.dumps(without_time(expected.record())))
    made = record["made"]
    assert set(made) == {"key", "features", "version", "at", "on"}
    assert (made["features"], made["version"]) == (data.fingerprint, method_version("pta"))
    assert store.get(made["key"]) == record


def test_the_same_features_under_another_name_are_not_run_again_but_bear_it(store, counting, parameters):
    for name in ("made", "moved"):
        (record,) = once(store, feature_file(64, name=name), "counting", parameters, [1])
        assert record["dataset"] == name
    assert counting() == 1


def test_unlabelled_data_is_kept_too(store):
    data = feature_file(64, labelled=False)
    first = once(store, data, "pta", {}, [1])
    assert first[0]["accuracy"] is None
    assert once(store, data, "pta", {}, [1]) == first


# -- what decides -----------------------------------------------------------------------------------------------------


def key(data=None, method="pta", parameters=None, seed=1, stream=None, batch=None):
    given = {} if parameters is None else parameters
    return result_key(inputs_of(data or feature_file(64), method, given, seed, stream or Stream(), batch))


def changed(**parts):
    data = feature_file(64)
    own = {"name": data.name, "samples": data.samples, "classifier": data.classifier, "labels": data.labels}
    return FeatureFile(**(own | parts))


def with_one_bit(tensor):
    bits = tensor.clone().view(torch.int64 if tensor.dtype == torch.float64 else torch.int32)
    bits[0, 0] ^= 1
    return bits.view(tensor.dtype)


def test_every_single_input_decides():
    data = feature_file(64)
    plain = data.classifier
    labels = data.labels.copy()
    labels[0] = (labels[0] + 1) % 5
    others = [
        key(method="clip"),
        key(parameters={"h": 20.000001}),
        key(parameters={"variant": "paper"}),
        key(seed=2),
        key(batch=128),
        key(stream=Stream("separate")),
        key(stream=Stream("dirichlet")),
        key(stream=Stream("dirichlet", gamma=0.01)),
        key(stream=Stream("poisoned")),
        key(stream=Stream("poisoned", prefix=0)),
        key(stream=Stream(drop_last=True)),
        key(stream=Stream(lookahead=True)),
        key(changed(samples=Samples.unchecked(with_one_bit(data.samples.features)))),
        key(changed(samples=Samples.of(data.samples.features, views=data.samples.features[:, None]))),
        key(changed(labels=labels)),
        key(changed(labels=None)),
        key(changed(classifier=ZeroShotClassifier(plain.anchors.flip(0), plain.class_names, scale=20.0))),
        key(changed(classifier=ZeroShotClassifier(plain.anchors, list("abcdf"), scale=20.0))),
        key(changed(classifier=ZeroShotClassifier(plain.anchors, plain.class_names, scale=21.0))),
        key(changed(classifier=ZeroShotClassifier(plain.anchors, plain.class_names, scale=20.0, bias=-1.0))),
        key(method="combined"),
        key(method="combined", parameters={"base": "clip"}),
        key(method="combined", parameters={"base_parameters": {"positive_alpha": 1.0}}),
    ]
    assert len({key(), *others}) == 1 + len(others)


def test_another_spelling_of_the_same_inputs_does_not_decide():
    assert key() == key(parameters={"h": 20.0, "w": 0.01}) == key(parameters={"w": np.float64(0.01), "h": 20})
    assert key() == key(parameters={"anchor": "recursive", "min_probability": 0.1, "state_dtype": "float64"})
    assert key() == key(changed(name="moved")) == key(batch=256) == key(seed=np.int64(1))
    assert key(parameters={"h": np.float32(0.5)}) == key(parameters={"h": 0.5})
    assert key(stream=Stream("dirichlet")) == key(stream=Stream("dirichlet", gamma=0.1), batch=128)
    for spelling in ({"base": "tda"}, {"base_parameters": {}}, {"base_parameters": {"positive_slots": np.int64(3)}}):
        assert key(method="combined", parameters=spelling) == key(method="combined")


def test_a_length_that_is_taken_from_the_stream_is_that_length():
    found = inputs_of(feature_file(64), "onzeta", {}, 1, Stream(drop_last=True), 30)
    assert found["params"]["length"] == 60
    assert key(method="onzeta") == key(method="onzeta", parameters={"length": 64})
    assert key(method="onzeta") != key(method="onzeta", parameters={"length": 65})


@pytest.mark.parametrize("method", sorted(set(list_adapters()) - {"boostadapter", "gs-bias", "mta", "zero", "tca"}))
def test_the_parameters_of_a_record_are_a_spelling_of_those_it_was_made_with(store, method):
    (record,) = once(store, feature_file(40), method, {}, [1])
    assert once(store, feature_file(40), method, record["params"], [1]) == [record]
    assert len(store) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), torch.zeros(3), {1, 2}], ids=type)
def test_a_parameter_that_no_method_takes_is_one_clear_line(store, value):
    for parameters in ({"h": value}, {"h": [value]}, {"h": {"x": value}}):
        with pytest.raises(InvalidParameter, match="h must be a number") as caught:
            once(store, feature_file(64), "pta", parameters, [1])
        assert "\n" not in str(caught.value)
    assert len(store) == 0


# -- versions ---------------------------------------------------------------------------------------------------------


def test_a_method_has_another_version_when_its_own_file_changes(counting, store, parameters, tmp_path):
    before, others = method_version("counting"), {name: method_version(name) for name in list_adapters()}
    once(store, feature_file(64), "counting", parameters, [1])
    path = tmp_path / "counting_method.py"
    path.write_text(COUNTING.replace("super()._step(samples)", "2 * super()._step(samples)"))
    load_module(path, "counting_method")
    assert method_version("counting") != before
    assert all(method_version(name) == others[name] for name in others if name != "counting")
    once(store, feature_file(64), "counting", parameters, [1])
    assert counting() == 2
    path.write_text(COUNTING)
    load_module(path, "counting_method")
    assert method_version("counting") == before
    once(store, feature_file(64), "counting", parameters, [1])
    assert counting() == 2


def test_a_combined_method_depends_on_the_version_of_what_it_stands_on(counting, tmp_path):
    before = key(method="combined", parameters={"base": "counting"})
    (tmp_path / "counting_method.py").write_text(COUNTING + "\n# changed\n")
    load_module(tmp_path / "counting_method.py", "counting_method")
    assert key(method="combined", parameters={"base": "counting"}) != before


def test_a_method_whose_code_is_in_no_file_is_one_clear_line():
    space = {"__name__": "nowhere"}
    exec(COUNTING, space)
    try:
        with pytest.raises(InvalidParameter, match="counting has no version, because its code is not in a file"):
            method_version("counting")
    finally:
        del registry._registered["counting"]


# -- processes --------------------------------------------------------------------------------------------------------


def worker(folder, seeds, pause_at=-1):
    """Another process that evaluates, and writes the seeds of the records that it ends with."""

    def work():
        os.environ["PAUSE_AT"] = str(pause_at)
        parameters = {"file": str(folder / "lines")}
        done = evaluate_once(ResultStore(folder / "store"), feature_file(64), "counting", parameters, seeds)
        (folder / f"seeds-{os.getpid()}").write_text(json.dumps(sorted(record["seed"] for record in done)))

    return Forked(work)


def finished(folder, worker):
    """The seeds that a worker ends with."""
    worker.join(PATIENCE)
    return json.loads((folder / f"seeds-{worker.pid}").read_text())


def test_two_processes_share_a_list_and_make_nothing_twice(counting, tmp_path):
    seeds = list(range(1, 13))
    workers = [worker(tmp_path, seeds, pause_at=1) for _ in range(2)]  # the first to begin waits for the other
    assert [finished(tmp_path, one) for one in workers] == [seeds, seeds]
    lines = Counter((tmp_path / "lines").read_text().splitlines())
    assert sum(lines.values()) == len(seeds)
    assert len(ResultStore(tmp_path / "store")) == len(seeds)


def test_a_killed_run_resumes_to_the_same_records(counting, store, parameters, tmp_path):
    seeds = list(range(1, 8))
    killed = worker(tmp_path, seeds, pause_at=4)
    wait_until(lambda: counting() == 4, killed)
    os.kill(killed.pid, signal.SIGKILL)
    killed.join(PATIENCE)
    assert len(store) == 3  # only the one under way is lost
    resumed = once(store, feature_file(64), "counting", parameters, seeds)
    assert counting() == 4 + len(seeds) - 3
    undisturbed = once(ResultStore(tmp_path / "another"), feature_file(64), "counting", parameters, seeds)
    assert [without_time(record) for record in resumed] == [without_time(record) for record in undisturbed]


def test_what_another_process_is_making_is_waited_for_last(store, counting, parameters, tmp_path):
    other = worker(tmp_path, [1], pause_at=1)
    wait_until(counting, other)
    order = [record["seed"] for record in evaluate_once(store, feature_file(64), "counting", parameters, [1, 2])]
    assert (order, counting()) == ([2, 1], 2)
    assert finished(tmp_path, other) == [1]


def test_the_engines_and_what_counts_are_part_of_every_version(tmp_path, monkeypatch):
    before = method_version("pta")
    copied = shutil.copytree(
        Path(*engines.__path__), tmp_path / "engines", ignore=shutil.ignore_patterns("__pycache__")
    )
    monkeypatch.setattr(version, "engines", SimpleNamespace(__path__=[str(copied)]))
    version._version.cache_clear()
    assert method_version("pta") == before
    (copied / "refresh.py").write_text((copied / "refresh.py").read_text() + "# changed\n")
    version._version.cache_clear()
    assert method_version("pta") != before
    version._version.cache_clear()
    assert {metrics, bits, stream_run, records} <= set(version._SHARED)


def test_a_model_that_did_not_make_the_features_is_not_looked_into(store):
    rng = np.random.default_rng(3)
    pixels = torch.from_numpy(rng.integers(0, 256, (20, 1, 28, 28), np.uint8))
    encoder = EmbeddedEncoder.load().ready()
    classifier = build_classifier(encoder, ["bag", "coat"], EMBEDDED_TEMPLATES)
    made, others = encoder.encode(pixels), encoder.encode(pixels.flip(0))
    labels = rng.integers(2, size=20)
    right, wrong = (FeatureFile("f", Samples.of(one, raw=pixels), classifier, labels) for one in (made, others))
    (record,) = evaluate_once(store, right, "tca", {}, [1], model=encoder)
    assert record["n"] == 20
    with pytest.raises(InvalidSamples, match="does not make the file's features"):
        list(evaluate_once(store, wrong, "tca", {}, [1], model=encoder))
    assert len(store) == 1
    double = copy.deepcopy(encoder).double()  # the tower's precision changes answers
    assert inputs_of(right, "tca", {}, 1, Stream(), model=encoder) != inputs_of(
        right, "tca", {}, 1, Stream(), model=double
    )
