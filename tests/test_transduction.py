"""What TransCLIP and StatA share: neighbours, classes that always have a mean and a width, and what answers mean."""

from functools import partial

import numpy as np
import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import clip_like_stream, streams

from pta import ZeroShotClassifier
from pta.engines.gaussian import transduction
from pta.engines.gaussian.transduction import (
    Moments,
    Ties,
    as_logits,
    direction,
    log_likelihood,
    nearest_neighbours,
    settle,
)
from pta.methods.stata import StatA
from pta.methods.transclip import TransCLIP
from pta.reference.transclip import affinity, transclip_loop

METHODS = pytest.mark.parametrize("method", [TransCLIP, StatA, partial(StatA, counts="soft", alpha=0.0)], ids=str)


def varied_stream(dtype=torch.float64):
    return clip_like_stream(1, classes=10, dim=24, count=80, scale=40.0).to(dtype)


@settings(max_examples=repeated(30))
@given(streams(max_count=40), st.integers(1, 6))
def test_ties_are_the_cosines_with_the_nearest_others_both_ways(stream, neighbours):
    W = affinity(stream.features.numpy(), neighbours)
    everybody = torch.eye(len(stream.features), dtype=torch.float64)
    np.testing.assert_allclose(Ties.of(stream.features, neighbours).pull(everybody), W + W.T, atol=1e-14, rtol=0)
    np.testing.assert_allclose(Ties.of(stream.features, neighbours, 0.3).pull(everybody), 0.3 * (W + W.T), atol=1e-14)


@pytest.mark.parametrize("at_once", [1, 130, 1000])
def test_rows_in_chunks_give_the_same_neighbours_as_all_at_once(monkeypatch, at_once):
    features = clip_like_stream(1, classes=8, dim=16, count=65, duplicates=0.3).features
    expected, cosines = nearest_neighbours(features, 3)
    monkeypatch.setattr(transduction, "_COSINES_AT_ONCE", at_once)
    found, found_cosines = nearest_neighbours(features, 3)
    assert torch.equal(found, expected)
    torch.testing.assert_close(found_cosines, cosines, atol=1e-14, rtol=0)


def test_a_sample_is_not_its_own_neighbour_even_among_copies():
    copies = clip_like_stream(2, classes=3, dim=16, count=1).features.expand(6, 16)
    nearest, cosines = nearest_neighbours(copies, 3)
    assert nearest.tolist() == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2], [0, 1, 2], [0, 1, 2]]
    torch.testing.assert_close(cosines, torch.ones(6, 3, dtype=torch.float64))


def test_a_long_feature_is_nobodys_neighbour_for_its_length():
    features = torch.tensor([[1.0, 0.0], [0.9, 0.1], [5.0, 5.0]])
    assert nearest_neighbours(features, 1)[0].tolist() == [[1], [0], [1]]


def test_precision_does_not_decide_between_neighbours():
    features = clip_like_stream(3, classes=4, dim=32, count=90, duplicates=0.5).features.float()
    assert torch.equal(nearest_neighbours(features, 3)[0], nearest_neighbours(features.double(), 3)[0])


@pytest.mark.parametrize(("closer", "nearest"), [(1e-11, 1), (1e-8, 2)])
def test_cosines_differ_from_a_hundred_millionth_on(closer, nearest):
    cosine = torch.tensor([1.0, 0.75, 0.75 + closer], dtype=torch.float64)
    features = torch.stack([cosine, (1 - cosine.square()).sqrt()], dim=1)
    features[1, 1] *= -1  # on the other side of sample 0
    assert int(nearest_neighbours(features, 1)[0][0, 0]) == nearest


def test_settling_renews_all_samples_together():
    z = torch.tensor([[0.9, 0.1], [0.2, 0.8]], dtype=torch.float64)
    ties = Ties.of(torch.tensor([[1.0, 0.0], [1.0, 1.0]], dtype=torch.float64), neighbours=1, weight=1.5)
    swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64) * 2 * 1.5 * 0.5**0.5
    once = settle(z.log(), torch.zeros_like(z), ties, sweeps=1)
    torch.testing.assert_close(once.exp(), (swap @ z).softmax(dim=1))
    twice = settle(z.log(), torch.zeros_like(z), ties, sweeps=2)
    torch.testing.assert_close(twice.exp(), (swap @ once.exp()).softmax(dim=1))


def test_moments_are_weighted_means_and_variances():
    stream = clip_like_stream(5, classes=6, dim=12, count=50)
    z = (30 * stream.features @ stream.anchors.T).softmax(dim=1)
    moments = Moments.of(stream.features, z.log())
    around = moments.around(stream.anchors)
    F, T = stream.features.numpy(), stream.anchors.numpy()
    for c, weights in enumerate(z.numpy().T):
        mean = np.average(F, axis=0, weights=weights)
        np.testing.assert_allclose(moments.mean[c], mean, atol=1e-14)
        np.testing.assert_allclose(
            moments.variance[c], np.average((F - mean) ** 2, axis=0, weights=weights), atol=1e-14
        )
        np.testing.assert_allclose(around[c], np.average((F - T[c]) ** 2, axis=0, weights=weights), atol=1e-14)


