"""A state that learns no more: its answers, and the warning where it has learned from few samples per class."""

import json
import pickle
import re
import warnings

import pytest
import torch
from effort import repeated
from fill_tables import rows
from http_serving import features, process
from hypothesis import given, settings
from hypothesis import strategies as st
from photos import write_classes, write_photos
from serving import CLASSIFIER, ask, open_service
from streams import cuts, streams
from torch.nn.functional import normalize

from pta import list_adapters
from pta.data.features import load_features
from pta.methods import adapter_class, create_adapter, needs_model, needs_of_samples
from pta.methods.frozen import ENOUGH, FewSamples, frozen_warning, learned_per_class, warn_if_frozen_early

TEXTS = CLASSIFIER.anchors
IMAGES = normalize(TEXTS + 0.1)  # one per class
ON_FEATURES = [
    name
    for name in list_adapters()
    if adapter_class(name).scope == "sample"
    and needs_of_samples(name, {}) == {"features"}
    and not needs_model(name, {})
]
LOSING = [name for name in ON_FEATURES if adapter_class(name).loses_frozen]


def learned(method, times):
    """An adapter that has learned the image of every class so many times."""
    adapter = create_adapter(method, CLASSIFIER, source=100)
    if times:
        adapter.step(IMAGES.repeat(times, 1))
    return adapter


# -- its answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ON_FEATURES)
@given(stream=streams(30), data=st.data())
@settings(max_examples=repeated(5))
def test_frozen_answers_do_not_depend_on_the_batch_and_teach_nothing(method, stream, data):
    adapter = create_adapter(method, stream.classifier, source=len(stream.features))
    adapter.step(stream.features[: -(-len(stream.features) // 2)])
    before = adapter.to_bytes()
    whole = adapter.predict(stream.features)
    parts = torch.cat([adapter.predict(stream.features[part]) for part in data.draw(cuts(len(stream.features)))])
    torch.testing.assert_close(parts, whole, rtol=1e-6, atol=1e-6)
    assert adapter.to_bytes() == before


# -- which states are warned about ------------------------------------------------------------------------------------


def test_a_method_is_declared_to_lose_if_it_was_measured_a_point_below_zero_shot():
    few = [row for row in rows("frozen") if float(row["own"]) < ENOUGH]
    assert {row["method"] for row in few if float(row["frozen_gain"]) < -1} == {*LOSING}


@pytest.mark.parametrize("method", LOSING)
def test_few_samples_per_class_are_warned_about_and_many_are_not(method):
    assert frozen_warning(learned(method, 0)) is None
    assert frozen_warning(learned(method, ENOUGH)) is None
    said = frozen_warning(learned(method, 3))
    assert said.startswith(
        f"{method} has learned from 3.0 samples per class (the mean of the 6 classes that have learned); "
    )


@pytest.mark.parametrize("method", sorted({*ON_FEATURES} - {*LOSING}))
def test_a_method_that_does_not_lose_is_never_warned_about(method):
    assert frozen_warning(learned(method, 1)) is None


def test_classes_that_have_not_learned_do_not_count():
    adapter = create_adapter("pta", CLASSIFIER)
    adapter.step(IMAGES[:2].repeat(4, 1))
    assert learned_per_class(adapter) == (4.0, "the mean of the 2 classes that have learned")
    assert learned_per_class(adapter, [0, 5, 0, 1, 9, 0]) == (5, "the median of the 3 classes that have learned")


def test_a_method_that_keeps_counts_has_their_median():
    adapter = create_adapter("wpta", CLASSIFIER, prior="none")
    adapter.step(torch.cat([IMAGES[:1].repeat(20, 1), IMAGES[1:3], IMAGES[1:3]]))
    number, meaning = learned_per_class(adapter)
    assert meaning == "the median of the 3 classes that have learned"
    assert number == pytest.approx(2, abs=0.1)


# -- where ------------------------------------------------------------------------------------------------------------


def test_an_adapter_is_warned_about_once():
    adapter = learned("pta", 2)
    with pytest.warns(FewSamples, match=r"pta has learned from 2\.0 samples per class"):
        warn_if_frozen_early(adapter)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_frozen_early(adapter)


def test_scikit_learns_predict_warns_once_per_fit_and_not_after_enough_rows():
    estimator = pytest.importorskip("pta.run.estimator").PTAClassifier(TEXTS, method="pta")
    for first in (estimator.predict, estimator.predict_proba, estimator.decision_function):
        estimator.fit(IMAGES.repeat(2, 1))
        with pytest.warns(FewSamples, match=r"2\.0 samples") as said:
            first(IMAGES)
        assert [warning.filename for warning in said] == [__file__]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            estimator.predict(IMAGES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator.fit(IMAGES)
        estimator.partial_fit(IMAGES.repeat(ENOUGH, 1)).predict(IMAGES)
        pickle.loads(pickle.dumps(estimator)).predict(IMAGES)


@pytest.mark.parametrize(("method", "count"), [("pta", 1), ("wpta", 0)])
def test_freeze_and_export_warn_of_a_small_state_and_learning_does_not(pta, tmp_path, method, count):
    write_classes(tmp_path / "classes.txt")
    write_photos(tmp_path / "photos", 20)
    state = ("--state", "state.safetensors")
    call = ("predict", "photos", "--classes", "classes.txt", "--model", "embedded", "--device", "cpu", *state)
    runs = [
        pta(*call, "--method", method),
        pta(*call, "--method", method, "--freeze"),
        pta("state", "export", "state.safetensors", "--out", "prototypes.npz"),
    ]
    assert [run.returncode for run in runs] == [0, 0, 0]
    said = [re.findall(r"^pta: warning: .* samples per class .*$", run.stderr, re.MULTILINE) for run in runs]
    assert list(map(len, said)) == [0, count, count]
    assert said[1] == said[2]


def test_freezing_a_stream_warns_by_its_touches(tmp_path):
    with open_service(tmp_path, "pta") as service:
        for number in (0, 0, 0, 0, 0, 1, 2):
            ask(service, IMAGES[number : number + 1].numpy())
        said = service.operate("default", "freeze")["warning"]
        assert said.startswith(
            "pta has learned from 1.0 samples per class (the median of the 3 classes that have learned); "
        )
        content = service.export("default")
        ask(service, IMAGES.repeat(ENOUGH, 1).numpy(), learn="try")
        service.operate("default", "thaw")
        ask(service, IMAGES.repeat(ENOUGH, 1).numpy())
        assert "warning" not in service.operate("default", "freeze")
        service.operate("default", "import", content=content)
        assert "samples per class (the mean of the 3 " in service.operate("default", "freeze")["warning"]


def test_the_command_that_freezes_a_stream_passes_the_warning_on(pta, pets, tmp_path):
    with process(tmp_path / "data", "--features-only", pets, "--method", "pta") as server:
        server.infer(features(load_features(pets).samples.features[:8].numpy()))
        where = ("--server", server.url, "--token-file", server.folder / "token", "--json", "-")
        frozen, thawed = (pta("stream", verb, "default", *where) for verb in ("freeze", "thaw"))
    assert frozen.stderr == f"pta: warning: {json.loads(frozen.stdout)['warning']}\n"
    assert thawed.stderr == ""
