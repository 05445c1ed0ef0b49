"""TDA: the worked example, and what its caches take and keep."""

import math

import numpy as np
import pytest
import torch
from streams import clip_like_stream, toy_stream

from pta import ZeroShotClassifier
from pta.engines.caches.admission import EMPTY
from pta.methods.tda import TDA

PRINTED = {"atol": 1e-5, "rtol": 0}


def uncertain_stream(seed, **given):
    """A stream with something in both caches."""
    return clip_like_stream(seed, **{"classes": 10, "dim": 16, "count": 150, "scale": 70.0} | given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("size", [3, 2, 1], ids=["whole", "in two", "one by one"])
def test_worked_example(size, dtype):
    toy = toy_stream().to(dtype)
    adapter = TDA(toy.classifier)
    outputs = torch.cat([adapter.step(batch) for batch in toy.features.split(size)])
    expected = [[9.60773, 7.48109, 2.09651], [8.93692, 9.63502, 2.88750], [1.98874, 1.14469, 11.80767]]
    np.testing.assert_allclose(outputs, expected, **PRINTED)
    np.testing.assert_allclose(adapter.positive_scores[:, 0], [0.70368, 0.66892, 0.00541], **PRINTED)
    assert (adapter.negative_scores < EMPTY).tolist() == [[True, False], [True, False], [False, False]]
    assert adapter.negative_classes[:, 0].tolist() == [[0, 1, 3], [0, 1, 3], [3, 3, 3]]  # 3 is none


def test_equal_entropy_does_not_replace():
    anchors = torch.eye(3, 4, dtype=torch.float64)
    classifier = ZeroShotClassifier(anchors, ["a", "b", "c"], scale=10.0)
    one, mirrored = [0.6, 0.48, 0.0, 0.64], [0.6, 0.48, 0.0, -0.64]  # no anchor sees the last dimension
    adapter = TDA(classifier, positive_slots=1)
    adapter.step(torch.tensor([one, mirrored], dtype=torch.float64))
    np.testing.assert_allclose(adapter.positive_keys[0, 0], one)


def test_state_is_as_large_as_promised():
    stream = uncertain_stream(3, classes=10, dim=16).to(torch.float32)
    assert TDA(stream.classifier).state_bytes == 5 * 10 * 16 * 4 + 5 * 10 * 8 + 2 * 10 * 10 * 4


@pytest.mark.parametrize(
    ("min_probability", "classes", "most"), [(0.03, 200, 33), (0.03, 10, 10), (0.3, 10, 3), (1.0, 10, 1), (0.0, 10, 10)]
)
def test_as_many_classes_are_kept_as_can_be_that_probable(min_probability, classes, most):
    stream = uncertain_stream(3, classes=classes)
    assert TDA(stream.classifier, min_probability=min_probability).negative_classes.shape == (classes, 2, most)


def test_entropy_in_nats_over_bits_never_passes_the_logarithm_of_two():
    stream = uncertain_stream(6, scale=1.0)
    adapter = TDA(stream.classifier, min_entropy=math.log(2), max_entropy=1.0)
    adapter.step(stream.features)
    assert (adapter.negative_scores == EMPTY).all()


def test_bounds_are_strict_on_both_sides():
    anchors = torch.eye(2, dtype=torch.float64)
    sample = torch.tensor([[math.sqrt(0.5), math.sqrt(0.5)]], dtype=torch.float64)
    even = ZeroShotClassifier(anchors, ["a", "b"], scale=10.0)  # p = ½, ½: entropy ln 2, which is 1 of ln 2
    for given_, kept in (
        ({"max_entropy": 1.0}, 0),
        ({"min_entropy": 0.0, "entropy_base": "log2"}, 1),
        ({"min_entropy": math.log(2), "entropy_base": "log2"}, 0),
    ):
        adapter = TDA(even, **{"entropy_base": "ln", "max_entropy": 1.0} | given_)
        adapter.step(sample)
        assert (adapter.negative_scores < EMPTY).sum() == kept
    for given_, masked in (({"min_probability": 0.5}, 0), ({"max_probability": 0.5}, 0), ({}, 2)):
        adapter = TDA(even, max_entropy=1.0, **given_)
        adapter.step(sample)
        assert (adapter.negative_classes < 2).sum() == masked
