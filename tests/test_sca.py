"""SCA: the batch form against direct solves, and the pseudo-labels."""

import numpy as np
import pytest
import torch
from streams import clip_like_stream, toy_stream

from pta.engines.gaussian.recursive_least_squares import learn_least_squares
from pta.errors import InvalidParameter
from pta.methods.sca import SCA
from pta.reference.sca import pseudo_label


@pytest.mark.parametrize("gamma", [1e4, 1.0, 1e-4])
def test_the_state_is_the_ridge_regression_of_all_samples(gamma):
    stream = clip_like_stream(2, classes=10, dim=16, count=300)
    adapter = SCA(stream.classifier, gamma=gamma)
    f = stream.features
    for part in (f[:7], f[7:8], f[8:]):
        adapter.step(part)
    labels = adapter._pseudo_labels((stream.scale * f @ stream.anchors.T).softmax(dim=1))
    system = f.T @ f + gamma * torch.eye(16, dtype=torch.float64)
    torch.testing.assert_close(adapter.weights.T, torch.linalg.solve(system, f.T @ labels), rtol=1e-7, atol=1e-12)
    torch.testing.assert_close(adapter.inverse, torch.linalg.inv(system), rtol=1e-7, atol=1e-12)
    assert torch.equal(adapter.inverse, adapter.inverse.T)


@pytest.mark.parametrize("order", ["update-first", "predict-first"])
def test_the_engine_gives_each_sample_the_weights_of_its_turn(order):
    random = np.random.default_rng(3)
    f, y = torch.from_numpy(random.normal(size=(20, 6))), torch.from_numpy(random.random((20, 4)))
    inverse, weights = torch.eye(6, dtype=torch.float64) / 2, torch.zeros(4, 6, dtype=torch.float64)
    scores = learn_least_squares(inverse, weights, f, y, order)
    for t in range(20):
        seen = slice(0, t + (order == "update-first"))
        W = torch.linalg.solve(f[seen].T @ f[seen] + 2 * torch.eye(6, dtype=torch.float64), f[seen].T @ y[seen])
        torch.testing.assert_close(scores.products[t], f[t] @ W)
        torch.testing.assert_close(scores.lengths[t], W.norm(dim=0))


def test_a_confident_sample_has_one_label_and_an_uncertain_one_several():
    labels = SCA(toy_stream().classifier)._pseudo_labels(
        torch.tensor([[0.9, 0.06, 0.04], [0.3, 0.36, 0.34], [0.3, 0.35, 0.35]], dtype=torch.float64)
    )
    # thresholds 0.05, 0.32 and 0.325: the best class alone reaches each
    assert labels.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0]]
    uniform = torch.full((1, 5), 0.2, dtype=torch.float64)
    five = SCA(clip_like_stream(0, classes=5, dim=8, count=1).classifier)
    assert five._pseudo_labels(uniform).tolist() == [[0.5, 0.5, 0, 0, 0]]  # 0.4 needs two


def test_rounding_does_not_decide_whether_equal_probabilities_reach_the_threshold():
    for classes in range(2, 61):
        p = np.full(classes, 1 / classes)
        expected = np.zeros(classes)
        expected[: classes // 2] = 1 / (classes // 2)  # the fewest k with k/C ≥ (1 − 1/C)/2
        adapter = SCA(clip_like_stream(0, classes=classes, dim=4, count=1).classifier)
        np.testing.assert_allclose(adapter._pseudo_labels(torch.from_numpy(p)[None])[0], expected, atol=1e-15)
        np.testing.assert_allclose(pseudo_label(p, 0.5, "uncertainty", 1.0), expected, atol=1e-15)


def test_a_scale_of_the_cache_is_a_number_or_none():
    classifier = toy_stream().classifier
    assert SCA(classifier, cache_scale=None).cache_scale is None
    for value in (-1.0, "1"):
        with pytest.raises(InvalidParameter, match=f"cache_scale must be a number from 0 to 1e\\+09, got {value!r}"):
            SCA(classifier, cache_scale=value)
