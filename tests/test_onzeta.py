"""OnZeta: the loop it must equal, what its two learners do, and the length it must know."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import clip_like_stream, streams, toy_stream

from pta import Samples, create_adapter
from pta.adapters.onzeta import OnZeta
from pta.errors import InvalidParameter

ORDERS = ["predict-first", "update-first"]


def small_stream(seed=1, **shape):
    return clip_like_stream(seed, **{"classes": 12, "dim": 24, "count": 60} | shape)


def test_the_first_answer_by_hand():
    toy = toy_stream()
    logits = OnZeta(toy.classifier, length=4).step(toy.features[:1])[0]
    p = torch.tensor([0.530602, 0.467490, 0.001908], dtype=torch.float64)  # the zero-shot probabilities
    v = (toy.features[0] @ toy.anchors.T / 0.04).softmax(dim=0)
    torch.testing.assert_close(logits.exp(), 0.4 * v + 0.6 * p, atol=1e-5, rtol=0)


def test_the_first_steps_by_hand():
    toy = toy_stream()
    adapter = OnZeta(toy.classifier, length=4)
    adapter.step(toy.features[:1])
    p = toy.classifier.logits(toy.features)[0].softmax(dim=0)
    v = (toy.features[0] @ toy.anchors.T / 0.04).softmax(dim=0)
    torch.testing.assert_close(adapter.rho, torch.tensor([0.0, 0.0, 20 * (1 / 3 - p[2].item())], dtype=torch.float64))
    w = toy.anchors - 12.5 * torch.outer(v - p, toy.features[0])
    torch.testing.assert_close(adapter.proxies, w / w.norm(dim=1, keepdim=True))


@settings(max_examples=15)
@given(streams(max_count=40), st.sampled_from([{}, {"length": 1, "alpha": 0.5, "order": "update-first"}]))
def test_answers_are_distributions_duals_are_not_negative_and_proxies_are_unit(stream, parameters):
    adapter = OnZeta(stream.classifier, **{"length": 40} | parameters)
    logits = adapter.step(stream.features)
    torch.testing.assert_close(logits.logsumexp(dim=1), torch.zeros(len(logits), dtype=torch.float64))
    assert (adapter.rho >= 0).all()
    torch.testing.assert_close(adapter.proxies.norm(dim=1), torch.ones(len(stream.anchors), dtype=torch.float64))
    assert adapter.seen == len(stream.features)


def test_a_class_that_does_not_come_is_lifted():
    stream = small_stream(present=0.5)
    adapter = OnZeta(stream.classifier, length=60)
    adapter.step(stream.features)
    missing = torch.ones(12, dtype=torch.bool)
    missing[stream.labels.unique()] = False
    assert adapter.rho[missing].min() > adapter.rho[~missing].max()


def test_without_an_expected_share_no_class_is_lifted():
    stream = small_stream()
    adapter = OnZeta(stream.classifier, length=60, alpha=0.0, beta=0.0)
    expected = stream.classifier.logits(stream.features).log_softmax(dim=1)
    torch.testing.assert_close(adapter.step(stream.features), expected)
    assert not adapter.rho.any()


def test_without_steps_it_mixes_text_labels_at_two_temperatures():
    stream = small_stream(count=4, scale=10.0)
    logits = OnZeta(stream.classifier, length=4, proxy_step=0.0, dual_step=0.0, beta=1.0).step(stream.features)
    cosines = stream.features @ stream.anchors.T
    b = torch.tensor([0.25, 0.5, 0.75, 1.0], dtype=torch.float64)[:, None].sqrt()
    expected = b * (cosines / 0.04).softmax(dim=1) + (1 - b) * (cosines * 10).softmax(dim=1)
    torch.testing.assert_close(logits.exp(), expected)


def test_after_the_announced_end_vision_labels_keep_their_full_weight():
    stream = small_stream(count=10)
    logits = OnZeta(stream.classifier, length=2, proxy_step=0.0, beta=1.0).step(stream.features)
    vision = (stream.features @ stream.anchors.T / 0.04).log_softmax(dim=1)
    torch.testing.assert_close(logits[1:], vision[1:])
    assert (logits[0] - vision[0]).abs().max() > 0.1


def test_predict_gives_what_step_would_give_before_and_gave_after():
    stream = small_stream()
    for order in ORDERS:
        adapter = OnZeta(stream.classifier, length=60, order=order)
        adapter.step(stream.features[:30])
        before = adapter.predict(stream.features[30:31])
        answer = adapter.step(stream.features[30:31])
        after = adapter.predict(stream.features[30:31])
        torch.testing.assert_close(answer, before if order == "predict-first" else after)
        assert (before - after).abs().max() > 1e-3


def test_without_a_length_it_is_refused_with_how_to_give_one():
    with pytest.raises(InvalidParameter, match=r"length of the stream; give length=…, or .*source"):
        OnZeta(toy_stream().classifier)


def test_the_length_is_that_of_the_source_unless_given():
    toy = toy_stream()
    source = Samples.of(toy.features)
    assert create_adapter("onzeta", toy.classifier, source=source).parameters["length"] == 3
    assert create_adapter("onzeta", toy.classifier, source=source, length=7).parameters["length"] == 7