def test_a_class_that_nobody_believes_in_still_has_moments():
    features = clip_like_stream(6, classes=3, dim=8, count=5).features.float()
    log_z = torch.tensor([0.0, -500.0, -1e6]).expand(5, 3)
    moments = Moments.of(features, log_z)
    torch.testing.assert_close(moments.mean, features.mean(dim=0).expand(3, 8))
    assert moments.variance.isfinite().all()


@pytest.mark.parametrize("shared", [True, False])
def test_likelihood_is_that_of_a_diagonal_gaussian(shared):
    stream = clip_like_stream(7, classes=5, dim=12, count=30)
    variances = torch.rand(1 if shared else 5, 12, dtype=torch.float64, generator=torch.manual_seed(0)) + 0.01
    squares = (stream.features[:, None] - stream.anchors).square()
    expected = -0.5 * (squares / variances).sum(dim=2)
    torch.testing.assert_close(log_likelihood(stream.features, stream.anchors, variances), expected)


def test_no_width_is_a_very_small_width():
    f = torch.tensor([[1.0, 0.0]])
    assert log_likelihood(f, torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.zeros(1, 2)).tolist() == [[0.0, -1e10]]


def test_what_has_no_direction_is_replaced():
    rows = torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e-9, 0.0]])
    found = direction(rows, otherwise=torch.tensor([[0.0, 1.0]]).expand(3, 2))
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.8], [0.0, 1.0], [0.0, 1.0]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_end_at_the_smallest_float32(dtype):
    logits = as_logits(torch.tensor([[-1e9, -800.0, -80.0, 0.0]], dtype=dtype))
    torch.testing.assert_close(logits[0, :2], torch.full((2,), np.log(np.finfo(np.float32).tiny), dtype=dtype))
    assert logits[0, 2:].tolist() == [-80.0, 0.0]


# -- what the answers of both mean ------------------------------------------------------------------------------------


@METHODS
def test_the_order_of_samples_and_of_classes_does_not_matter(method):
    torch.manual_seed(0)
    stream, samples, classes = varied_stream(), torch.randperm(80), torch.randperm(10)
    expected = method(stream.classifier).step(stream.features)
    other = ZeroShotClassifier(stream.anchors[classes], [str(c) for c in classes], stream.scale)
    shuffled = method(other).step(stream.features[samples])
    torch.testing.assert_close(shuffled, expected[samples][:, classes], atol=1e-8, rtol=0)


@METHODS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_copies_of_one_sample_are_finite_and_agree_on_its_class(method, dtype):
    stream = varied_stream(dtype)
    for count in (1, 2, 3, 20):
        logits = method(stream.classifier).step(stream.features[:1].expand(count, -1))
        assert logits.isfinite().all()
        assert len(logits.argmax(dim=1).unique()) == 1


@METHODS
def test_a_class_that_nothing_speaks_for_stays_finite(method):
    stream = clip_like_stream(3, classes=4, dim=16, count=30)
    anchors = torch.cat([stream.anchors, -stream.anchors[:1]])  # 150 and more below the others
    classifier = ZeroShotClassifier(anchors, list("abcde"))
    for features in (stream.features, stream.features.float()):
        logits = method(classifier.to(dtype=features.dtype)).step(features)
        assert logits.isfinite().all()
        assert not (logits.argmax(dim=1) == 4).any()
        if method is TransCLIP:
            expected = transclip_loop(anchors.numpy(), stream.features.numpy())
            np.testing.assert_allclose(logits, expected, atol=1e-6 if features.dtype == torch.float64 else 1e-2)


# -- what those of TransCLIP mean -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sample_alone_gets_its_zero_shot_probabilities(dtype):
    stream = varied_stream(dtype)
    alone = stream.features[:1]
    expected = stream.classifier.logits(alone).log_softmax(dim=1)
    torch.testing.assert_close(TransCLIP(stream.classifier).step(alone), expected, atol=1e-4, rtol=0)


def test_neighbours_decide_where_the_text_cannot():
    right, left = [0.0, 1.0, 0.3], [0.0, 1.0, -0.3]
    near = [[0.03, 1.0, 0.3], [0.0, 1.02, 0.3], [-0.03, 1.0, -0.3], [0.0, 1.02, -0.3]]
    features = torch.tensor([right, left, *near], dtype=torch.float64)
    classifier = ZeroShotClassifier([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]], ["right", "left"])
    assert TransCLIP(classifier).step(features).argmax(dim=1).tolist() == [0, 1, 0, 0, 1, 1]
