"""OGA: what enters its memory, and what follows from it."""

import numpy as np
import torch
from streams import clip_like_stream, toy_stream
from torch.nn.functional import normalize

from pta import ZeroShotClassifier
from pta.methods.combined import Combined
from pta.methods.oga import OGA
from pta.reference.oga import oga_loop


def test_a_mean_needs_two_items_and_is_divided_by_the_capacity():
    toy = toy_stream()
    one, two = toy.features[1], normalize(toy.features[1] + 0.1 * toy.anchors[1], dim=0)
    adapter, exact, unit = OGA(toy.classifier), OGA(toy.classifier, mean="count"), OGA(toy.classifier, renormalise=True)
    for method in (adapter, exact, unit):
        method.step(one[None])
        torch.testing.assert_close(method.means, toy.anchors)
        method.step(two[None])
    torch.testing.assert_close(adapter.means[1], (one + two) / 8)
    torch.testing.assert_close(exact.means[1], (one + two) / 2)
    torch.testing.assert_close(unit.means[1], normalize(one + two, dim=0))


def test_the_ridge_falls_away_beyond_four_items_a_dimension():
    stream = clip_like_stream(3, classes=6, dim=8, count=100)
    adapter = OGA(stream.classifier)
    adapter.step(stream.features)
    assert adapter.moments[-1, -1] > 4 * 8
    residuals = (adapter.items - adapter.means[:, None])[adapter.filled]
    precision = torch.linalg.inv(residuals.T.cov())
    off = stream.features[:, None] - adapter.means
    likelihoods = -0.5 * torch.einsum("bcd,de,bce->bc", off, precision, off)
    expected = stream.classifier.logits(stream.features).log_softmax(dim=1) + (0.05 * likelihoods).log_softmax(dim=1)
    torch.testing.assert_close(adapter.predict(stream.features), expected)


def test_directions_that_float32_cannot_tell_from_none_do_not_count():
    stream = clip_like_stream(4, classes=6, dim=8, count=100)
    noise = 1e-5 * torch.randn(100, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    twin = torch.cat([stream.features, stream.features[:, :1] + noise], dim=1)  # two coordinates all but equal
    anchors = torch.cat([stream.anchors, stream.anchors[:, :1] + 0.01], dim=1)
    classifier = ZeroShotClassifier(anchors, stream.classifier.class_names, 30.0)
    features = normalize(twin)
    outputs = OGA(classifier).step(features)
    expected = oga_loop(classifier.anchors.numpy(), features.numpy(), scale=30.0)
    np.testing.assert_allclose(outputs, expected, atol=1e-7, rtol=0)
    assert outputs.abs().max() < 1e3


def test_a_sample_without_any_certainty_never_enters():
    anchors = torch.eye(3, dtype=torch.float64)
    adapter = OGA(ZeroShotClassifier(anchors, ["a", "b", "c"]))
    outputs = adapter.step(torch.full((4, 3), 3**-0.5, dtype=torch.float64))
    assert not adapter.filled.any()
    assert outputs.isfinite().all()


def test_the_same_sample_again_and_again_has_no_spread():
    stream = clip_like_stream(5, classes=4, dim=16, count=1)
    assert OGA(stream.classifier, mean="count").step(stream.features.repeat(20, 1)).isfinite().all()


def test_forgetting_a_class_leaves_the_covariance_of_the_others():
    stream = clip_like_stream(8, classes=6, dim=16, count=60)
    adapter, others = OGA(stream.classifier), OGA(stream.classifier)
    adapter.step(stream.features)
    adapter.reset(classes=[0, 3])
    labels = stream.classifier.logits(stream.features).argmax(dim=1)
    others.step(stream.features[~torch.isin(labels, torch.tensor([0, 3]))])
    torch.testing.assert_close(adapter.moments, others.moments)
    torch.testing.assert_close(adapter.predict(stream.features), others.predict(stream.features))


def test_the_covariance_follows_when_a_method_on_top_forgets_a_class():
    stream = clip_like_stream(8, classes=6, dim=16, count=60)
    alone, below = OGA(stream.classifier), Combined(stream.classifier, base="oga")
    for adapter in (alone, below):
        adapter.step(stream.features)
        adapter.reset(classes=[0, 3])
    torch.testing.assert_close(below.other.moments, alone.moments)
