"""Every registered method has a loop of its name, and gives the loop's logits for any stream, cut and parameters."""

from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import signature

import numpy as np
import pytest
import torch
from cases import CASES, ORDER, TRANSDUCTIVE, other_values
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import NO_OFFSET, clip_like_stream, cuts, streams, toy_stream, with_views

import pta
from pta import Samples
from pta.errors import InvalidSamples
from pta.methods import adapter_class
from pta.reference.tda import tda_loop


def loop_of(method):
    """The loop of `a-b` is `a_b_loop` in `pta.reference.a_b`, or in `pta.reference.a`."""
    name = method.replace("-", "_")
    module = name if find_spec(f"pta.reference.{name}") else name.split("_")[0]
    return getattr(import_module(f"pta.reference.{module}"), f"{name}_loop")


def expected(method, stream, samples, **parameters):
    """The logits of the loop, which is given what it takes of the samples."""
    loop = loop_of(method)
    given = {name: getattr(samples, name) for name in samples.provides & set(signature(loop).parameters)}
    if "prompt_features" in signature(loop).parameters:
        given["prompt_features"] = stream.classifier.prompt_features
    arrays = {name: tensor.double().numpy() for name, tensor in given.items()}
    return loop(stream.anchors.double().numpy(), scale=stream.scale, **arrays, **parameters)


def assert_like_the_loop(method, stream, samples, parts=(slice(None),), tolerance=None, **parameters):
    """Stepping through the parts gives the loop's logits, which are returned."""
    adapter = pta.create_adapter(method, stream.classifier, **parameters)
    logits = torch.cat([adapter.step(samples[part]) for part in parts])
    alone = parts if method in TRANSDUCTIVE else [slice(None)]
    loop = np.concatenate([expected(method, stream, samples[part], **parameters) for part in alone])
    largest = max(100, np.abs(loop).max())
    np.testing.assert_allclose(logits, loop, atol=(tolerance or CASES[method].tolerance) * largest, rtol=0)
    return logits


def samples_of(stream, views, noise=0.3):
    return with_views(stream, views, noise) if views else Samples(stream.features)


def drawn_parameters(method, data):
    return {name: data.draw(st.sampled_from(values), label=name) for name, values in CASES[method].values.items()}


@pytest.mark.parametrize("method", CASES)
@settings(max_examples=repeated(25))
@given(st.data())
def test_any_stream_in_any_batches_with_any_parameters_equals_the_loop(method, data):
    case = CASES[method]
    stream = data.draw(streams(max_count=12 if case.views else 40))
    views = data.draw(st.sampled_from(case.views)) if case.views else 0
    samples = samples_of(stream, views, data.draw(st.sampled_from([0.1, 0.3, 0.01, 1.0])))
    assert_like_the_loop(method, stream, samples, data.draw(cuts(len(samples))), **drawn_parameters(method, data))


@pytest.mark.parametrize("method", [name for name in CASES if name not in TRANSDUCTIVE])
@settings(max_examples=repeated(15))
@given(st.data())
def test_single_precision_is_near_the_loop(method, data):
    case = CASES[method]
    stream = data.draw(streams(max_count=12 if case.views else 40)).to(torch.float32)
    samples = samples_of(stream, case.views and 20)
    fixed = {name: value for name, value in case.fixed.items() if name == "length"}
    logits = assert_like_the_loop(method, stream, samples, data.draw(cuts(len(samples))), 2e-5, **fixed)
    assert logits.dtype == torch.float32


@cache
def usual_logits(method, **switch):
    """Those of the stream on which the method's parameters make a difference."""
    case = CASES[method]
    stream = clip_like_stream(1, **{"classes": 8, "dim": 16, "count": 80, "scale": 40.0} | case.shape)
    return assert_like_the_loop(method, stream, samples_of(stream, case.views and 20), **case.fixed | switch)


@pytest.mark.parametrize(
    ("method", "switch"),
    [one if one[0] in ("pta", "wpta") else pytest.param(*one, marks=pytest.mark.extensive) for one in other_values()],
    ids=str,
)
def test_each_value_of_a_parameter_makes_a_difference_and_that_of_the_loop(method, switch):
    assert (usual_logits(method) - usual_logits(method, **switch)).abs().max() > 1e-3


@pytest.mark.parametrize("order", ORDER)
@pytest.mark.parametrize("method", [name for name, case in CASES.items() if "order" in case.values])
def test_predict_gives_what_step_gives_of_a_sample_before_or_after_it_is_learned(method, order):
    stream = clip_like_stream(2, classes=8, dim=16, count=30, scale=40.0)
    adapter = pta.create_adapter(method, stream.classifier, **CASES[method].fixed | {"order": order})
    moved = []
    for sample in samples_of(stream, CASES[method].views and 20).batches(1):
        before, answer, after = adapter.predict(sample), adapter.step(sample), adapter.predict(sample)
        torch.testing.assert_close(answer, before if order == "predict-first" else after)
        moved.append((after - before).abs().max())
    assert max(moved) > 1e-3


