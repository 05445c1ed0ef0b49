"""TPS: the worked example, and its closed form beside automatic differentiation and torch's AdamW."""

import numpy as np
import pytest
import torch
from streams import clip_like_stream, with_views
from torch.nn.functional import normalize

from pta import Samples, ZeroShotClassifier, create_adapter
from pta.methods.tps import TPS
from pta.reference.tps import gradient

ANCHORS = normalize(torch.tensor([[1.3, 1, 1, 3], [1, 1.3, 1, 3], [1, 1, 1.3, 3]], dtype=torch.float64))
IMAGES = [[1.25, 1.15, 1, 1], [1.1, 1.3, 1, 1], [1, 1.05, 1.4, 1], [1.3, 1.06, 1.04, 1]]
VIEWS = normalize(torch.tensor(IMAGES, dtype=torch.float64))
CLASSIFIER = ZeroShotClassifier(ANCHORS, ["a", "b", "c"])
SAMPLE = Samples(VIEWS[:1], views=VIEWS[None])


@pytest.mark.parametrize(
    ("lr", "logits"), [(5e-3, [85.537885, 86.170399, 85.599124]), (1e-3, [85.947554, 85.769239, 85.197744])]
)
def test_worked_example(lr, logits):
    adapter = TPS(CLASSIFIER, keep=0.5, lr=lr)
    np.testing.assert_allclose(adapter.step(SAMPLE)[0], logits, atol=1e-6, rtol=0)


def test_the_loop_has_the_gradient_of_the_worked_example():
    kept = VIEWS[[2, 1]].numpy()
    g = gradient(ANCHORS.numpy(), np.ones(3), kept, 100 * kept @ ANCHORS.numpy().T, 100.0)
    expected = [
        [1.718402, 3.102886, 2.979039, -2.771949],
        [-0.918238, -0.984166, -0.749749, 0.982468],
        [-1.520899, -1.834247, -1.714156, 1.861183],
    ]
    np.testing.assert_allclose(g, expected, atol=1e-6, rtol=0)


def by_autograd(anchors, views, scale, steps, every_step):
    """The logits of one sample, with torch's AdamW."""
    shift = torch.zeros_like(anchors, requires_grad=True)
    optimiser, kept = torch.optim.AdamW([shift], lr=5e-3), None
    for _ in range(steps):
        z = scale * views @ normalize(anchors + shift).T
        if kept is None or every_step:
            kept = torch.special.entr(z.detach().softmax(dim=1)).sum(dim=1).argsort(stable=True)[: len(views) // 10]
        optimiser.zero_grad()
        torch.special.entr(z[kept].softmax(dim=1).mean(dim=0)).sum().backward()
        optimiser.step()
    return scale * normalize(anchors + shift.detach()) @ views[0]


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("selection", ["every-step", "first"])
def test_the_closed_form_equals_autograd_and_adamw(steps, selection):
    stream = clip_like_stream(1, classes=50, dim=64, count=6, spread=0.15)
    samples = with_views(stream, 64)
    found = TPS(stream.classifier, steps=steps, selection=selection).step(samples)
    for own, views in zip(found, samples.views, strict=True):
        expected = by_autograd(stream.anchors, views, stream.scale, steps, selection == "every-step")
        torch.testing.assert_close(own, expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("parameters", [{"steps": 0}, {"lr": 0.0}, {"lr": 0.0, "steps": 3}], ids=str)
def test_no_step_and_a_step_of_no_size_are_zero_shot(parameters):
    torch.testing.assert_close(TPS(CLASSIFIER, **parameters).step(SAMPLE), CLASSIFIER.logits(VIEWS[:1]))


def test_a_class_whose_gradient_is_no_larger_than_the_threshold_stays():
    far = ZeroShotClassifier(torch.cat([ANCHORS, -ANCHORS[:1]]), list("abcd"))  # no view is of the last class
    moved, threshold = (TPS(far, keep=0.5, least_gradient=least).step(SAMPLE)[0] for least in (0.0, 1e-8))
    torch.testing.assert_close(threshold[:3], moved[:3])
    assert threshold[3] == pytest.approx(float(far.logits(VIEWS[:1])[0, 3]), abs=1e-12)


def test_every_coordinate_moves_by_the_whole_step_where_the_gradient_is_large():
    stream = clip_like_stream(3, classes=4, dim=32, count=1, spread=0.15, scale=30.0)
    views = with_views(stream, 20)
    one, twice = (TPS(stream.classifier, lr=lr).step(views) for lr in (1e-4, 2e-4))
    zero_shot = stream.classifier.logits(views.views[:, 0])
    torch.testing.assert_close(twice - zero_shot, 2 * (one - zero_shot), atol=1e-3, rtol=1e-2)


def test_it_needs_views_and_keeps_nothing():
    adapter = create_adapter("tps", CLASSIFIER)
    before = adapter.predict(SAMPLE)
    adapter.step(SAMPLE)
    assert torch.equal(adapter.predict(SAMPLE), before)
    assert adapter.state_bytes == 0
