"""BCA: the worked example, and what moves its centres and its priors."""

import math

import numpy as np
import pytest
import torch
from streams import clip_like_stream, toy_stream

from pta import ZeroShotClassifier
from pta.methods.bca import BCA

PRINTED = {"atol": 1e-5, "rtol": 0}


def small_stream(seed=1, **shape):
    return clip_like_stream(seed, **{"classes": 12, "dim": 24, "count": 60} | shape)


@pytest.mark.parametrize("size", [3, 2, 1])
def test_worked_example(size):
    toy = toy_stream()
    adapter = BCA(toy.classifier)
    r = torch.cat([adapter.step(part) for part in toy.features.split(size)]).exp()
    expected = [[0.53060, 0.46749, 0.00191], [0.34157, 0.65394, 0.00449], [0.00045, 0.00015, 0.99940]]
    np.testing.assert_allclose(r, expected, **PRINTED)
    table = [[1, 0, 0], [0.17078, 0.82697, 0.00225], [0.00023, 0.00007, 0.99970]]
    np.testing.assert_allclose(adapter.priors, table, **PRINTED)


def test_a_class_that_was_never_chosen_keeps_its_anchor_and_its_prior():
    stream = small_stream(present=0.3, scale=100.0)
    adapter = BCA(stream.classifier)
    adapter.step(stream.features)
    unmoved = adapter.centre_counts == 20000
    assert 0 < unmoved.sum() < 12
    assert torch.equal(adapter.centres[unmoved], stream.anchors[unmoved])
    assert torch.equal(adapter.priors[unmoved], torch.eye(12, dtype=torch.float64)[unmoved])
    assert (adapter.centre_counts - 20000).sum() == 60


def test_a_sample_as_confident_as_a_threshold_changes_nothing():
    sample = torch.tensor([[0.5**0.5, 0.5**0.5]], dtype=torch.float64)
    even = ZeroShotClassifier(torch.eye(2, dtype=torch.float64), ["a", "b"], scale=10.0)  # the posterior is ½, ½
    for threshold, changed in ((0.5, 0), (0.4999, 1)):
        adapter = BCA(even, centre_threshold=threshold, prior_threshold=threshold)
        adapter.step(sample)
        assert (adapter.centre_counts - 20000).sum() == (adapter.prior_counts - 1).sum() == changed


@pytest.mark.parametrize(("v", "changed"), [(0.049, [0, 0]), (0.051, [1, 0]), (0.649, [1, 0]), (0.651, [1, 1])])
def test_how_confident_a_sample_must_be_by_default(v, changed):
    classifier = ZeroShotClassifier(torch.eye(40, 41, dtype=torch.float64), [f"class {c}" for c in range(40)])
    cosine = math.log(39 * v / (1 - v)) / 100  # to the first class, and none to the others
    sample = torch.zeros(1, 41, dtype=torch.float64)
    sample[0, 0], sample[0, -1] = cosine, math.sqrt(1 - cosine**2)
    adapter = BCA(classifier)
    assert adapter.step(sample).exp().max().item() == pytest.approx(v)
    assert [int(adapter.centre_counts.sum()) - 40 * 20000, int(adapter.prior_counts.sum()) - 40] == changed


@pytest.mark.parametrize(
    ("piece", "threshold"), [("centres", "centre_threshold"), ("priors", "prior_threshold")], ids=["centres", "priors"]
)
def test_each_threshold_guards_its_own_piece(piece, threshold):
    stream = small_stream()
    adapter, new = BCA(stream.classifier, **{threshold: 1.0}), BCA(stream.classifier)
    adapter.step(stream.features)
    same = {name: torch.equal(tensor, new.state()[name]) for name, tensor in adapter.state().items()}
    assert [name for name in ("centres", "priors") if same[name]] == [piece]
