"""BoostAdapter: what its views do to TDA's cache, and how many it needs."""

import math

import numpy as np
import pytest
import torch
from streams import clip_like_stream, with_views
from torch.nn.functional import normalize

from pta import Samples, ZeroShotClassifier
from pta.errors import InvalidSamples
from pta.methods.boostadapter import BoostAdapter
from pta.methods.registry import load_preset
from pta.methods.tda import TDA
from pta.reference.boostadapter import boostadapter_loop

SETS = ["imagenet", "imagenet_a", "dtd"]


def viewed_stream(seed, *, views=20, **given):
    """A stream and its samples, with views on either side of their classes."""
    stream = clip_like_stream(seed, **{"classes": 8, "dim": 16, "count": 60, "scale": 70.0} | given)
    return stream, with_views(stream, views, noise=0.1, seed=seed)


def loop_of(stream, samples, **parameters):
    arrays = (tensor.double().numpy() for tensor in (stream.anchors, samples.features, samples.views))
    return boostadapter_loop(*arrays, scale=stream.scale, **parameters)


def step_of(stream, samples, **parameters):
    return BoostAdapter(stream.classifier, **parameters).step(samples).numpy()


def test_a_longer_batch_than_is_done_at_once_is_still_one_stream():
    stream, samples = viewed_stream(2, count=150)
    adapter = BoostAdapter(stream.classifier)
    adapter.max_batch = 64
    np.testing.assert_allclose(adapter.step(samples), loop_of(stream, samples), rtol=0, atol=1e-9)


def test_too_few_views_to_choose_from_are_refused():
    stream, samples = viewed_stream(3, views=9)
    with pytest.raises(InvalidSamples, match="of 9 views none is chosen"):
        step_of(stream, samples)


def test_with_one_view_it_is_tda_with_the_newest_negatives():
    stream, samples = viewed_stream(3, views=1)
    plain = TDA(stream.classifier).step(samples).numpy()
    assert np.abs(step_of(stream, samples, delta=3) - plain).max() > 0.01
    np.testing.assert_allclose(step_of(stream, samples, delta=3, negatives="most-confident"), plain, rtol=0, atol=1e-12)


def test_six_of_sixty_four_views_boost_by_default():
    stream, samples = viewed_stream(4, views=64, count=20)
    copies = Samples(samples.features[:1], views=samples.features[:1, None].expand(-1, 64, -1))
    gain = step_of(stream, copies, delta=100, negative_slots=0) - stream.classifier.logits(copies.features).numpy()
    assert gain.max() == pytest.approx(2.0 * (1 + 6))


def test_without_more_slots_views_push_out_what_is_less_confident():
    anchors = torch.eye(2, dtype=torch.float64)
    classifier = ZeroShotClassifier(anchors, ["a", "b"], scale=10.0)
    image, sure = normalize(torch.tensor([[0.8, 0.6], [1.0, 0.1]], dtype=torch.float64))
    sample = Samples(image[None], views=torch.stack([image, sure])[None])
    near = math.exp(-5 * (1 - float(image @ sure)))
    for delta, expected in ((0, 2 * near), (1, 2 * (1 + near)), (2, 2 * (1 + near))):
        adapter = BoostAdapter(classifier, delta=delta, share=0.5, positive_slots=1, negative_slots=0)
        gain = adapter.step(sample) - classifier.logits(sample.features)
        np.testing.assert_allclose(gain, [[expected, 0.0]], atol=1e-12)
        np.testing.assert_allclose(adapter.positive_keys[0, 0], image)


def test_without_a_share_of_the_views_none_are_needed():
    stream, samples = viewed_stream(11)
    plain = BoostAdapter(stream.classifier, share=0.0)
    outputs = plain.step(samples.features)
    np.testing.assert_allclose(outputs, loop_of(stream, samples, share=0.0), rtol=0, atol=1e-9)
    torch.testing.assert_close(plain.predict(samples.features), plain.predict(samples))


def test_the_preset_for_imagenet_needs_no_views_and_the_others_do():
    needs = {name: BoostAdapter.needs_with(load_preset("boostadapter", "paper", name)) for name in SETS}
    assert needs == {"imagenet": {"features"}, "imagenet_a": {"features", "views"}, "dtd": {"features", "views"}}
