"""The order-aware prior: a stage in front of a method, exact for every batch, closed on shuffled streams."""

from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from inspect import signature

import numpy as np
import pytest
import torch
from cases import CASES
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import clip_like_stream, cuts, streams, with_views

import pta
from pta import Samples, ZeroShotClassifier
from pta.errors import InvalidParameter, InvalidSamples, StateMismatch
from pta.methods import adapter_class
from pta.reference.combined import combined_loop
from pta.reference.local_prior import local_prior_loop
from pta.reference.pta import pta_loop
from pta.reference.tda import tda_loop
from pta.run.gpu.recordable import is_recordable

METHODS = ["adapt", "bca", "boostadapter", "clip", "combined", "dota", "freetta", "oga", "onzeta", "pta", "sca", "tda"]


def z_of(stream):
    return (stream.scale * stream.features @ stream.anchors.T).numpy()


def loop_with_prior(method, stream, samples, log_prior, **parameters):
    """The method's own loop with z + ℓ in the place of z."""
    arrays = {"anchors": stream.anchors.numpy(), "features": samples.features.numpy(), "scale": stream.scale}
    if method == "pta":
        return pta_loop(**arrays, base_logits=z_of(stream) + log_prior, **parameters)
    if method == "combined":
        return combined_loop(**arrays, base_logits=tda_loop(**arrays, log_prior=log_prior), **parameters)
    loop = getattr(import_module(f"pta.reference.{method}"), f"{method}_loop")
    views = {"views": samples.views.numpy()} if "views" in signature(loop).parameters else {}
    return loop(**arrays, **views, log_prior=log_prior, **parameters)


def test_the_prior_is_offered_by_the_methods_that_take_everything_from_zero_shot():
    offering = {name for name in pta.list_adapters() if "prior" in adapter_class(name).declared}
    assert set(METHODS) <= offering <= {*METHODS, "wpta"}
    assert all(adapter_class(name).declared["prior"].default == "none" for name in METHODS)


@settings(max_examples=repeated(60))
@given(st.data())
def test_any_stream_in_any_batches_gets_the_prior_of_the_loop(data):
    stream = data.draw(streams(max_count=200))
    adapter = pta.create_adapter("clip", stream.classifier, prior="local")
    parts = data.draw(cuts(len(stream.features)))
    logits = torch.cat([adapter.step(stream.features[part]) for part in parts])
    z = z_of(stream)
    np.testing.assert_allclose(logits.numpy() - z, local_prior_loop(z), atol=1e-10, rtol=0)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=12)
@given(st.data())
def test_with_the_prior_a_method_gives_what_its_own_loop_gives_of_the_shifted_logits(method, data):
    shape = {"classes": 12, "dim": 16, "count": 50, "present": 0.2, "in_order": data.draw(st.booleans())}
    stream = clip_like_stream(data.draw(st.integers(0, 999)), **shape)
    samples = with_views(stream, 12)
    case = CASES.get(method)
    values = case.values if case else {"h": [20.0, 5.0]}
    parameters = {name: data.draw(st.sampled_from(one)) for name, one in values.items()} | (case.fixed if case else {})
    adapter = pta.create_adapter(method, stream.classifier, prior="local", **parameters)
    logits = torch.cat([adapter.step(samples[part]) for part in data.draw(cuts(50))])
    loop = loop_with_prior(method, stream, samples, local_prior_loop(z_of(stream)), **parameters)
    atol = (case.tolerance if case else 1e-9) * max(100, np.abs(loop).max())
    np.testing.assert_allclose(logits, loop, atol=atol, rtol=0)


@pytest.mark.parametrize("method", METHODS)
def test_a_sorted_stream_is_answered_otherwise_with_the_prior(method):
    with_prior, without = (ordered(method, prior=prior) for prior in ("local", "none"))
    assert (with_prior.answers - without.answers).abs().max() > 0.01


@pytest.mark.parametrize("method", ["clip", *(name for name in METHODS if "order" in adapter_class(name).declared)])
def test_predict_gives_each_sample_what_a_clone_without_prior_would_answer_and_learns_nothing(method):
    """A sample that is not learned has no place in the order of the stream."""
    order = {} if method == "clip" else {"order": "predict-first"}  # else the answer of `step` has the sample in it
    one, without = (ordered(method, prior=prior, **order) for prior in ("local", "none"))
    without.adapter._put({name: one.adapter.state()[name] for name in without.adapter.state()})
    before = one.adapter.snapshot().tensors
    predicted = one.adapter.predict(one.rest)
    assert all(torch.equal(tensor, before[name]) for name, tensor in one.adapter.state().items())
    stepped = torch.cat([without.adapter.clone().step(sample) for sample in one.rest.batches(1)])
    torch.testing.assert_close(predicted, stepped)


@dataclass
class Ordered:
    adapter: pta.Adapter
    answers: torch.Tensor
    rest: Samples


