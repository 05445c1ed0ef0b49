"""StatA against the same thing as a plain loop, and what it means."""

import numpy as np
import pytest
import torch
from streams import clip_like_stream, toy_stream

from pta.methods import stata
from pta.methods.stata import StatA
from pta.reference.stata import stata_loop


def loop_of(stream, **parameters):
    return stata_loop(stream.anchors.numpy(), stream.features.numpy(), scale=stream.scale, **parameters)


def varied_stream():
    return clip_like_stream(1, classes=10, dim=24, count=80, scale=40.0)


# -- the initial covariance -------------------------------------------------------------------------------------------


def test_batches_of_up_to_2500_samples_do_not_show_the_chunks():
    stream = clip_like_stream(2, classes=3, dim=4, count=2500, scale=20.0)
    released, corrected = (StatA(stream.classifier, iterations=1, chunked_covariance=on) for on in (True, False))
    torch.testing.assert_close(released.step(stream.features), corrected.step(stream.features))


def test_larger_batches_divide_the_covariance_of_early_chunks_again():
    stream = clip_like_stream(2, classes=3, dim=4, count=3000, scale=20.0)
    log_prior = stream.classifier.logits(stream.features).log_softmax(dim=1)
    squares = (stream.features[:, None] - stream.anchors).square()
    first, second = (
        torch.einsum("nc,ncd->d", log_prior[part].exp(), squares[part]) for part in (slice(2500), slice(2500, None))
    )
    released = StatA(stream.classifier)._anchor_variance(stream.features, log_prior)
    corrected = StatA(stream.classifier, chunked_covariance=False)._anchor_variance(stream.features, log_prior)
    torch.testing.assert_close(released, first / 3000**2 + second / 3000)
    torch.testing.assert_close(corrected, (first + second) / 3000)


@pytest.mark.parametrize("chunked", [True, False])
def test_a_chunked_covariance_gives_the_answers_of_the_loop(monkeypatch, chunked):
    monkeypatch.setattr(stata, "_CHUNK", 30)
    stream = varied_stream()
    found = StatA(stream.classifier, chunked_covariance=chunked).step(stream.features)
    np.testing.assert_allclose(found, loop_of(stream, chunked_covariance=chunked, chunk=30), atol=1e-8, rtol=1e-8)
    other = loop_of(stream, chunked_covariance=not chunked, chunk=30)
    assert np.abs(found.numpy() - other).max() > 1e-2


# -- what it means ----------------------------------------------------------------------------------------------------


def test_an_anchor_worth_any_number_of_samples_is_never_left():
    stream = varied_stream()
    held = StatA(stream.classifier, alpha=1e9, iterations=10, neighbour_weight=0.0).step(stream.features)
    unfitted = StatA(stream.classifier, iterations=0, neighbour_weight=0.0).step(stream.features)
    torch.testing.assert_close(held, unfitted, atol=1e-5, rtol=0)


def test_classes_that_no_sample_is_counted_for_keep_their_anchor():
    stream = clip_like_stream(4, classes=10, dim=24, count=40, present=0.3)
    adapter = StatA(stream.classifier)
    log_z = adapter.step(stream.features)
    sigma0 = torch.full((24,), 0.01, dtype=torch.float64)
    mu, sigma = adapter._gaussians(stream.features, log_z, sigma0)
    absent = torch.bincount(log_z.argmax(dim=1), minlength=10) == 0
    assert 0 < absent.sum() < 10
    torch.testing.assert_close(mu[absent], stream.anchors[absent])
    torch.testing.assert_close(sigma[absent], sigma0.expand_as(sigma[absent]))
    assert (mu[~absent] - stream.anchors[~absent]).abs().max() > 0.01


@pytest.mark.parametrize(
    ("counts", "trust"), [("hard", [2 / 3, 1 / 2, 0]), ("soft", [1.3 / 2.3, 1.1 / 2.1, 0.6 / 1.6])]
)
def test_trust_counts_winners_or_adds_labels(counts, trust):
    z = torch.tensor([[0.6, 0.1, 0.3], [0.5, 0.3, 0.2], [0.2, 0.7, 0.1]], dtype=torch.float64)
    found = StatA(toy_stream().classifier, counts=counts)._trust(z.log())
    torch.testing.assert_close(found, torch.tensor(trust, dtype=torch.float64))
