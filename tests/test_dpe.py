"""DPE: worked examples, its gradients, the loops it must equal, and what it does with bad samples."""

import math

import numpy as np
import pytest
import torch
from autograd_loops import DPELoop
from photos import fashion_samples
from streams import clip_like_stream, with_views
from torch.nn.functional import normalize

from pta import ZeroShotClassifier, create_adapter
from pta.engines.caches.admission import EMPTY
from pta.engines.prompts.residuals import Directions, alignment_gradients, stepped
from pta.errors import InvalidSamples
from pta.methods import needs_of_samples
from pta.methods.dpe import DPE
from pta.reference import dpe as reference
from pta.reference.dpe import dpe_loop


def two_classes(scale=100.0):
    return ZeroShotClassifier(torch.eye(2, dtype=torch.float64), ["cat", "dog"], scale=scale)


def test_the_mean_after_two_confident_samples_is_a_third_of_each():
    """W ← W/2 + W₁/2, then W ← 2/3·W + W₂/3: anchors and both moved prototypes count alike."""
    adapter, moved = DPE(two_classes(scale=10.0), max_entropy=0.5), []
    average = adapter._average
    adapter._average = lambda text, entropy: (moved.append(text.unit()), average(text, entropy))
    adapter.step([[0.8, 0.6], [0.6, 0.8]])
    assert int(adapter.averaged) == 2
    expected = (torch.eye(2, dtype=torch.float64) + moved[0] + moved[1]) / 3
    torch.testing.assert_close(adapter.prototypes, expected)
    assert (moved[0] - moved[1]).abs().max() > 1e-4


def test_a_sample_in_doubt_moves_no_prototype_but_is_remembered():
    adapter = DPE(two_classes(scale=1.0), alpha=0.0)
    adapter.step([[0.8, 0.6]])
    assert int(adapter.averaged) == 0
    assert torch.equal(adapter.prototypes, adapter.classifier.anchors)
    torch.testing.assert_close(adapter.keys[0, 0], torch.tensor([0.8, 0.6], dtype=torch.float64))
    assert (adapter.scores < EMPTY).sum() == 1


def test_of_equally_confident_samples_the_older_stay():
    adapter = DPE(two_classes(scale=5.0), slots=2, max_entropy=0.0)
    first, again = [0.8, 0.6], [0.6, 0.8]
    more_confident = [[0.8, -0.6]]
    adapter.step([first, first])
    kept = adapter.keys.clone()
    adapter.step([first])
    assert torch.equal(adapter.keys, kept)
    adapter.step([again])
    assert torch.equal(adapter.keys[0], kept[0])
    torch.testing.assert_close(adapter.keys[1, 0], torch.tensor(again, dtype=torch.float64))
    adapter.step(more_confident)
    torch.testing.assert_close(adapter.keys[0, 0], torch.tensor(more_confident[0], dtype=torch.float64))
    assert torch.equal(adapter.keys[0, 1], kept[0, 0])


def test_entropies_that_underflow_in_single_precision_still_order_the_cache():
    """At scale 100 both are 0 in float32 arithmetic; the more confident one stays in the only slot."""
    classifier = ZeroShotClassifier(torch.eye(3), list("abc"), scale=100.0)
    confident, more_confident = [0.99, 0.1, 0.0], [0.999, 0.02, 0.0]
    for stream in ([confident, more_confident], [more_confident, confident]):
        adapter = DPE(classifier, slots=1)
        adapter.step(stream)
        torch.testing.assert_close(adapter.keys[0, 0], normalize(torch.tensor([more_confident]))[0])


def random_problem(seed, classes=6, dim=5):
    rng = np.random.default_rng(seed)
    W, present = rng.normal(size=(classes, dim)), [0, 2, 5]
    return W, rng.normal(size=(3, dim)), present, reference.unit(rng.normal(size=dim))


