"""Evaluations are made once: by whichever process, after whatever kill, and again exactly when an input changes."""

import copy
import importlib.util
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from processes import PATIENCE, Forked, wait_until
from streams import feature_file

from pta import Samples, ZeroShotClassifier, engines, list_adapters
from pta.data.features import FeatureFile
from pta.data.prompts import build_classifier
from pta.errors import InvalidParameter, InvalidSamples
from pta.measure import metrics, provenance, stream_run
from pta.measure import record as records
from pta.measure.cached_evaluation import evaluate_once, inputs_of
from pta.measure.evaluate import evaluate
from pta.measure.provenance import method_version
from pta.measure.result_store import ResultStore, result_key
from pta.measure.stream import Stream
from pta.methods import registry
from pta.models import EMBEDDED_TEMPLATES, EmbeddedEncoder

COUNTING = '''
import os, time
from pathlib import Path
from pta.methods import CLIP, register
from pta.core.parameters import number, parameter


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


class Counting:
    """A third-party method in a file of its own; counts its evaluations, by whichever process."""

    def __init__(self, folder):
        self.folder, self.lines, self.store = folder, folder / "lines", ResultStore(folder / "store")

    def load(self, code=COUNTING):
        path = self.folder / "counting_method.py"
        path.write_text(code)
        spec = importlib.util.spec_from_file_location("counting_method", path)
        sys.modules["counting_method"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["counting_method"])

    @property
    def count(self):
        return len(self.lines.read_text().splitlines()) if self.lines.exists() else 0

    def records(self, seeds, name="made"):
        """In the order in which they come."""
        data, parameters = feature_file(64, name=name), {"file": str(self.lines)}
        return list(evaluate_once(self.store, data, "counting", parameters, seeds))

    def once(self, seeds):
        return sorted(self.records(seeds), key=lambda record: record["seed"])

    def worker(self, seeds, pause_at=-1):
        """Another process that evaluates, and writes the seeds of the records that it ends with."""

        def work():
            os.environ["PAUSE_AT"] = str(pause_at)
            found = sorted(record["seed"] for record in self.records(seeds))
            (self.folder / f"seeds-{os.getpid()}").write_text(json.dumps(found))

        return Forked(work)

    def seeds_of(self, worker):
        """The seeds that a worker ends with."""
        worker.join(PATIENCE)
        return json.loads((self.folder / f"seeds-{worker.pid}").read_text())


@pytest.fixture
def counting(tmp_path):
    method = Counting(tmp_path)
    method.load()
    yield method
    del registry._registered["counting"], sys.modules["counting_method"]


@pytest.fixture
def store(tmp_path):
    return ResultStore(tmp_path / "store")


@pytest.fixture(scope="module")
def everything():
    """Samples that every method can be run on, and the model that made them."""
    encoder, rng = EmbeddedEncoder.load().ready(), np.random.default_rng(3)
    pixels = rng.integers(0, 256, (40, 1, 28, 28), np.uint8)
    features = encoder.encode(torch.from_numpy(pixels)).numpy()
    views = features[:, None] + 0.1 * rng.standard_normal((40, 12, encoder.dim))
    patches = features[:, None] + 0.3 * rng.standard_normal((40, 16, encoder.dim))
    samples = Samples.of(features, views=views, raw=pixels, patches=patches, generated=views[:, :4])
    templates = [*EMBEDDED_TEMPLATES, *("an old {}.", "a new {}.", "a large {}.", "a small {}.", "one {}.")]
    classifier = build_classifier(encoder, ["bag", "coat"], templates, keep_prompts=True)
    return FeatureFile("all", samples, classifier, rng.integers(2, size=40)), encoder


def without_time(record):
    return {key: value for key, value in record.items() if key not in ("seconds", "made")}


# -- once -------------------------------------------------------------------------------------------------------------


def test_a_second_call_runs_nothing_and_gives_the_same_records(counting):
    first = counting.once([1, 2, 2])
    assert counting.count == 2
    assert [(record["seed"], record["params"]["base"]) for record in first] == [(1, 2.0), (2, 2.0)]  # no method's name
    assert counting.once([2, 1]) == first
    assert counting.count == 2
    assert len(counting.once([1, 2, 3])) == counting.count == 3


@pytest.mark.parametrize("labelled", [True, False])
def test_a_stored_record_is_what_an_evaluation_gives_and_says_where_it_comes_from(store, labelled):
    data, how = feature_file(64, labelled=labelled), {"stream": Stream(drop_last=labelled), "batch": 20}
    (record,) = evaluate_once(store, data, "pta", {"h": 3.0}, [4], **how)
    (expected,) = evaluate(data, {"pta": {"h": 3.0}}, [4], **how)
    assert without_time(record) == json.loads(json.dumps(without_time(expected.record())))
    made = record["made"]
    assert set(made) == {"key", "features", "version", "at", "on"}
    assert (made["features"], made["version"]) == (data.fingerprint, method_version("pta"))
    assert store.get(made["key"]) == record


def test_the_same_features_under_another_name_are_not_run_again_but_bear_it(counting):
    for name in ("made", "moved"):
        assert [record["dataset"] for record in counting.records([1], name)] == [name]
    assert counting.count == 1


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
    anchors, names = data.classifier.anchors, data.classifier.class_names
    classifiers = [(anchors.flip(0), names, 20.0), (anchors, list("abcdf"), 20.0), (anchors, names, 21.0)]
    classifiers.append((anchors, names, 20.0, -1.0))
    streams = [Stream("separate"), Stream("dirichlet"), Stream("dirichlet", gamma=0.01), Stream("poisoned")]
    streams += [Stream("poisoned", prefix=0), Stream(lookahead=True), Stream("rare"), Stream("rare", share=0.9)]
    streams += [Stream("rare", length=399), Stream("bursts"), Stream("absent"), Stream("zipf"), Stream(classes_drawn=2)]
    streams += [Stream("zipf", exponent=0.0), Stream("zipf", length=64), Stream(classes_drawn=3)]
    labels = data.labels.copy()
    labels[0] = (labels[0] + 1) % 5
    others = [
        key(method="clip"),
        key(parameters={"h": 20.000001}),
        key(parameters={"variant": "paper"}),
        key(seed=2),
        key(batch=128),
        key(batch=64),
        key(batch=64, stream=Stream(drop_last=True)),
        *(key(stream=one) for one in streams),
        key(changed(samples=Samples.unchecked(with_one_bit(data.samples.features)))),
        key(changed(samples=Samples.of(data.samples.features, views=data.samples.features[:, None]))),
        key(changed(labels=labels)),
        key(changed(labels=None)),
        *(key(changed(classifier=ZeroShotClassifier(*one))) for one in classifiers),
        key(method="onzeta"),
        key(method="onzeta", parameters={"length": 65}),
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
    half = {"stream": Stream(drop_last=True), "batch": 30}  # the length of a stream is a parameter of OnZeta
    assert key(method="onzeta") == key(method="onzeta", parameters={"length": 64})
    assert key(method="onzeta", **half) == key(method="onzeta", parameters={"length": 60}, **half)
    for spelling in ({"base": "tda"}, {"base_parameters": {}}, {"base_parameters": {"positive_slots": np.int64(3)}}):
        assert key(method="combined", parameters=spelling) == key(method="combined")


@pytest.mark.parametrize("method", list_adapters())
def test_the_record_of_every_method_is_kept_and_its_parameters_are_a_spelling_of_those_given(store, method, everything):
    data, model = everything
    (record,) = evaluate_once(store, data, method, {}, [1], model=model)
    assert list(evaluate_once(store, data, method, record["params"], [1], model=model)) == [record]
    assert len(store) == 1
    assert all(0 <= record[name] <= 100 for name in ("calibration_error", "raw_calibration_error"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), torch.zeros(3), {1, 2}], ids=type)
def test_a_parameter_that_no_method_takes_is_one_clear_line(store, value):
    for given in (value, [value], {"x": value}):
        with pytest.raises(InvalidParameter, match="h must be a number"):
            list(evaluate_once(store, feature_file(64), "pta", {"h": given}, [1]))
    assert len(store) == 0


# -- versions ---------------------------------------------------------------------------------------------------------


def test_a_method_and_what_stands_on_it_have_another_version_when_its_own_file_changes(counting):
    def on_top():
        return key(method="combined", parameters={"base": "counting"})

    before, others = (method_version("counting"), on_top()), {name: method_version(name) for name in list_adapters()}
    counting.once([1])
    counting.load(COUNTING.replace("super()._step(samples)", "2 * super()._step(samples)"))
    assert method_version("counting") != before[0]
    assert on_top() != before[1]
    assert [name for name in others if method_version(name) != others[name]] == ["counting"]
    counting.once([1])
    assert counting.count == 2
    counting.load()
    assert (method_version("counting"), on_top()) == before
    counting.once([1])
    assert counting.count == 2


def test_a_method_whose_code_is_in_no_file_is_one_clear_line():
    space = {"__name__": "nowhere"}
    exec(COUNTING, space)
    try:
        with pytest.raises(InvalidParameter, match="counting has no version, because its code is not in a file"):
            method_version("counting")
    finally:
        del registry._registered["counting"]


# -- processes --------------------------------------------------------------------------------------------------------


def test_two_processes_share_a_list_and_make_nothing_twice(counting):
    seeds = list(range(1, 13))
    workers = [counting.worker(seeds, pause_at=1) for _ in range(2)]  # the first to begin waits for the other
    assert [counting.seeds_of(one) for one in workers] == [seeds, seeds]
    assert counting.count == len(counting.store) == len(seeds)


def test_a_killed_run_resumes_to_the_same_records(counting, tmp_path):
    seeds = list(range(1, 8))
    killed = counting.worker(seeds, pause_at=4)
    wait_until(lambda: counting.count == 4, killed)
    killed.kill()
    assert len(counting.store) == 3  # only the one under way is lost
    resumed = counting.once(seeds)
    assert counting.count == 4 + len(seeds) - 3
    counting.store = ResultStore(tmp_path / "undisturbed")
    assert list(map(without_time, resumed)) == list(map(without_time, counting.once(seeds)))


def test_what_another_process_is_making_is_waited_for_last(counting):
    other = counting.worker([1], pause_at=1)
    wait_until(lambda: counting.count, other)
    assert [record["seed"] for record in counting.records([1, 2])] == [2, 1]
    assert counting.count == 2
    assert counting.seeds_of(other) == [1]


def test_the_engines_and_what_counts_are_part_of_every_version(tmp_path, monkeypatch):
    before = method_version("pta")
    copied = Path(shutil.copytree(Path(*engines.__path__), tmp_path / "engines"))
    monkeypatch.setattr(provenance, "engines", SimpleNamespace(__path__=[str(copied)]))
    provenance._version.cache_clear()
    assert method_version("pta") == before
    changed = copied / "pta" / "chunk.py"
    changed.write_text(changed.read_text() + "# changed\n")
    provenance._version.cache_clear()
    assert method_version("pta") != before
    provenance._version.cache_clear()
    assert {metrics, stream_run, records} <= set(provenance._SHARED)


def test_a_model_that_did_not_make_the_features_is_not_looked_into(store, everything):
    right, encoder = everything
    wrong = replace(right, samples=Samples.of(right.samples.features.flip(0), raw=right.samples.raw))
    with pytest.raises(InvalidSamples, match="gives other features for the file's pixels"):
        list(evaluate_once(store, wrong, "tca", {}, [1], model=encoder))
    with pytest.raises(InvalidSamples, match="the features were made by ViT-B/16, not by embedded"):
        list(evaluate_once(store, replace(right, architecture="ViT-B/16"), "tca", {}, [1], model=encoder))
    assert len(store) == 0
    towers = (encoder, copy.deepcopy(encoder).double())  # the tower's precision changes answers
    single, double = (inputs_of(right, "tca", {}, 1, Stream(), model=one) for one in towers)
    assert single != double
