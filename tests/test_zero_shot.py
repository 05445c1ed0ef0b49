"""Zero-shot quantities that methods decide by: right, and the same in any batch."""

import numpy as np
import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import clip_like_stream, cuts, streams

from pta import Samples, ZeroShotClassifier
from pta.engines.zero_shot import ZeroShot, entropy_of
from pta.methods.boostadapter import BoostAdapter
from pta.methods.mta import MTA
from pta.methods.tda import TDA
from pta.methods.zero import ZERO

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def with_most_confident(stream, views=6):
    most_confident = stream.features.unflatten(0, (-1, views))
    return Samples(most_confident.mean(dim=1), most_confident=most_confident)


@DTYPES
@pytest.mark.parametrize("are_means", [False, True])
def test_quantities_are_those_of_plain_arithmetic(dtype, are_means):
    """Of most confident views the distributions are averaged, and the label is that of the mean feature."""
    stream = clip_like_stream(1, classes=9, dim=16, count=60).to(dtype)
    samples = with_most_confident(stream) if are_means else Samples(stream.features)
    found = ZeroShot(stream.classifier, samples)
    anchors = stream.anchors.double().numpy().T
    z = stream.scale * samples.features.double().numpy() @ anchors
    p = (
        softmax(stream.scale * samples.most_confident.double().numpy() @ anchors).mean(axis=1)
        if are_means
        else softmax(z)
    )
    np.testing.assert_allclose(found.logits, z, rtol=1e-12 if dtype == torch.float64 else 1e-5)
    np.testing.assert_allclose(found.exact_logits, z, rtol=1e-12)
    np.testing.assert_allclose(found.exact_logits_of(np.array([7, 2])), z[[7, 2]], rtol=1e-12)
    np.testing.assert_allclose(found.probabilities, p, rtol=1e-10)
    np.testing.assert_allclose(found.entropy, -(p * np.log(p)).sum(axis=1), rtol=1e-10)
    np.testing.assert_array_equal(found.labels, z.argmax(axis=1))
    assert found.logits.dtype == dtype
    assert found.exact_logits.dtype == found.probabilities.dtype == found.entropy.dtype == torch.float64


@DTYPES
@settings(max_examples=repeated(30))
@given(st.data(), streams(max_count=40), st.booleans())
def test_a_batch_does_not_show_in_what_methods_decide_by(dtype, data, stream, are_means):
    stream = stream.to(dtype)
    count = len(stream.features)
    samples = with_most_confident(stream, 2 - count % 2) if are_means else Samples(stream.features)
    whole = ZeroShot(stream.classifier, samples)
    for batch in data.draw(cuts(len(samples))):
        part = ZeroShot(stream.classifier, samples[batch])
        torch.testing.assert_close(part.entropy, whole.entropy[batch], atol=1e-12, rtol=0)
        torch.testing.assert_close(part.probabilities, whole.probabilities[batch], atol=1e-12, rtol=0)


def test_a_bias_is_in_the_logits_and_in_nothing_else():
    stream = clip_like_stream(5, classes=5, dim=8, count=10)
    biased = ZeroShotClassifier(stream.anchors, list("abcde"), stream.scale, bias=-10.0)
    plain, found = (ZeroShot(one, Samples(stream.features)) for one in (stream.classifier, biased))
    torch.testing.assert_close(found.logits, plain.logits - 10.0)
    torch.testing.assert_close(found.exact_logits, plain.exact_logits - 10.0)
    torch.testing.assert_close(found.probabilities, plain.probabilities)
    torch.testing.assert_close(found.entropy, plain.entropy)
    assert torch.equal(found.labels, plain.labels)


def test_logits_of_views_are_those_of_the_views_as_samples():
    stream = clip_like_stream(6, classes=5, dim=8, count=12).to(torch.float32)
    views = stream.features.unflatten(0, (4, 3))
    found = ZeroShot(stream.classifier, Samples(views[:, 0], views=views)).view_logits
    assert found.dtype == torch.float64
    torch.testing.assert_close(found.flatten(0, 1), ZeroShot(stream.classifier, Samples(stream.features)).exact_logits)


@pytest.mark.parametrize(("method", "views"), [(TDA, 1), (BoostAdapter, 64), (MTA, 64), (ZERO, 64)])
def test_more_classes_leave_fewer_samples_at_once(method, views):
    few, many = (clip_like_stream(7, classes=classes, dim=4, count=1).classifier for classes in (10, 21_841))
    assert method(few).max_batch == 1024
    assert 1 <= method(many).max_batch <= 2**22 / (views * 21_841)


def test_the_views_of_a_sample_are_counted_by_their_length_if_it_is_more_than_the_classes():
    assert MTA(clip_like_stream(7, classes=10, dim=512, count=1).classifier).max_batch == 128


def test_entropy_is_in_nats_and_certainty_has_none():
    p = torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]], dtype=torch.float64)
    np.testing.assert_allclose(entropy_of(p), [np.log(4), 0.0, np.log(2)], rtol=1e-15)