HOW = {"scale": 7.0, "bias": 0.0, "alpha": 4.0, "beta": 3.0, "align": 0.6, "temperature": 0.3}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("residual", [0, 1], ids=["text", "visual"])
def test_the_gradient_by_either_residual_is_that_of_finite_differences(seed, residual):
    W, K, present, f = random_problem(seed)
    gradient, h = reference.gradients(W, K, present, f, **HOW)[residual], 1e-5
    for place in np.ndindex(gradient.shape):
        ends = []
        for sign in (1, -1):
            moved = [W.copy(), K.copy()]
            moved[residual][place] += sign * h
            ends.append(reference.loss(*moved, present, f, **HOW))
        assert gradient[place] == pytest.approx((ends[0] - ends[1]) / (2 * h), abs=1e-7)


@pytest.mark.parametrize("present", [[True] * 4, [True, False, True, True], [False] * 4])
def test_the_alignment_leaves_out_classes_without_a_visual_prototype(present):
    generator = torch.manual_seed(0)
    visual, text = (normalize(torch.randn(4, 6, generator=generator, dtype=torch.float64), dim=1) for _ in range(2))
    flags = torch.tensor(present)
    found = alignment_gradients(visual.clone(), text, flags, 0.1, 3.0)
    visual.requires_grad_(), text.requires_grad_()
    if any(present):
        logits = visual[flags] @ text[flags].T / 0.1
        (3.0 * torch.nn.functional.cross_entropy(logits, torch.arange(int(flags.sum())))).backward()
    else:
        visual.grad = text.grad = torch.zeros(4, 6, dtype=torch.float64)
    for gradient, rows in zip(found, (visual, text), strict=True):
        torch.testing.assert_close(gradient, rows.grad)


def test_one_class_alone_is_aligned_with_nothing():
    visual, text = torch.tensor([[0.6, 0.8]]), torch.tensor([[1.0, 0.0]])
    for gradient in alignment_gradients(visual, text, torch.tensor([True]), 0.01, 1.0):
        assert gradient.abs().max() == 0


@pytest.mark.parametrize("rows", [None, slice(None), torch.tensor([1, 4])], ids=["no more", "all rows", "some rows"])
def test_a_step_is_that_of_adamw_from_zero(rows):
    """The loss is Σ along_c·⟨ŵ_c, f⟩, and for some rows ⟨ŵ_c, more_c⟩ beside it."""
    generator = torch.manual_seed(0)
    w, more = (torch.randn(5, 7, generator=generator, dtype=torch.float64) for _ in range(2))
    f, along = torch.randn(1, 7, generator=generator).double(), torch.randn(5, generator=generator).double()
    residual = torch.zeros_like(w, requires_grad=True)
    optimiser = torch.optim.AdamW([residual], lr=0.01, eps=1e-3, weight_decay=0.1)
    unit = normalize(w + residual, dim=1)
    loss = (along * (unit @ f[0])).sum()
    if rows is not None:
        loss = loss + (unit[rows] * more[rows]).sum()
    loss.backward()
    optimiser.step()
    before, given = Directions.of(w), () if rows is None else (more[rows], rows)
    moved = stepped(before, f, before.cosines(f)[0], along, 0.01, *given)
    torch.testing.assert_close(moved.unit(), normalize(w + residual.detach(), dim=1))


SETTINGS = [
    {},
    {"first_views": 64, "keep": 0.1},
    {"first_views": 64, "keep": 0.1, "answer": "views"},
    {"first_views": 10, "keep": 0.5, "alpha": 15.0, "align": 2.5},
]


def autograd_answers(classifier, samples, parameters):
    given = {name: value for name, value in parameters.items() if name != "first_views"}
    loop, exact = DPELoop(classifier.anchors, scale=classifier.scale, **given), samples.to(classifier.anchors)
    first = parameters.get("first_views", 1)
    views = exact.features[:, None] if first == 1 else exact.views[:, :first]
    return [torch.stack(parts) for parts in zip(*map(loop, exact.features, views), strict=True)]


