"""BCA: the worked example, the loop it must equal, what it keeps, and its switches."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import clip_like_stream, streams, toy_stream

from pta import ZeroShotClassifier
from pta.adapters.bca import BCA

PRINTED = {"atol": 1e-5, "rtol": 0}


def small_stream(seed=1, **shape):
    return clip_like_stream(seed, **{"classes": 12, "dim": 24, "count": 60} | shape)


@pytest.mark.parametrize("size", [3, 2, 1])
def test_worked_example(size):
    toy = toy_stream()
    adapter = BCA(toy.classifier)
    r = torch.cat([adapter.step(part) for part in toy.features.split(size)]).exp()
    expected = [[0.53060, 0.46749, 0.00191], [0.34157, 0.65394, 0.00449], [0.00045, 0.00015, 0.99940]]
    np.testing.assert_allclose(r, expected, **PRINTED)
    table = [[1, 0, 0], [0.17078, 0.82697, 0.00225], [0.00023, 0.00007, 0.99970]]
    np.testing.assert_allclose(adapter.priors, table, **PRINTED)


@settings(max_examples=15)
@given(streams(max_count=40), st.sampled_from([{}, {"centre_count": 0, "order": "update-first"}]))
def test_answers_and_priors_are_distributions_and_centres_are_unit(stream, parameters):
    adapter = BCA(stream.classifier, **parameters)
    logits = adapter.step(stream.features)
    torch.testing.assert_close(logits.logsumexp(dim=1), torch.zeros(len(logits), dtype=torch.float64))
    torch.testing.assert_close(adapter.priors.sum(dim=1), torch.ones(len(stream.anchors), dtype=torch.float64))
    torch.testing.assert_close(adapter.centres.norm(dim=1), torch.ones(len(stream.anchors), dtype=torch.float64))


def test_a_class_that_was_never_chosen_keeps_its_anchor_and_its_prior():
    stream = small_stream(present=0.3, scale=100.0)
    adapter = BCA(stream.classifier)
    adapter.step(stream.features)
    unmoved = adapter.centre_counts == 20000
    assert 0 < unmoved.sum() < 12
    assert torch.equal(adapter.centres[unmoved], stream.anchors[unmoved])
    assert torch.equal(adapter.priors[unmoved], torch.eye(12, dtype=torch.float64)[unmoved])
    assert (adapter.centre_counts - 20000).sum() == 60


def test_a_centre_is_the_direction_of_a_running_sum_while_it_is_long():
    stream = small_stream()
    adapter = BCA(stream.classifier)
    logits = adapter.step(stream.features)
    for m in range(12):
        sums = 20000 * stream.anchors[m] + stream.features[logits.argmax(dim=1) == m].sum(dim=0)
        torch.testing.assert_close(adapter.centres[m], sums / sums.norm(), atol=1e-6, rtol=0)


def test_a_sample_moves_a_centre_by_little():
    stream = small_stream(count=1)
    adapter = BCA(stream.classifier)
    adapter.step(stream.features)
    moved = (adapter.centres - stream.anchors).norm(dim=1)
    assert 0 < moved.max() <= 5e-5


def test_with_thresholds_out_of_reach_it_is_zero_shot():
    stream = small_stream()
    adapter = BCA(stream.classifier, centre_threshold=1.0, prior_threshold=1.0)
    expected = stream.classifier.logits(stream.features).log_softmax(dim=1)
    torch.testing.assert_close(adapter.step(stream.features), expected)
    assert torch.equal(adapter.centres, stream.anchors)


def test_a_sample_as_confident_as_a_threshold_changes_nothing():
    sample = torch.tensor([[0.5**0.5, 0.5**0.5]], dtype=torch.float64)
    even = ZeroShotClassifier(torch.eye(2, dtype=torch.float64), ["a", "b"], scale=10.0)  # the posterior is ½, ½
    for threshold, changed in ((0.5, 0), (0.4999, 1)):
        adapter = BCA(even, centre_threshold=threshold, prior_threshold=threshold)
        adapter.step(sample)
        assert (adapter.centre_counts - 20000).sum() == (adapter.prior_counts - 1).sum() == changed


@pytest.mark.parametrize(("v", "changed"), [(0.049, [0, 0]), (0.051, [1, 0]), (0.649, [1, 0]), (0.651, [1, 1])])
def test_how_confident_a_sample_must_be_by_default(v, changed):
    classifier = ZeroShotClassifier(torch.eye(40, 41, dtype=torch.float64), [f"class {c}" for c in range(40)])
    cosine = math.log(39 * v / (1 - v)) / 100  # to the first class, and none to the others
    sample = torch.zeros(1, 41, dtype=torch.float64)
    sample[0, 0], sample[0, -1] = cosine, math.sqrt(1 - cosine**2)
    adapter = BCA(classifier)
    assert adapter.step(sample).exp().max().item() == pytest.approx(v)
    assert [int(adapter.centre_counts.sum()) - 40 * 20000, int(adapter.prior_counts.sum()) - 40] == changed


@pytest.mark.parametrize(
    ("piece", "threshold"), [("centres", "centre_threshold"), ("priors", "prior_threshold")], ids=["centres", "priors"]
)
def test_each_threshold_guards_its_own_piece(piece, threshold):
    stream = small_stream()
    adapter, new = BCA(stream.classifier, **{threshold: 1.0}), BCA(stream.classifier)
    adapter.step(stream.features)
    same = {name: torch.equal(tensor, new.state()[name]) for name, tensor in adapter.state().items()}
    assert [name for name in ("centres", "priors") if same[name]] == [piece]


def test_predict_first_answers_from_the_text_alone_and_update_first_does_not():
    stream = small_stream(count=1, scale=10.0)
    parameters = {"centre_count": 3, "prior_threshold": 0.0}
    zero_shot = stream.classifier.logits(stream.features).log_softmax(dim=1)
    before = BCA(stream.classifier, **parameters)
    after = BCA(stream.classifier, order="update-first", **parameters)
    torch.testing.assert_close(before.step(stream.features), zero_shot)
    assert (after.step(stream.features) - zero_shot).abs().max() > 0.1
    torch.testing.assert_close(after.predict(stream.features), before.predict(stream.features))
