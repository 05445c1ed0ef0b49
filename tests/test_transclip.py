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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sample_alone_gets_its_zero_shot_probabilities(dtype):
    stream = varied_stream(dtype=dtype)
    alone = stream.features[:1]
    expected = stream.classifier.logits(alone).log_softmax(dim=1)
    torch.testing.assert_close(TransCLIP(stream.classifier).step(alone), expected, atol=1e-4, rtol=0)


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
