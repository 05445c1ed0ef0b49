"""TransCLIP against the same thing as a plain loop, and what it means."""

import numpy as np
import pytest
import torch
from streams import clip_like_stream

from pta import ZeroShotClassifier
from pta.adapters.transclip import TransCLIP
from pta.reference.transclip import transclip_loop


def loop_of(stream, **parameters):
    return transclip_loop(stream.anchors.numpy(), stream.features.numpy(), scale=stream.scale, **parameters)


def varied_stream(seed=1, count=80, dtype=torch.float64):
    return clip_like_stream(seed, classes=10, dim=24, count=count, scale=40.0).to(dtype)


@pytest.mark.parametrize("count", range(1, 10))
def test_sets_smaller_than_the_neighbourhood_or_the_seeds_are_answered(count):
    stream = varied_stream(count=count)
    found = TransCLIP(stream.classifier).step(stream.features)
    np.testing.assert_allclose(found, loop_of(stream), atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sample_alone_gets_its_zero_shot_probabilities(dtype):
    stream = varied_stream(dtype=dtype)
    alone = stream.features[:1]
    expected = stream.classifier.logits(alone).log_softmax(dim=1)
    torch.testing.assert_close(TransCLIP(stream.classifier).step(alone), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [2, 3, 20])
def test_copies_of_one_sample_are_finite_and_agree_on_its_class(dtype, count):
    stream = varied_stream(dtype=dtype)
    logits = TransCLIP(stream.classifier).step(stream.features[:1].expand(count, -1))
    assert logits.isfinite().all()
    assert logits.argmax(dim=1).tolist() == [int(stream.classifier.logits(stream.features[:1]).argmax())] * count


def test_labels_are_probabilities():
    z = TransCLIP(varied_stream().classifier).step(varied_stream().features).exp()
    torch.testing.assert_close(z.sum(dim=1), torch.ones(80, dtype=torch.float64))


def test_the_order_of_samples_does_not_matter():
    stream, order = varied_stream(), torch.randperm(80, generator=torch.manual_seed(0))
    adapter = TransCLIP(stream.classifier)
    shuffled = adapter.step(stream.features[order])
    torch.testing.assert_close(shuffled, adapter.step(stream.features)[order], atol=1e-8, rtol=0)


def test_the_order_of_classes_does_not_matter():
    stream, order = varied_stream(), torch.randperm(10, generator=torch.manual_seed(0))
    other = ZeroShotClassifier(stream.anchors[order], [str(c) for c in order], stream.scale)
    found = TransCLIP(other).step(stream.features)
    torch.testing.assert_close(found, TransCLIP(stream.classifier).step(stream.features)[:, order], atol=1e-8, rtol=0)


def test_nothing_is_kept():
    stream = varied_stream()
    adapter = TransCLIP(stream.classifier)
    first = adapter.step(stream.features)
    assert set(adapter.state()) == {"seen"}
    assert torch.equal(adapter.step(stream.features), first)
    assert torch.equal(adapter.predict(stream.features), first)


def test_neighbours_decide_where_the_text_cannot():
    right, left = [0.0, 1.0, 0.3], [0.0, 1.0, -0.3]
    near = [[0.03, 1.0, 0.3], [0.0, 1.02, 0.3], [-0.03, 1.0, -0.3], [0.0, 1.02, -0.3]]
    features = torch.tensor([right, left, *near], dtype=torch.float64)
    classifier = ZeroShotClassifier([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]], ["right", "left"])
    assert TransCLIP(classifier).step(features).argmax(dim=1).tolist() == [0, 1, 0, 0, 1, 1]


def test_a_class_that_nothing_speaks_for_stays_finite():
    stream = clip_like_stream(3, classes=4, dim=16, count=30)
    anchors = torch.cat([stream.anchors, -stream.anchors[:1]])  # 150 and more below the others
    classifier = ZeroShotClassifier(anchors, list("abcde"))
    for features in (stream.features, stream.features.float()):
        logits = TransCLIP(classifier.to(dtype=features.dtype)).step(features)
        assert logits.isfinite().all()
        expected = transclip_loop(anchors.numpy(), stream.features.numpy())
        np.testing.assert_allclose(logits, expected, atol=1e-6 if features.dtype == torch.float64 else 1e-2)
    assert not (logits.argmax(dim=1) == 4).any()