def ordered(method, **parameters):
    """An adapter after 60 samples of a sorted stream, its answers, and 30 samples that are left."""
    stream = clip_like_stream(2, classes=12, dim=24, count=90, present=0.4, in_order=True)
    samples = with_views(stream, 12)
    adapter = pta.create_adapter(method, stream.classifier, source=90, **parameters)
    return Ordered(adapter, adapter.step(samples[:60]), samples[60:])


def gates_of(labels, classes=20, confidence=4.0, seed=0):
    """How far the gate is open along a stream of these classes."""
    z = np.random.default_rng(seed).normal(size=(len(labels), classes))
    z[np.arange(len(labels)), labels] += confidence
    gates: list[float] = []
    shifts = local_prior_loop(z, gates)
    return np.array(gates), shifts


def test_the_gate_stays_closed_on_shuffled_streams_whatever_their_class_frequencies():
    random = np.random.default_rng(1)
    for frequencies in (np.ones(20), 1 / np.arange(1, 21), np.r_[30.0, np.ones(19)]):
        labels = random.choice(20, size=2000, p=frequencies / frequencies.sum())
        gates, shifts = gates_of(labels)
        assert gates.max() < 0.5
        assert gates[100:].mean() < 0.02
        assert np.abs(shifts[100:]).mean() < 0.02


def test_the_gate_opens_on_a_sorted_stream_and_closes_again_slowly():
    sorted_part, shuffled = np.repeat(np.arange(20), 25), np.random.default_rng(2).integers(20, size=3000)
    gates, shifts = gates_of(np.concatenate([sorted_part, shuffled]))
    assert gates[100:500].min() > 0.99
    assert shifts[100:500].max() > 1.5
    assert gates[520] > 0.9  # known weakness
    assert gates[-1000:].max() < 0.1


def test_an_open_gate_favours_the_classes_that_just_came():
    stream = clip_like_stream(1, classes=20, dim=24, count=300, in_order=True)
    without, with_prior = (
        pta.create_adapter("clip", stream.classifier, prior=prior).step(stream.features).argmax(dim=1) == stream.labels
        for prior in ("none", "local")
    )
    assert with_prior.sum() > without.sum() + 10


@pytest.mark.parametrize("classes", [2, 7])
def test_a_single_image_again_and_again_keeps_the_logits_finite_and_its_class(classes):
    stream = clip_like_stream(5, classes=classes, dim=8, count=1)
    adapter = pta.create_adapter("clip", stream.classifier, prior="local")
    z = z_of(stream)
    for _ in range(3):
        logits = adapter.step(stream.features.expand(700, -1))
        assert torch.isfinite(logits).all()
        assert (logits.argmax(dim=1) == int(z.argmax())).all()
    expected = local_prior_loop(np.repeat(z, 2100, axis=0))
    np.testing.assert_allclose(logits.numpy() - z, expected[1400:], atol=1e-10, rtol=0)


def test_single_precision_is_near_double_precision():
    stream = clip_like_stream(6, classes=30, dim=32, count=400, in_order=True)
    wide, narrow = (
        pta.create_adapter("pta", one.classifier, prior="local").step(one.features)
        for one in (stream, stream.to(torch.float32))
    )
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow.double(), wide, atol=2e-3, rtol=0)


def test_a_bias_is_in_the_logits_once():
    stream = clip_like_stream(7, classes=5, dim=12, count=60, in_order=True, scale=25.0)
    biased = ZeroShotClassifier(stream.anchors, list("abcde"), scale=stream.scale, bias=-3.0)
    plain, shifted = (
        pta.create_adapter("clip", one, prior="local").step(stream.features) for one in (stream.classifier, biased)
    )
    torch.testing.assert_close(shifted, plain - 3.0)


def test_means_of_views_are_judged_by_the_views_with_the_prior_of_the_mean():
    stream = clip_like_stream(8, classes=8, dim=16, count=6 * 60, in_order=True, scale=30.0)
    views = stream.features.unflatten(0, (60, 6))
    samples = Samples(views.mean(dim=1), most_confident=views)
    log_prior = local_prior_loop(stream.scale * samples.features.numpy() @ stream.anchors.numpy().T)
    arrays = stream.anchors.numpy(), samples.features.numpy()
    loop = tda_loop(*arrays, scale=stream.scale, most_confident=views.numpy(), log_prior=log_prior)
    logits = pta.create_adapter("tda", stream.classifier, prior="local").step(samples)
    np.testing.assert_allclose(logits, loop, atol=1e-9, rtol=0)


def learned(method="clip", **parameters):
    stream = clip_like_stream(9, classes=6, dim=12, count=80, in_order=True, scale=30.0)
    adapter = pta.create_adapter(method, stream.classifier, prior="local", **parameters)
    adapter.step(stream.features[:60])
    return adapter, stream


def test_the_prior_takes_three_numbers_per_class_and_three_more_and_nothing_without_it():
    adapter, stream = learned()
    assert adapter.state_bytes == 8 * (3 * 6 + 3)
    assert pta.create_adapter("clip", stream.classifier).state().keys() == {"seen"}


