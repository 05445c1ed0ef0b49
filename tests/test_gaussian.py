"""The engine of class Gaussians: its moments, its precision and its bank, against what defines them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pta.engines.gaussian import Gaussians, add_moments, admissions, sample_covariance, shrunk_covariance

SHAPES = {"classes": st.integers(1, 6), "slots": st.integers(1, 5), "dim": st.integers(2, 12)}


def bank(seed, classes, slots, dim):
    random = np.random.default_rng(seed)
    items = torch.from_numpy(random.normal(size=(classes, slots, dim)))
    means = torch.from_numpy(random.normal(size=(classes, dim)))
    filled = torch.from_numpy(random.random((classes, slots)) < 0.8)
    filled[0, 0] = True
    return items, means, filled


def moments_of(items, means, filled):
    moments = torch.zeros(items.shape[-1] + 1, items.shape[-1] + 1, dtype=torch.float64)
    add_moments(moments, items, means[:, None], filled)
    return moments


def residuals_of(items, means, filled):
    return (items - means[:, None])[filled].numpy()


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), **SHAPES)
def test_moments_give_the_count_and_the_covariance_of_the_residuals(seed, classes, slots, dim):
    items, means, filled = bank(seed, classes, slots, dim)
    moments, residuals = moments_of(items, means, filled), residuals_of(items, means, filled)
    assert moments[-1, -1] == len(residuals)
    expected = np.cov(residuals.T) if len(residuals) > 1 else np.zeros((dim, dim))
    np.testing.assert_allclose(sample_covariance(moments), expected, atol=1e-12)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), **SHAPES)
def test_taking_a_class_away_and_adding_it_again_changes_nothing(seed, classes, slots, dim):
    items, means, filled = bank(seed, classes, slots, dim)
    moments = moments_of(items, means, filled)
    expected = moments.clone()
    add_moments(moments, items[0], means[0], filled[0], sign=-1)
    add_moments(moments, items[0], means[0], filled[0])
    torch.testing.assert_close(moments, expected, atol=1e-12, rtol=0)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), dtype=st.sampled_from([torch.float32, torch.float64]), **SHAPES)
def test_solving_equals_the_pseudo_inverse(seed, dtype, classes, slots, dim):
    items, means, filled = bank(seed, classes, slots, dim)
    residuals = residuals_of(items, means, filled)
    n = len(residuals)
    covariance = np.cov(residuals.T) if n > 1 else np.eye(dim)
    precision = dim * np.linalg.pinv((n - 1) * covariance + np.trace(covariance) * np.eye(dim))
    features = items.flatten(0, 1)
    expected = features.numpy() @ precision @ means.numpy().T
    expected -= 0.5 * np.einsum("cd,de,ce->c", means, precision, means)
    gaussians = Gaussians.of(shrunk_covariance(moments_of(items, means, filled)), means.to(dtype))
    scores = gaussians.scores(features.to(dtype)).double().numpy()
    differences = (scores - scores[:, :1]) - (expected - expected[:, :1])
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(differences / scale, 0, atol=1e-10 if dtype == torch.float64 else 1e-4)


def test_one_item_has_the_identity_for_a_precision():
    items, means, filled = bank(0, 3, 2, 5)
    filled[:] = False
    filled[1, 1] = True
    torch.testing.assert_close(shrunk_covariance(moments_of(items, means, filled)), torch.eye(5, dtype=torch.float64))


def test_without_spread_the_precision_is_zero():
    item = torch.nn.functional.normalize(torch.tensor([[0.3, 0.1, 0.7]], dtype=torch.float64))
    items, filled = item.expand(1, 4, 3), torch.ones(1, 4, dtype=torch.bool)
    covariance = shrunk_covariance(moments_of(items, 0.5 * item, filled))
    assert (covariance == 0).all()
    assert (Gaussians.of(covariance, torch.eye(3)).scores(torch.rand(2, 3)) == 0).all()


@pytest.mark.parametrize(("step", "counts"), [(1e-7, False), (3e-6, True)])
def test_residuals_count_as_spread_above_a_millionth(step, counts):
    item = torch.nn.functional.normalize(torch.tensor([[0.3, 0.1, 0.7]], dtype=torch.float64))
    items = torch.stack([item[0], item[0] + step * torch.eye(3, dtype=torch.float64)[0]])[None]
    moments = moments_of(items, 0.5 * item, torch.ones(1, 2, dtype=torch.bool))
    for covariance in (sample_covariance(moments), shrunk_covariance(moments)):
        assert bool(covariance.any()) == counts


def test_a_cut_direction_does_not_count():
    covariance = torch.diag(torch.tensor([2.0, 1.0, 1e-9], dtype=torch.float64))
    means = torch.eye(3, dtype=torch.float64)
    features = torch.tensor([[0.5, 0.2, 0.9]], dtype=torch.float64)
    expected = features @ torch.diag(torch.tensor([0.5, 1, 0], dtype=torch.float64)) - torch.tensor([[0.25, 0.5, 0]])
    scores = Gaussians.of_singular(covariance, means, 1e-6).scores(features)
    torch.testing.assert_close(scores - scores[:, :1], expected - expected[:, :1])
    uncut = Gaussians.of_singular(covariance, means, 1e-12).scores(features)
    torch.testing.assert_close(Gaussians.of(covariance, means).scores(features), uncut)


def test_what_float32_cannot_resolve_is_computed_in_float64():
    covariance = torch.diag(torch.tensor([1.0, 1e-9], dtype=torch.float64))
    gaussians = Gaussians.of(covariance, torch.eye(2))
    assert gaussians.origin.dtype == torch.float64
    assert gaussians.scores(torch.eye(2)).dtype == torch.float32
    assert Gaussians.of(torch.eye(2, dtype=torch.float64), torch.eye(2)).origin.dtype == torch.float32


def test_samples_enter_free_slots_then_take_that_of_the_largest_entropy():
    entropies = torch.full((2, 2), 9.0, dtype=torch.float64)
    new = torch.tensor([0.5, 0.3, 0.4, 0.6, 0.2], dtype=torch.float64)
    labels = torch.tensor([1, 1, 1, 1, 0])
    assert admissions(entropies, labels, new) == [(0, 1, 0), (1, 1, 1), (2, 1, 0), (4, 0, 0)]
    assert (entropies == 9.0).all()


@pytest.mark.parametrize("noise", [0.0, 1e-14, -1e-14])
def test_equal_entropy_does_not_replace(noise):
    entropies = torch.tensor([[0.5]], dtype=torch.float64)
    assert admissions(entropies, torch.tensor([0]), torch.tensor([0.5 + noise], dtype=torch.float64)) == []


def test_what_an_empty_slot_holds_bounds_what_may_enter():
    entropies = torch.full((1, 2), math.log(3), dtype=torch.float64)
    uniform = torch.tensor([math.log(3), 1.0], dtype=torch.float64)
    assert admissions(entropies, torch.tensor([0, 0]), uniform) == [(1, 0, 0)]