@pytest.mark.parametrize("parameters", SETTINGS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_equals_a_loop_with_automatic_differentiation(parameters, dtype):
    stream = clip_like_stream(2, classes=12, dim=32, count=40, scale=50.0).to(dtype)
    samples = with_views(stream, 64)
    found = DPE(stream.classifier, **parameters).step(samples)
    expected, _ = autograd_answers(stream.classifier, samples, parameters)
    torch.testing.assert_close(found, expected, atol=1e-4 if dtype == torch.float32 else 1e-12, rtol=0)
    assert torch.equal(found.argmax(dim=1), expected.argmax(dim=1))


@pytest.mark.extensive
@pytest.mark.parametrize("parameters", SETTINGS[:3], ids=str)
def test_on_real_images_it_equals_both_loops(parameters):
    classifier, samples = fashion_samples(50, views=64)
    found = create_adapter("dpe", classifier, **parameters).step(samples)
    exact = samples.to(classifier.anchors)
    arrays = [one.double().numpy() for one in (classifier.anchors, exact.features, exact.views)]
    by_numpy = torch.from_numpy(dpe_loop(*arrays, scale=classifier.scale, **parameters))
    for expected in (autograd_answers(classifier, samples, parameters)[0], by_numpy):
        torch.testing.assert_close(found.double(), expected.double(), atol=1e-4, rtol=0)
        assert torch.equal(found.argmax(dim=1), expected.argmax(dim=1))


def test_six_of_64_views_are_kept_and_their_mean_stays_shorter_than_one():
    stream = clip_like_stream(4, classes=8, dim=16, count=1, scale=30.0)
    samples = with_views(stream, 64, noise=1.0)
    adapter = DPE(stream.classifier, first_views=64)
    adapter.step(samples)
    loop = DPELoop(stream.anchors, scale=30.0)
    _, chosen = loop(samples.features[0], samples.views[0])
    assert len(chosen) == 6
    key = adapter.keys[adapter.scores[:, 0] < EMPTY, 0][0]
    torch.testing.assert_close(key, samples.views[0, chosen].mean(dim=0))
    assert key.norm() < 0.999


def test_it_needs_views_only_if_it_is_told_to_look_at_several():
    assert needs_of_samples("dpe", {}) == {"features"}
    assert needs_of_samples("dpe", {"first_views": 64}) == {"features", "views"}
    stream = clip_like_stream(1, classes=4, dim=8, count=3)
    adapter = DPE(stream.classifier, first_views=64)
    with pytest.raises(InvalidSamples, match="dpe needs views, which are missing"):
        adapter.step(stream.features)
    with pytest.raises(InvalidSamples, match="dpe needs 64 views, but the samples have 12; make more with"):
        adapter.step(with_views(stream, 12))
    assert adapter.position == 0


def test_a_sample_without_a_finite_gradient_gets_its_zero_shot_answer_and_teaches_nothing(monkeypatch):
    stream = clip_like_stream(1, classes=4, dim=8, count=6)
    adapter, other = DPE(stream.classifier), DPE(stream.classifier)
    for one in (adapter, other):
        one.step(stream.features[:3])

    def broken(*given):
        return tuple(math.nan * one for one in alignment_gradients(*given))

    monkeypatch.setattr("pta.methods.dpe.alignment_gradients", broken)
    found = adapter.step(stream.features[3:4])
    monkeypatch.undo()
    torch.testing.assert_close(found, stream.classifier.logits(stream.features[3:4]))
    assert adapter.remarks() == ["dpe: 1 sample(s) had no finite gradient and got their zero-shot prediction"]
    learned, before = adapter.state(), other.state()
    for name in set(learned) - {"seen", "without_gradient"}:
        assert torch.equal(learned[name], before[name]), name


def test_combined_learns_from_the_plain_image():
    stream = clip_like_stream(1, classes=4, dim=8, count=3)
    samples = with_views(stream, 12)
    for base in (DPE(stream.classifier, first_views=12), create_adapter("gs-bias", stream.classifier)):
        assert torch.equal(base.refined(samples), samples.features)