def test_forgetting_some_classes_keeps_the_prior_which_is_about_the_order_of_the_stream():
    adapter, _ = learned("pta")
    kept = {name: tensor.clone() for name, tensor in adapter.state().items() if name.startswith("local_")}
    adapter.reset(classes=[0, 3])
    assert all(torch.equal(adapter.state()[name], tensor) for name, tensor in kept.items())
    adapter.reset()
    assert torch.equal(adapter.state()["local_fast"], torch.full((6,), 1 / 6, dtype=torch.float64))


@pytest.mark.parametrize("name", ["fast", "slow", "mean", "found", "by_chance"])
@pytest.mark.parametrize("value", [-2200.0, 2200.0, float("nan")])
def test_a_state_that_no_stream_leads_to_is_refused(name, value):
    adapter, stream = learned()
    snapshot = adapter.snapshot()
    snapshot.tensors[f"local_{name}"].view(-1)[0] = value
    before = adapter.predict(stream.features)
    with pytest.raises(StateMismatch, match=f"local_{name} must be"):
        adapter.restore(snapshot)
    torch.testing.assert_close(adapter.predict(stream.features), before, atol=0, rtol=0)


@settings(max_examples=repeated(30))
@given(st.integers(0, 999), st.integers(0, 10**6), st.booleans())
def test_any_state_within_the_bounds_can_be_gone_on_with(seed, seen, upper):
    adapter, stream = learned()
    random = torch.Generator().manual_seed(seed)
    rows = (torch.rand(3, 6, generator=random, dtype=torch.float64) * 30).softmax(dim=1)
    pieces = dict(zip(("local_fast", "local_slow", "local_mean"), rows, strict=True))
    edges = {"local_found": 2100.0 if upper else -2100.0, "local_by_chance": 2100.0 if upper else 0.0}
    pieces |= {name: torch.tensor(value, dtype=torch.float64) for name, value in edges.items()}
    snapshot = adapter.snapshot()
    adapter.restore(replace(snapshot, tensors={**snapshot.tensors, **pieces, "local_count": torch.tensor(seen)}))
    assert torch.isfinite(adapter.step(stream.features)).all()
    adapter.restore(adapter.snapshot())


def test_a_failed_batch_teaches_the_prior_nothing():
    adapter, stream = learned("pta")
    before = {name: tensor.clone() for name, tensor in adapter.state().items()}
    spoilt = stream.features.clone()
    spoilt[-1] = 0
    with pytest.raises(InvalidSamples):
        adapter.step(spoilt)
    assert all(torch.equal(adapter.state()[name], tensor) for name, tensor in before.items())


def test_segments_are_refused_with_the_reason():
    adapter, stream = learned("pta")
    segment = pta.create_adapter("pta", stream.classifier).summarise(stream.features)
    for use in (partial(adapter.summarise, stream.features), partial(adapter.apply, segment)):
        with pytest.raises(InvalidParameter, match='prior="local": that depends on every sample before'):
            use()


@pytest.mark.parametrize("method", ["mta", "stata", "transclip", "point-cache", "zero"])
def test_other_methods_have_no_prior(method):
    stream = clip_like_stream(9, classes=6, dim=12, count=5)
    with pytest.raises(InvalidParameter, match="has no parameter 'prior'"):
        pta.create_adapter(method, stream.classifier, prior="local")


def test_combined_has_the_prior_in_front_of_the_method_it_stands_on():
    stream = clip_like_stream(9, classes=6, dim=12, count=5)
    adapter = pta.create_adapter("combined", stream.classifier, base="sca", prior="local")
    assert "base.local_fast" in adapter.state()
    assert "local_fast" not in adapter.state()
    with pytest.raises(InvalidParameter, match="prior is a parameter of combined itself"):
        pta.create_adapter("combined", stream.classifier, base_parameters={"prior": "local"})
    with pytest.raises(InvalidParameter, match="mta has no parameter 'prior'"):
        pta.create_adapter("combined", stream.classifier, base="mta", prior="local")


@pytest.mark.extensive
@pytest.mark.parametrize("method", METHODS)
def test_a_step_with_the_prior_can_be_recorded_if_one_without_can(method):
    stream = clip_like_stream(9, classes=6, dim=12, count=5)
    adapters = [pta.create_adapter(method, stream.classifier, source=5, prior=one) for one in ("local", "none")]
    assert is_recordable(adapters[0], 3) == is_recordable(adapters[1], 3)
    assert is_recordable(adapters[0], 3) or method not in ("clip", "bca", "onzeta")


def test_a_rehearsal_on_tensors_without_numbers_leaves_nothing_for_real_samples():
    classifier = ZeroShotClassifier(torch.eye(3), ["cat", "dog", "bird"])
    adapter = pta.create_adapter("clip", classifier, prior="local")
    is_recordable(adapter, 61)  # a length that no other test has
    assert adapter.step(torch.eye(3).repeat(21, 1)[:61]).isfinite().all()
