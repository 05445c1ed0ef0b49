"""FreeTTA as interpreted: its counts, its covariances, and its first sample."""

import numpy as np
import pytest
import torch
from streams import clip_like_stream

from pta.methods.freetta import FreeTTA


@pytest.mark.parametrize("parameters", [{}, {"covariance": "printed"}, {"inverse": "shrunk"}], ids=str)
def test_forgotten_classes_take_their_counts_out_of_n(parameters):
    stream = clip_like_stream(7, classes=6, dim=12, count=80)
    adapter = FreeTTA(stream.classifier, alpha=1.0, **parameters)
    adapter.step(stream.features[:60])
    others = adapter.counts[1:].clone()
    adapter.reset([0])
    assert adapter.counts[0].item() == pytest.approx(1 / 6)
    assert torch.equal(adapter.counts[1:], others)
    adapter.step(stream.features[60:])
    s = (stream.scale * stream.features[60:] @ stream.anchors.T).softmax(dim=1)
    weights = torch.exp(-4.5 * torch.special.entr(s).sum(dim=1))
    assert adapter.counts.sum().item() == pytest.approx(1 / 6 + others.sum().item() + weights.sum().item())
    adapter.reset(range(6))
    assert adapter.counts.sum().item() == pytest.approx(1)
    assert adapter.step(stream.features).isfinite().all()


def test_the_averaged_covariance_does_not_grow_and_the_printed_one_does():
    stream = clip_like_stream(2, classes=6, dim=12, count=200)
    averaged, printed = FreeTTA(stream.classifier), FreeTTA(stream.classifier, covariance="printed")
    for adapter in (averaged, printed):
        adapter.step(stream.features)
    assert averaged.sigma.trace() < 12
    assert printed.sigma.trace() > 12
    assert torch.linalg.eigvalsh(averaged.sigma)[0] > 0


@pytest.mark.parametrize("covariance", ["average", "printed"])
def test_samples_of_hardly_any_weight_do_no_harm(covariance):
    stream = clip_like_stream(6, classes=6, dim=12, count=40, scale=1.0)
    adapter = FreeTTA(stream.classifier, covariance=covariance, beta=1000.0)
    assert adapter.step(stream.features).isfinite().all()
    assert adapter.sigma.isfinite().all()


def test_the_first_sample_meets_the_text_as_the_mixture():
    stream = clip_like_stream(3, classes=6, dim=12, count=1)
    outputs = FreeTTA(stream.classifier, alpha=1.0).step(stream.features)
    cosines = stream.features @ stream.anchors.T
    torch.testing.assert_close(outputs, stream.scale * cosines + cosines - 0.5 - np.log(6))
