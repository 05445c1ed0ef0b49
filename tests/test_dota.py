"""DOTA: the worked example, what its counts are, what a forgotten class leaves, and half precision."""

import numpy as np
import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from streams import clip_like_stream, streams, toy_stream

from pta.errors import InvalidParameter
from pta.methods.dota import DOTA
from pta.reference.dota import dota_loop


@pytest.mark.parametrize("size", [1, 2, 3])
def test_worked_example(size):
    toy = toy_stream()
    adapter = DOTA(toy.classifier, epsilon=1e-4, rho=0.02, eta=0.3)
    outputs = torch.cat([adapter.step(part) for part in toy.features.split(size)])
    g = [[0.76992, 0.76992, 0.76992], [1.31630, 1.23321, 0.05317], [-0.1641, 2.3542, 0.41281]]
    weights = torch.tensor([0.02, 0.08 / 3, 0.1 / 3], dtype=torch.float64)
    found = (outputs - toy.classifier.logits(toy.features)) / weights[:, None]
    np.testing.assert_allclose(found, g, atol=6e-5, rtol=0)


@settings(max_examples=repeated(20))
@given(streams(60))
def test_a_count_is_one_and_the_probabilities_so_far(stream):
    adapter = DOTA(stream.classifier)
    adapter.step(stream.features)
    s = (stream.scale * stream.features @ stream.anchors.T).softmax(dim=1)
    torch.testing.assert_close(adapter.counts, 1 + s.sum(dim=0))
    means = (0.001 + s.T @ stream.features) / adapter.counts[:, None]
    torch.testing.assert_close(adapter.mu, means)


@pytest.mark.parametrize("initial_count", [1.0, 0.0])
def test_the_shared_covariance_keeps_what_forgotten_classes_have_put_in(initial_count):
    stream = clip_like_stream(10, classes=6, dim=10, count=70, scale=30.0)
    adapter = DOTA(stream.classifier, covariance="shared", initial_count=initial_count)
    adapter.step(stream.features[:60])
    learned = adapter.pooled.clone()
    adapter.reset(range(6))
    assert torch.equal(adapter.pooled, learned)
    assert adapter.predict(stream.features).isfinite().all()
    assert adapter.step(stream.features[60:]).isfinite().all()
    assert adapter.pooled.isfinite().all()


def test_classes_forgotten_one_by_one_start_anew_from_a_count_of_zero():
    stream = clip_like_stream(11, classes=6, dim=10, count=70, scale=30.0)
    used, new = (DOTA(stream.classifier, initial_count=0.0, order="update-first") for _ in range(2))
    used.step(stream.features[:60])
    used.reset(range(6))
    assert used.predict(stream.features).isfinite().all()
    torch.testing.assert_close(used.step(stream.features[60:]), new.step(stream.features[60:]))


def test_single_precision_holds_a_class_that_has_hardly_anything():
    stream = clip_like_stream(12, classes=6, dim=10, count=40, present=0.0, spread=0.7, scale=1000.0)
    single = DOTA(stream.to(torch.float32).classifier, initial_count=0.0)
    assert single.step(stream.features).isfinite().all()
    assert single.predict(stream.features).isfinite().all()
    assert single.counts.min() < 1e-31


def test_half_precision_scoring_is_that_of_the_loop_and_makes_a_difference():
    toy = toy_stream()
    half, full = (DOTA(toy.classifier, **how).step(toy.features) for how in ({"scoring": "float16"}, {}))
    expected = dota_loop(toy.anchors.numpy(), toy.features.numpy(), scale=toy.scale, scoring="float16")
    np.testing.assert_allclose(half, expected, atol=1e-9, rtol=1e-9)
    assert (half - full).abs().max() > 1e-6


@pytest.mark.parametrize("covariance", ["per-class", "shared"])
def test_half_precision_scoring_is_finite_where_half_precision_overflows(covariance):
    stream = clip_like_stream(6, classes=6, dim=32, count=40)
    adapter = DOTA(stream.classifier, scoring="float16", epsilon=1e-5, sigma=1e-6, covariance=covariance)
    assert adapter.step(stream.features).isfinite().all()


def test_covariances_beyond_the_bound_are_refused_with_a_way_out_before_anything_is_allocated(monkeypatch):
    small = clip_like_stream(8, classes=40, dim=64, count=1).classifier
    assert DOTA(small, max_gib=0.001, covariance="shared").pooled.shape == (64, 64)
    large = clip_like_stream(8, classes=1000, dim=1024, count=1).to(torch.float32).classifier
    monkeypatch.setattr(DOTA, "add_state", lambda *_, **__: pytest.fail("allocated"))
    with pytest.raises(InvalidParameter, match=r'0\.00122 GiB of covariances, max_gib is 0\.001; .*"shared"'):
        DOTA(small, max_gib=0.001)
    with pytest.raises(InvalidParameter, match=r"3\.91 GiB of covariances, max_gib is 2; "):
        DOTA(large)
