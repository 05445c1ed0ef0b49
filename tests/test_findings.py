"""What the findings were measured with does what it says."""

import numpy as np
import pytest
import torch
from finding import anchor, half
from finding.unguarded import Unguarded, stream
from streams import clip_like_stream

from pta import PTA, Samples, ZeroShotClassifier
from pta.data.features import FeatureFile
from pta.engines.pta.advance import touches_of_probabilities


def small_file(seed, *, classes=12, count=120):
    made = clip_like_stream(seed, classes=classes, dim=24, count=count)
    return FeatureFile("small", Samples.of(made.features), made.classifier, made.labels.numpy())


@pytest.mark.parametrize("form", ["released", "printed"])
@pytest.mark.parametrize("weight", ["saturating", "raw"])
def test_where_nothing_is_divided_by_zero_the_unguarded_rule_is_ptas(form, weight):
    data = small_file(seed=3)
    variant, mask = ("released", 0.1) if form == "released" else ("paper", 0.0)
    adapter = PTA(data.classifier, variant=variant, weight=weight, state_dtype="float64")
    expected = adapter.step(data.samples).argmax(dim=1).numpy()

    rule = Unguarded(form=form, weight=weight, min_probability=mask, dtype=torch.float64)
    outcome = stream(rule, data, np.arange(len(data.samples)))
    np.testing.assert_array_equal(outcome.predictions, expected)
    assert outcome.first_nan is None
    torch.testing.assert_close(outcome.knowledge, adapter.knowledge, atol=1e-12, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("weight", ["saturating", "raw"])
def test_without_anchor_an_untouched_first_class_is_named_for_ever(dtype, weight):
    data = small_file(seed=3)
    order = np.flatnonzero(data.zero_shot_logits.softmax(dim=1)[:, 0].numpy() < 0.1)
    outcome = stream(Unguarded(w=0.0, weight=weight, dtype=dtype), data, order)
    assert outcome.first_nan == 1
    assert not outcome.predictions.any()
    guarded = PTA(data.classifier, w=0.0, weight=weight).step(data.samples[torch.from_numpy(order)])
    assert guarded.isfinite().all()


def test_the_answers_after_the_loop_ends_are_those_it_would_have_given():
    data = small_file(seed=3)
    order = np.flatnonzero(data.zero_shot_logits.softmax(dim=1)[:, 0].numpy() < 0.1)
    T = data.classifier.anchors.double()
    P, R = torch.zeros_like(T), T
    for index in order:
        f = data.samples.features[index].double()
        s = (100 * T @ f).softmax(dim=0)
        beta = torch.where(s >= 0.1, s, 0.0)[:, None]
        P = (1 - beta) * P + beta * f
        R = (0.0 * R + P) / (0.0 * R + P).norm(dim=1, keepdim=True)
        assert (100 * (T + R) @ f).argmax() == 0


def test_the_share_of_the_anchor_on_paper():
    T, f = np.eye(2)
    sure = np.array([1.0, 0.0, 0.0, 0.0])
    recursive = anchor.shares(T, np.tile(f, (4, 1)), sure, 0.01, fixed=False)
    np.testing.assert_allclose(recursive, [0.203, 0.0349, 0.0060, 0.0010], atol=5e-4)
    fixed = anchor.shares(T, np.tile(f, (4, 1)), sure, 0.01, fixed=True)
    np.testing.assert_allclose(fixed, [recursive[0]] * 4)


@pytest.mark.parametrize("kind", ["recursive", "fixed"])
def test_the_share_of_the_anchor_is_what_pta_keeps_of_it(kind):
    rng = np.random.default_rng(0)
    features = np.c_[np.zeros(6), rng.random((6, 3))]  # the anchor's axis is its own, so R shows its share there
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    s = np.array([0.9, 0.0, 0.5, 0.0, 0.0, 1.0])
    classifier = ZeroShotClassifier(torch.eye(4, dtype=torch.float64)[[0, 3]], ["one", "other"])
    adapter = PTA(classifier, w=0.05, anchor=kind, state_dtype="float64")
    kept = []
    for f, probability in zip(features, s, strict=True):
        given = torch.tensor([[probability, 0.0]], dtype=torch.float64)
        touches = touches_of_probabilities(adapter.prototypes, given, adapter.rule)
        adapter._learn(torch.from_numpy(f[None]), torch.zeros(1, 2, dtype=torch.float64), touches)
        kept.append(float(adapter.anchored[0, 0]))
    found = anchor.shares(np.eye(4)[0], features, s, 0.05, fixed=kind == "fixed")
    np.testing.assert_allclose(found, kept, atol=1e-12)


def test_half_precision_has_three_steps_at_h_1000():
    assert half.steps(1000.0) == (3, 0.0)
    assert half.steps(20.0)[0] == 91
