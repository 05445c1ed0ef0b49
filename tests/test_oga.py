"""OGA: the loop and every switch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import clip_like_stream, cuts, streams, toy_stream

from pta import Samples, ZeroShotClassifier
from pta.adapters.checks import check_adapter
from pta.adapters.combined import Combined
from pta.adapters.oga import OGA
from pta.reference.oga import oga_loop

PARAMETERS = st.fixed_dictionaries(
    {
        "slots": st.sampled_from([1, 3, 8]),
        "tau": st.sampled_from([0.05, 0.2]),
        "mean": st.sampled_from(["capacity", "count"]),
        "renormalise": st.booleans(),
        "order": st.sampled_from(["update-first", "predict-first"]),
    }
)


def loop_of(stream, **parameters):
    return oga_loop(stream.anchors.numpy(), stream.features.numpy(), scale=stream.scale, **parameters)


@settings(max_examples=30)
@given(st.data())
def test_oga_equals_the_loop_on_any_stream_in_any_batches(data):
    stream, parameters = data.draw(streams(max_count=50)), data.draw(PARAMETERS)
    adapter = OGA(stream.classifier, **parameters)
    batches = data.draw(cuts(len(stream.features)))
    outputs = torch.cat([adapter.step(stream.features[batch]) for batch in batches])
    np.testing.assert_allclose(outputs, loop_of(stream, **parameters), atol=1e-7, rtol=1e-8)


@pytest.mark.parametrize("dim", [6, 32])
def test_single_precision_is_near_the_loop(dim):
    stream = clip_like_stream(0, classes=12, dim=dim, count=150, duplicates=0.2).to(torch.float32)
    outputs = OGA(stream.classifier).step(stream.features)
    np.testing.assert_allclose(outputs, loop_of(stream.to(torch.float64)), atol=2e-3, rtol=0)


def test_the_defaults_are_those_of_the_loop():
    stream = clip_like_stream(9, classes=4, dim=24, count=80)
    adapter = OGA(stream.classifier)
    defaults = {"slots": 8, "tau": 0.05, "mean": "capacity", "renormalise": False, "order": "update-first"}
    assert adapter.parameters == defaults
    np.testing.assert_allclose(adapter.step(stream.features), loop_of(stream), atol=1e-8, rtol=0)
    assert adapter.filled.all()


def test_oga_obeys_the_laws():
    check_adapter(OGA)


def test_oga_obeys_the_laws_with_every_switch_turned():
    turned = {"mean": "count", "renormalise": True, "order": "predict-first", "slots": 3}
    check_adapter(lambda classifier: OGA(classifier, **turned))


# -- what the rule means ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "switch",
    [{"mean": "count"}, {"renormalise": True}, {"order": "predict-first"}, {"slots": 3}, {"tau": 0.2}],
    ids=str,
)
def test_a_switch_makes_a_difference(switch):
    stream = clip_like_stream(1, classes=6, dim=24, count=80)
    switched = OGA(stream.classifier, **switch).step(stream.features)
    assert (switched - OGA(stream.classifier).step(stream.features)).abs().max() > 1e-2
    np.testing.assert_allclose(switched, loop_of(stream, **switch), atol=1e-8, rtol=0)


def test_a_mean_needs_two_items_and_is_divided_by_the_capacity():
    toy = toy_stream()
    one, two = toy.features[1], torch.nn.functional.normalize(toy.features[1] + 0.1 * toy.anchors[1], dim=0)
    adapter, exact, unit = OGA(toy.classifier), OGA(toy.classifier, mean="count"), OGA(toy.classifier, renormalise=True)
    for method in (adapter, exact, unit):
        method.step(one[None])
        torch.testing.assert_close(method.means, toy.anchors)
        method.step(two[None])
    torch.testing.assert_close(adapter.means[1], (one + two) / 8)
    torch.testing.assert_close(exact.means[1], (one + two) / 2)
    torch.testing.assert_close(unit.means[1], torch.nn.functional.normalize(one + two, dim=0))


def test_until_a_class_has_three_items_the_precision_is_d():
    stream = clip_like_stream(2, classes=5, dim=16, count=10)
    adapter = OGA(stream.classifier, slots=2)
    outputs = adapter.step(stream.features)[-1]
    x, z = stream.features[-1], stream.classifier.logits(stream.features)[-1]
    distances = (x - adapter.means).square().sum(dim=1)
    expected = z.log_softmax(dim=0) + (-0.05 * 16 * 0.5 * distances).log_softmax(dim=0)
    assert adapter.filled.sum() > 5
    torch.testing.assert_close(outputs, expected)


def test_the_ridge_falls_away_beyond_four_items_a_dimension():
    stream = clip_like_stream(3, classes=6, dim=8, count=100)
    adapter = OGA(stream.classifier)
    adapter.step(stream.features)
    assert adapter.moments[-1, -1] > 4 * 8
    residuals = (adapter.items - adapter.means[:, None])[adapter.filled]
    precision = torch.linalg.inv(residuals.T.cov())
    off = stream.features[:, None] - adapter.means
    likelihoods = -0.5 * torch.einsum("bcd,de,bce->bc", off, precision, off)
    expected = stream.classifier.logits(stream.features).log_softmax(dim=1) + (0.05 * likelihoods).log_softmax(dim=1)
    torch.testing.assert_close(adapter.predict(stream.features), expected)


def test_directions_that_float32_cannot_tell_from_none_do_not_count():
    stream = clip_like_stream(4, classes=6, dim=8, count=100)
    noise = 1e-5 * torch.randn(100, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    twin = torch.cat([stream.features, stream.features[:, :1] + noise], dim=1)  # two coordinates all but equal
    anchors = torch.cat([stream.anchors, stream.anchors[:, :1] + 0.01], dim=1)
    classifier = ZeroShotClassifier(anchors, stream.classifier.class_names, 30.0)
    features = torch.nn.functional.normalize(twin)
    outputs = OGA(classifier).step(features)
    expected = oga_loop(classifier.anchors.numpy(), features.numpy(), scale=30.0)
    np.testing.assert_allclose(outputs, expected, atol=1e-7, rtol=0)
    assert outputs.abs().max() < 1e3


def test_a_sample_without_any_certainty_never_enters():
    anchors = torch.eye(3, dtype=torch.float64)
    adapter = OGA(ZeroShotClassifier(anchors, ["a", "b", "c"]))
    outputs = adapter.step(torch.full((4, 3), 3**-0.5, dtype=torch.float64))
    assert not adapter.filled.any()
    assert outputs.isfinite().all()


def test_the_same_sample_again_does_not_replace_itself():
    stream = clip_like_stream(5, classes=4, dim=16, count=60)
    adapter = OGA(stream.classifier, slots=1)
    adapter.step(stream.features)
    before = adapter.items.clone()
    for batch in stream.features.split(7):
        adapter.step(batch)
    assert torch.equal(adapter.items, before)


def test_the_same_sample_again_and_again_is_no_spread_and_no_nan():
    toy = toy_stream()
    outputs = OGA(toy.classifier, mean="count").step(toy.features[:1].repeat(20, 1))
    assert outputs.isfinite().all()


def test_answers_are_logarithms_of_prior_times_likelihood():
    stream = clip_like_stream(6, classes=6, dim=16, count=40)
    adapter = OGA(stream.classifier, tau=0.0)
    outputs = adapter.step(stream.features)
    s = stream.classifier.logits(stream.features).softmax(dim=1)
    torch.testing.assert_close(outputs.softmax(dim=1), s)
    torch.testing.assert_close(outputs, (s / 6).log())


def test_the_prior_of_a_mean_of_views_is_the_mean_of_their_probabilities():
    views = clip_like_stream(10, classes=8, dim=24, count=6 * 40, in_order=True)
    most_confident = views.features.unflatten(0, (40, 6))
    means = most_confident.mean(dim=1)
    outputs = OGA(views.classifier).step(Samples.of(means, most_confident=most_confident, normalise=False))
    expected = oga_loop(views.anchors.numpy(), means.numpy(), scale=views.scale, most_confident=most_confident.numpy())
    np.testing.assert_allclose(outputs, expected, atol=1e-8, rtol=0)
    plain = OGA(views.classifier).step(Samples.of(means, normalise=False))
    assert (outputs - plain).abs().max() > 0.1


def test_a_bias_changes_nothing():
    stream = clip_like_stream(7, classes=6, dim=16, count=30)
    names = [f"class {c}" for c in range(6)]
    plain, biased = (ZeroShotClassifier(stream.anchors, names, scale=30.0, bias=bias) for bias in (0.0, -12.0))
    expected, found = (OGA(classifier).step(stream.features) for classifier in (plain, biased))
    torch.testing.assert_close(found, expected)


def test_forgetting_a_class_leaves_the_covariance_of_the_others():
    stream = clip_like_stream(8, classes=6, dim=16, count=60)
    adapter, others = OGA(stream.classifier), OGA(stream.classifier)
    adapter.step(stream.features)
    adapter.reset(classes=[0, 3])
    labels = stream.classifier.logits(stream.features).argmax(dim=1)
    others.step(stream.features[~torch.isin(labels, torch.tensor([0, 3]))])
    torch.testing.assert_close(adapter.moments, others.moments)
    torch.testing.assert_close(adapter.predict(stream.features), others.predict(stream.features))


def test_the_covariance_follows_when_a_method_on_top_forgets_a_class():
    stream = clip_like_stream(8, classes=6, dim=16, count=60)
    alone, below = OGA(stream.classifier), Combined(stream.classifier, base="oga")
    for adapter in (alone, below):
        adapter.step(stream.features)
        adapter.reset(classes=[0, 3])
    torch.testing.assert_close(below.other.moments, alone.moments)
