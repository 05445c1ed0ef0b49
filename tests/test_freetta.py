"""FreeTTA as interpreted: against a loop that inverts the covariance, and every reading as a switch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import clip_like_stream, cuts, streams, toy_stream

from pta import Samples
from pta.adapters.checks import check_adapter
from pta.adapters.freetta import FreeTTA
from pta.reference.freetta import freetta_loop

SWITCHES = [
    {"alpha": 1.0},
    {"beta": 1.0},
    {"scaled_text": False},
    {"covariance": "printed"},
    {"inverse": "shrunk"},
    {"order": "update-first"},
    {"renormalise": True},
]


def loop_of(stream, **parameters):
    return freetta_loop(stream.anchors.numpy(), stream.features.numpy(), scale=stream.scale, **parameters)


def in_batches(adapter, features, slices):
    return torch.cat([adapter.step(features[part]) for part in slices])


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("switch", [{}, *SWITCHES], ids=str)
def test_the_toy_stream_gives_what_the_loop_gives(switch, size):
    toy = toy_stream()
    adapter = FreeTTA(toy.classifier, **switch)
    outputs = torch.cat([adapter.step(part) for part in toy.features.split(size)])
    np.testing.assert_allclose(outputs, loop_of(toy, **switch), atol=1e-10, rtol=0)


def parameters_of(draw):
    return {
        "alpha": draw(st.sampled_from([0.2, 2.0])),
        "beta": draw(st.sampled_from([4.5, 0.5, 0.0])),
        "scaled_text": draw(st.booleans()),
        "covariance": draw(st.sampled_from(["average", "printed"])),
        "inverse": draw(st.sampled_from(["plain", "shrunk"])),
        "order": draw(st.sampled_from(["predict-first", "update-first"])),
        "renormalise": draw(st.booleans()),
    }


@settings(max_examples=30)
@given(st.data())
def test_any_cut_into_batches_gives_what_the_loop_gives(data):
    stream, parameters = data.draw(streams(50)), parameters_of(data.draw)
    adapter = FreeTTA(stream.classifier, **parameters)
    outputs = in_batches(adapter, stream.features, data.draw(cuts(len(stream.features))))
    np.testing.assert_allclose(outputs, loop_of(stream, **parameters), atol=1e-8, rtol=1e-9)


@settings(max_examples=15)
@given(st.data())
def test_single_precision_is_near_the_loop(data):
    stream, parameters = data.draw(streams(50)), parameters_of(data.draw)
    adapter = FreeTTA(stream.to(torch.float32).classifier, **parameters)
    outputs = in_batches(adapter, stream.features, data.draw(cuts(len(stream.features))))
    assert outputs.dtype == torch.float32
    np.testing.assert_allclose(outputs, loop_of(stream, **parameters), atol=5e-3, rtol=1e-4)


@pytest.mark.parametrize("switch", SWITCHES, ids=str)
def test_a_switch_makes_a_difference(switch):
    stream = clip_like_stream(1, classes=6, dim=12, count=60)
    switched = FreeTTA(stream.classifier, **switch).step(stream.features)
    assert (switched - FreeTTA(stream.classifier).step(stream.features)).abs().max() > 1e-3


@settings(max_examples=20)
@given(streams(50), st.sampled_from([4.5, 0.5]))
def test_counts_are_one_and_the_weights_of_all_samples(stream, beta):
    adapter = FreeTTA(stream.classifier, beta=beta)
    adapter.step(stream.features)
    s = (stream.scale * stream.features @ stream.anchors.T).softmax(dim=1)
    weights = torch.exp(-beta * torch.special.entr(s).sum(dim=1))
    assert adapter.counts.sum().item() == pytest.approx(1 + weights.sum().item())
    assert adapter.heard.sum().item() == pytest.approx(weights.sum().item())
    assert (adapter.counts >= 1 / len(stream.anchors)).all()


@pytest.mark.parametrize("parameters", [{}, {"covariance": "printed"}, {"inverse": "shrunk"}], ids=str)
def test_forgotten_classes_take_their_counts_out_of_n(parameters):
    stream = clip_like_stream(7, classes=6, dim=12, count=80)
    adapter = FreeTTA(stream.classifier, alpha=1.0, **parameters)
    adapter.step(stream.features[:60])
    others = adapter.counts[1:].clone()
    adapter.reset([0])
    assert adapter.counts[0].item() == pytest.approx(1 / 6)
    assert torch.equal(adapter.counts[1:], others)
    adapter.step(stream.features[60:])
    s = (stream.scale * stream.features[60:] @ stream.anchors.T).softmax(dim=1)
    weights = torch.exp(-4.5 * torch.special.entr(s).sum(dim=1))
    assert adapter.counts.sum().item() == pytest.approx(1 / 6 + others.sum().item() + weights.sum().item())
    adapter.reset(range(6))
    assert adapter.counts.sum().item() == pytest.approx(1)
    assert adapter.step(stream.features).isfinite().all()


def test_the_averaged_covariance_does_not_grow_and_the_printed_one_does():
    stream = clip_like_stream(2, classes=6, dim=12, count=200)
    averaged, printed = FreeTTA(stream.classifier), FreeTTA(stream.classifier, covariance="printed")
    for adapter in (averaged, printed):
        adapter.step(stream.features)
    assert averaged.sigma.trace() < 12
    assert printed.sigma.trace() > 12
    assert torch.linalg.eigvalsh(averaged.sigma)[0] > 0


@pytest.mark.parametrize("covariance", ["average", "printed"])
def test_samples_of_hardly_any_weight_do_no_harm(covariance):
    stream = clip_like_stream(6, classes=6, dim=12, count=40, scale=1.0)
    adapter = FreeTTA(stream.classifier, covariance=covariance, beta=1000.0)
    assert adapter.step(stream.features).isfinite().all()
    assert adapter.sigma.isfinite().all()


def test_the_first_sample_meets_the_text_as_the_mixture():
    stream = clip_like_stream(3, classes=6, dim=12, count=1)
    outputs = FreeTTA(stream.classifier, alpha=1.0).step(stream.features)
    cosines = stream.features @ stream.anchors.T
    torch.testing.assert_close(outputs, stream.scale * cosines + cosines - 0.5 - np.log(6))


def test_without_alpha_it_is_zero_shot():
    stream = clip_like_stream(4, classes=6, dim=12, count=30)
    outputs = FreeTTA(stream.classifier, alpha=0.0).step(stream.features)
    torch.testing.assert_close(outputs, stream.classifier.logits(stream.features))


def test_views_decide_the_weight_by_the_mean_of_their_distributions():
    stream = clip_like_stream(5, classes=8, dim=16, count=6 * 20, in_order=True, scale=30.0)
    views = stream.features.unflatten(0, (20, 6))
    outputs = FreeTTA(stream.classifier).step(Samples.of(views.mean(dim=1), most_confident=views, normalise=False))
    anchors, means = stream.anchors.numpy(), views.mean(dim=1).numpy()
    expected = freetta_loop(anchors, means, scale=stream.scale, most_confident=views.numpy())
    np.testing.assert_allclose(outputs, expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    "parameters", [{}, {"order": "update-first", "renormalise": True}, {"inverse": "shrunk"}], ids=str
)
def test_freetta_obeys_the_laws(parameters):
    check_adapter(lambda classifier: FreeTTA(classifier, **parameters))