@pytest.mark.parametrize("size", [3, 2, 1])
@pytest.mark.parametrize("method", CASES)
def test_the_worked_stream_gives_what_the_loop_gives(method, size):
    toy, case = toy_stream(), CASES[method]
    parts = [slice(start, start + size) for start in range(0, 3, size)]
    assert_like_the_loop(method, toy, samples_of(toy, case.views and 10), parts, **case.fixed)


def stream_of_means(method, seed):
    """A stream of six views for each of 40 samples, and the samples: means of the views, and these beside them."""
    stream = clip_like_stream(seed, classes=8, dim=16, count=6 * 40, in_order=True, scale=30.0)
    most_confident = stream.features.unflatten(0, (40, 6))
    several = (
        dict.fromkeys(("views", "patches"), most_confident[:, torch.arange(12) % 6]) if CASES[method].views else {}
    )
    return stream, Samples(most_confident.mean(dim=1), most_confident=most_confident, **several)


AVERAGED = [name for name in CASES if "most_confident" in signature(loop_of(name)).parameters]


@pytest.mark.parametrize("method", AVERAGED)
@settings(max_examples=10)
@given(st.data(), st.integers(0, 1000))
def test_means_of_views_are_judged_by_the_mean_of_their_probabilities(method, data, seed):
    stream, samples = stream_of_means(method, seed)
    assert_like_the_loop(method, stream, samples, data.draw(cuts(40)), **drawn_parameters(method, data))


@pytest.mark.parametrize("method", AVERAGED)
def test_the_views_of_a_mean_make_a_difference(method):
    stream, averaged = stream_of_means(method, seed=1)
    alone = replace(averaged, most_confident=None)
    logits = [assert_like_the_loop(method, stream, samples) for samples in (alone, averaged)]
    assert (logits[0] - logits[1]).abs().max() > 1e-4


@pytest.mark.parametrize(
    "method", [name for name, case in CASES.items() if case.views and name not in ("dmn", "dpe", "etta")]
)
def test_samples_without_views_are_refused_where_a_method_needs_them(method):
    with pytest.raises(InvalidSamples, match=f"{method} needs (views|patches)"):
        pta.create_adapter(method, toy_stream().classifier).step(toy_stream().features)


TOWERS = {"difftpt", "difftpt-augmented", "histpt", "tca", "tpt"}  # whose loops take a tower of the model


@pytest.mark.parametrize("method", sorted(set(pta.list_adapters()) - TOWERS))
def test_a_bias_does_what_it_does_in_the_loop(method):
    """Loops of methods that answer with probabilities take none."""
    stream = clip_like_stream(3, classes=5, dim=12, count=30, scale=25.0)
    prompts = stream.classifier.prompt_features
    classifier = pta.ZeroShotClassifier(stream.anchors, list("abcde"), stream.scale, -3.0, prompt_features=prompts)
    samples, parameters = with_views(stream, 12), {"length": 30} if method == "onzeta" else {}
    taken = {"bias": -3.0} if "bias" in signature(loop_of(method)).parameters else {}
    if method == "combined":
        arrays = stream.anchors.numpy(), stream.features.numpy()
        taken["base_logits"] = tda_loop(*arrays, scale=stream.scale, **taken)
    logits = pta.create_adapter(method, classifier, **parameters).step(samples)
    np.testing.assert_allclose(logits, expected(method, stream, samples, **taken, **parameters), atol=1e-8, rtol=0)


def defaults(loop):
    return {name: one.default for name, one in signature(loop).parameters.items()}


@pytest.mark.parametrize("method", pta.list_adapters())
def test_the_defaults_are_those_the_loop_was_written_with(method):
    prompts = {"start": "a photo of a", "max_gib": 1.0}
    tuned = prompts | {"first_gradient": "auto"}
    own = {
        "boostadapter": defaults(tda_loop),
        "combined": {"base": "tda", "base_parameters": {}, "state_dtype": None},
        "dota": {"max_gib": 2.0},
        "onzeta": {"length": None},
        "pta": {"variant": "released", "state_dtype": None},
        "histpt": prompts,
        **dict.fromkeys(("tpt", "difftpt", "difftpt-augmented"), tuned),
        "tca": {"blocks": None},
    }.get(method, {})
    declared = {name: one.default for name, one in adapter_class(method).declared.items()}
    loop = {"prior": "none", "gate": "none", "calibration": "fixed", **NO_OFFSET} | defaults(loop_of(method)) | own
    assert declared == {name: loop[name] for name in declared}


def test_the_loop_of_tca_takes_images():
    assert list(signature(loop_of("tca")).parameters)[:3] == ["anchors", "images", "tower"]
