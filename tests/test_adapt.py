"""ADAPT: the worked example, what a sample that enters changes, and what a forgotten class leaves."""

import numpy as np
import torch
from streams import clip_like_stream, toy_stream

from pta.methods.adapt import ADAPT
from pta.reference.adapt import adapt_loop


def test_worked_example():
    toy = toy_stream()
    outputs = ADAPT(toy.classifier, slots=2, temperature=20.0).step(toy.features)
    expected = [[7.72473, 5.75863, 1.54584], [6.05392, 7.86845, 0.0], [0.0, 0.0, 9.80767]]
    np.testing.assert_allclose(outputs, expected, atol=1e-5, rtol=0)


def test_the_mean_counts_an_entering_sample_twice_or_once():
    toy = toy_stream()
    sure = toy.features[1:2]  # p = 0.653990 of class 1
    items = torch.cat([toy.features[1:2], torch.nn.functional.normalize(toy.features[1:2] + 0.1 * toy.anchors[1:2])])
    for count_current, weight in (("twice", 2), ("once", 1)):
        adapter = ADAPT(toy.classifier, count_current=count_current)
        adapter.step(sure)
        torch.testing.assert_close(adapter.means[1], 0.9 * items[0] + 0.1 * toy.anchors[1])
        adapter.step(items[1:])
        first, second = (10 * items @ toy.anchors.T).softmax(dim=1)[:, 1]
        mean = (first * items[0] + weight * second * items[1]) / (first + weight * second)
        torch.testing.assert_close(adapter.means[1], 0.9 * mean + 0.1 * toy.anchors[1])


def test_a_sample_that_does_not_enter_is_compared_in_the_place_of_the_last_that_did():
    toy = toy_stream()
    more_confident, same_class = toy.features[1:2], toy.features[1:2] + 0.02 * toy.features[:1]
    stale, fresh = (ADAPT(toy.classifier, slots=1, similarity=kind) for kind in ("stale", "fresh"))
    for adapter in (stale, fresh):
        adapter.step(more_confident)
    differs = (stale.step(same_class) - fresh.step(same_class)).abs().max()
    torch.testing.assert_close(stale.last, more_confident[0])
    assert 1e-6 < differs < 0.1


def test_samples_that_do_not_enter_change_no_state():
    stream = clip_like_stream(2, classes=4, dim=16, count=60)
    adapter = ADAPT(stream.classifier, slots=1)
    adapter.step(stream.features)
    before = adapter.snapshot().tensors
    adapter.step(stream.features)  # nobody is more confident than the most confident
    for name, tensor in adapter.state().items():
        assert name == "seen" or torch.equal(tensor, before[name]), name


def test_the_same_sample_again_and_again_is_no_spread_and_no_nan():
    toy = toy_stream()
    features = toy.features[:1].repeat(20, 1)
    outputs = ADAPT(toy.classifier, slots=4).step(features)
    expected = adapt_loop(toy.anchors.numpy(), features.numpy(), scale=10.0, slots=4)
    np.testing.assert_allclose(outputs, expected, atol=1e-8)


def test_forgetting_a_class_leaves_the_covariance_of_the_others():
    stream = clip_like_stream(7, classes=6, dim=16, count=60)
    adapter = ADAPT(stream.classifier)
    adapter.step(stream.features)
    z = stream.classifier.logits(stream.features)
    adapter.reset(classes=[0, 3])
    others = ADAPT(stream.classifier)
    others.step(stream.features[~torch.isin(z.argmax(dim=1), torch.tensor([0, 3]))])
    torch.testing.assert_close(adapter.moments, others.moments)
    assert not adapter.last.any()  # it may have been of a class that is forgotten
    others.last = adapter.last
    torch.testing.assert_close(adapter.predict(stream.features), others.predict(stream.features))
