"""The engines of class Gaussians and of the bank: moments, precision and entries, against what defines them."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st

from pta import Samples, ZeroShotClassifier
from pta.engines.caches.entropy_bank import BankEntry, admissions
from pta.engines.gaussian import gaussians as gaussian
from pta.engines.gaussian.gaussians import Gaussians, add_moments, eigenspace_above, shrunk_covariance
from pta.methods import adapt
from pta.methods.adapt import ADAPT

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


ROWS = torch.tensor([[0.9, 0.1, 0.4], [0.2, 0.9, 0.1], [0.8, 0.3, 0.5]])


def learned(**parameters):
    """ADAPT after a sample of each of two classes."""
    adapter = ADAPT(ZeroShotClassifier(torch.eye(3)[:2], ["cat", "dog"], scale=5.0), **parameters)
    adapter.step(Samples.of(ROWS[:2]))
    return adapter


def number(value):
    return torch.tensor(value, dtype=torch.float64)


def residuals_of(items, means, filled):
    return (items - means[:, None])[filled].numpy()


@settings(max_examples=repeated(30))
@given(seed=st.integers(0, 2**32 - 1), **SHAPES)
def test_moments_give_count_and_covariance_and_a_class_can_be_taken_away_and_added(seed, classes, slots, dim):
    items, means, filled = bank(seed, classes, slots, dim)
    moments, residuals = moments_of(items, means, filled), residuals_of(items, means, filled)
    assert moments[-1, -1] == len(residuals)
    expected = np.cov(residuals.T) if len(residuals) > 1 else np.zeros((dim, dim))
    np.testing.assert_allclose(shrunk_covariance(moments, enough=0), expected, atol=1e-12)
    whole = moments.clone()
    add_moments(moments, items[0], means[0], filled[0], sign=-1)
    add_moments(moments, items[0], means[0], filled[0])
    torch.testing.assert_close(moments, whole, atol=1e-12, rtol=0)


@settings(max_examples=repeated(30))
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
    moments = moments_of(items, means, filled)
    torch.testing.assert_close(shrunk_covariance(moments), torch.eye(5, dtype=torch.float64))
    torch.testing.assert_close(shrunk_covariance(moments, enough=1), torch.eye(5, dtype=torch.float64))


def test_of_more_items_than_enough_the_ridge_falls_away():
    items, means, _ = bank(0, 3, 2, 5)
    moments = moments_of(items, means, torch.ones(3, 2, dtype=torch.bool))
    assert torch.equal(shrunk_covariance(moments, enough=6), shrunk_covariance(moments))
    torch.testing.assert_close(shrunk_covariance(moments, enough=5), (items - means[:, None]).flatten(0, 1).T.cov())


@pytest.mark.parametrize("cutoff", [None, number(0.0), number(1e-6)])
@pytest.mark.parametrize(("value", "readable"), [(0.0, True), (0.0, False), (math.inf, True), (math.nan, True)])
def test_without_spread_and_where_it_overflowed_the_precision_is_zero(monkeypatch, value, readable, cutoff):
    monkeypatch.setattr(gaussian, "is_host_readable", lambda _: readable)
    covariance = torch.full((3, 3), value, dtype=torch.float64)
    assert (Gaussians.of(covariance, torch.eye(3), cutoff=cutoff).scores(torch.rand(2, 3)) == 0).all()


@pytest.mark.parametrize(("step", "counts"), [(0.0, False), (1e-7, False), (3e-6, True)])
def test_residuals_count_as_spread_above_a_millionth(step, counts):
    item = torch.nn.functional.normalize(torch.tensor([[0.3, 0.1, 0.7]], dtype=torch.float64))
    items = torch.stack([item[0], item[0] + step * torch.eye(3, dtype=torch.float64)[0]])[None]
    moments = moments_of(items, 0.5 * item, torch.ones(1, 2, dtype=torch.bool))
    for covariance in (shrunk_covariance(moments, enough=0), shrunk_covariance(moments)):
        assert bool(covariance.any()) == counts


@pytest.mark.parametrize("seen", [True, False])
def test_a_cut_direction_does_not_count(monkeypatch, seen):
    monkeypatch.setattr(gaussian, "is_host_readable", lambda _: seen)
    covariance = torch.diag(torch.tensor([2.0, 1.0, 1e-9], dtype=torch.float64))
    means = torch.eye(3, dtype=torch.float64)
    features = torch.tensor([[0.5, 0.2, 0.9]], dtype=torch.float64)
    expected = features @ torch.diag(torch.tensor([0.5, 1, 0], dtype=torch.float64)) - torch.tensor([[0.25, 0.5, 0]])
    scores = Gaussians.of(covariance, means, cutoff=number(1e-6)).scores(features)
    torch.testing.assert_close(scores - scores[:, :1], expected - expected[:, :1])
    uncut = Gaussians.of(covariance, means, cutoff=number(1e-12)).scores(features)
    for cutoff in (None, number(0.0)):
        torch.testing.assert_close(Gaussians.of(covariance, means, cutoff=cutoff).scores(features), uncut)


@settings(max_examples=repeated(40))
@given(
    logs=st.lists(st.floats(-14, 0).filter(lambda x: abs(x + 6) > 1e-3), min_size=1, max_size=12),
    double=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_eigenspace_above_a_cutoff_is_that_of_the_eigenvectors(logs, double, seed):
    values = 10.0 ** np.array([0.0, *logs] * (1 + double))
    basis = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))[0]
    kept = basis[:, values > 1e-6]
    projector = eigenspace_above(torch.from_numpy(7.0 * basis * values @ basis.T), number(1e-6))
    np.testing.assert_allclose(projector, kept @ kept.T, atol=1e-5)


def test_what_float32_cannot_resolve_is_computed_in_float64():
    covariance = torch.diag(torch.tensor([1.0, 1e-9], dtype=torch.float64))
    gaussians = Gaussians.of(covariance, torch.eye(2))
    assert gaussians.origin.dtype == torch.float64
    assert gaussians.scores(torch.eye(2)).dtype == torch.float32
    assert Gaussians.of(torch.eye(2, dtype=torch.float64), torch.eye(2)).origin.dtype == torch.float32


@pytest.mark.parametrize("readable", [True, False])
def test_an_estimate_is_kept_until_the_state_changes_where_that_can_be_known(monkeypatch, readable):
    adapter = learned()
    monkeypatch.setattr(adapt, "is_host_readable", lambda _: readable)
    first = adapter._gaussians()
    assert (adapter._gaussians() is first) == readable
    adapter.step(Samples.of(ROWS[2:]))
    assert adapter._gaussians() is not first
    changed = adapter._gaussians()
    adapter.reset(classes=[0])
    assert adapter._gaussians() is not changed


def arrivals(labels, entropies):
    return SimpleNamespace(entropy=torch.tensor(entropies, dtype=torch.float64), labels=torch.tensor(labels))


def entered(entropies, zero_shot):
    """The samples that enter, each with its class and slot, by their entries; `admissions` must foretell them."""
    slots, found = entropies.clone(), []
    for sample, entropy in enumerate(zero_shot.entropy):
        entry = BankEntry.of(slots, zero_shot, sample)
        entry.put(slots, entropy)
        if entry.enters:
            found.append((sample, int(entry.own), int(entry.slot)))
    before = entropies.clone()
    assert admissions(entropies, zero_shot.labels, zero_shot.entropy) == [sample for sample, _, _ in found]
    assert torch.equal(entropies, before)
    return found


def test_samples_enter_free_slots_then_take_that_of_the_largest_entropy():
    entropies = torch.full((2, 2), 9.0, dtype=torch.float64)
    zero_shot = arrivals([1, 1, 1, 1, 0], [0.5, 0.3, 0.4, 0.6, 0.2])
    assert entered(entropies, zero_shot) == [(0, 1, 0), (1, 1, 1), (2, 1, 0), (4, 0, 0)]


@pytest.mark.parametrize("noise", [0.0, 1e-14, -1e-14])
def test_equal_entropy_does_not_replace(noise):
    entropies = torch.tensor([[0.5]], dtype=torch.float64)
    assert entered(entropies, arrivals([0], [0.5 + noise])) == []


def test_what_an_empty_slot_holds_bounds_what_may_enter():
    entropies = torch.full((1, 2), math.log(3), dtype=torch.float64)
    assert entered(entropies, arrivals([0, 0], [math.log(3), 1.0])) == [(1, 0, 0)]


@settings(max_examples=repeated(40))
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 30), **SHAPES)
def test_the_entries_are_those_foretold(seed, count, classes, slots, dim):
    random = np.random.default_rng(seed)
    labels, new = random.integers(classes, size=count), random.integers(6, size=count) / 7  # many ties
    entered(torch.full((classes, slots), 0.8, dtype=torch.float64), arrivals(labels, new))


def test_an_entry_that_does_not_enter_writes_nothing():
    adapter = learned(slots=1)
    before = adapter.snapshot().tensors
    adapter._learn(torch.ones(1, 3), SimpleNamespace(probabilities=torch.ones(1, 2), **vars(arrivals([1], [0.6]))), 0)
    assert all(torch.equal(now, before[name]) for name, now in adapter.state().items())


def test_moments_are_computed_anew_only_if_items_are_missing():
    adapter = learned()
    rounded = adapter.moments + 1e-13
    rounded[-1, -1] = adapter.moments[-1, -1]
    adapter.moments.copy_(rounded)
    adapter.restore(adapter.snapshot())
    assert torch.equal(adapter.moments, rounded)
    adapter.reset(classes=[0])
    assert adapter.moments[-1, -1] == 1
    torch.testing.assert_close(adapter.moments, moments_of(adapter.items, adapter.means, adapter.filled))
