"""TDA: the worked example, the laws of its caches, every switch, and the loop of the released program."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import clip_like_stream, streams, toy_stream

from pta import Samples, ZeroShotClassifier
from pta.adapters.tda import TDA
from pta.engines.admission import EMPTY
from pta.reference.tda import tda_loop

PRINTED = {"atol": 1e-5, "rtol": 0}
WORKED = [[9.60773, 7.48109, 2.09651], [8.93692, 9.63502, 2.88750], [1.98874, 1.14469, 11.80767]]
TOLERANCES = {torch.float64: 1e-9, torch.float32: 2e-3}


def uncertain_stream(seed, **given):
    """A stream with something in both caches."""
    return clip_like_stream(seed, **{"classes": 10, "dim": 16, "count": 150, "scale": 70.0} | given)


# -- the worked example and the loop ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("size", [3, 2, 1], ids=["whole", "in two", "one by one"])
def test_worked_example(size, dtype):
    toy = toy_stream().to(dtype)
    adapter = TDA(toy.classifier)
    outputs = torch.cat([adapter.step(batch) for batch in toy.features.split(size)])
    np.testing.assert_allclose(outputs, WORKED, **PRINTED)
    np.testing.assert_allclose(adapter.positive_scores[:, 0], [0.70368, 0.66892, 0.00541], **PRINTED)
    assert (adapter.negative_scores < EMPTY).tolist() == [[True, False], [True, False], [False, False]]
    assert adapter.negative_classes[:, 0].tolist() == [[0, 1, 3], [0, 1, 3], [3, 3, 3]]  # 3 is none


def test_a_longer_batch_than_is_done_at_once_is_still_one_stream():
    stream = uncertain_stream(1, count=1300, classes=30)
    assert TDA(stream.classifier).at_once < 1300
    outputs = TDA(stream.classifier).step(stream.features)
    expected = tda_loop(stream.anchors.numpy(), stream.features.numpy(), scale=stream.scale)
    np.testing.assert_allclose(outputs, expected, rtol=0, atol=1e-9)


# -- the laws of the caches -------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(streams(), st.integers(1, 4))
def test_the_positive_cache_is_the_most_confident_of_each_class_in_order(stream, slots):
    adapter = TDA(stream.classifier, positive_slots=slots)
    adapter.step(stream.features)
    p = (stream.scale * stream.features @ stream.anchors.T).softmax(dim=1)
    entropy, labels = torch.special.entr(p).sum(dim=1), p.argmax(dim=1)
    for label in range(len(stream.anchors)):
        expected = entropy[labels == label].sort().values[:slots]
        kept = adapter.positive_scores[label]
        torch.testing.assert_close(kept[kept < EMPTY], expected, atol=1e-12, rtol=1e-9)


def test_a_sample_raises_its_own_class_with_the_full_weight():
    toy = toy_stream()
    outputs = TDA(toy.classifier, positive_alpha=3.0, negative_slots=0).step(toy.features[:1])
    np.testing.assert_allclose(outputs - toy.classifier.logits(toy.features[:1]), [[3.0, 0.0, 0.0]], atol=1e-12)


def test_a_mean_of_views_has_less_affinity_to_itself_than_one():
    toy = toy_stream()
    short = Samples.of(0.9 * toy.features[:1], normalise=False)
    gain = TDA(toy.classifier, negative_slots=0).step(short) - toy.classifier.logits(short.features)
    assert gain[0, 0].item() == pytest.approx(2 * math.exp(-5 * (1 - 0.81)))


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


# -- every switch -----------------------------------------------------------------------------------------------------


def test_scoring_before_learning_leaves_the_first_sample_as_it_was():
    stream = uncertain_stream(4)
    first = TDA(stream.classifier, order="predict-first").step(stream.features[:1])
    torch.testing.assert_close(first, stream.classifier.logits(stream.features[:1]))


def test_the_natural_logarithm_makes_shares_of_entropy_larger():
    stream = uncertain_stream(5)
    bits, nats = (TDA(stream.classifier, negative_slots=200, entropy_base=base) for base in ("log2", "ln"))
    p = (stream.scale * stream.features @ stream.anchors.T).softmax(dim=1)
    entropy = torch.special.entr(p).sum(dim=1)
    for adapter, logarithm in ((bits, math.log2(10)), (nats, math.log(10))):
        adapter.step(stream.features)
        share = entropy / logarithm
        assert (adapter.negative_scores < EMPTY).sum() == ((share > 0.2) & (share < 0.5)).sum()


def test_entropy_in_nats_over_bits_never_passes_the_logarithm_of_two():
    stream = uncertain_stream(6, scale=1.0)
    adapter = TDA(stream.classifier, min_entropy=math.log(2), max_entropy=1.0)
    adapter.step(stream.features)
    assert (adapter.negative_scores == EMPTY).all()


def test_without_slots_it_is_the_classifier():
    stream = uncertain_stream(8)
    outputs = TDA(stream.classifier, positive_slots=0, negative_slots=0).step(stream.features)
    torch.testing.assert_close(outputs, stream.classifier.logits(stream.features))


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
