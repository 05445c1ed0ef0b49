"""Which patches stay: float32 decides only what float64 decides alike."""

import numpy as np
import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from pta import ZeroShotClassifier
from pta.engines.prompts import patch_choice
from pta.engines.prompts.patch_choice import highest_scores
from pta.reference.numerics import softmax


def drawn(seed, samples, count, classes, dim=16, scale=100.0):
    generator = torch.Generator().manual_seed(seed)
    anchors, patches = (torch.randn(*shape, dim, generator=generator) for shape in ((classes,), (samples, count)))
    classifier = ZeroShotClassifier(anchors + 1, [str(number) for number in range(classes)], scale=scale)
    return classifier, normalize(patches + 0.5, dim=2)


def by_definition(classifier, patches, kept):
    """The numbers in float64, sample by sample."""
    anchors = classifier.anchors.double().numpy()
    scores = [softmax(classifier.scale * anchors @ own.T).sum(axis=0) for own in patches.double().numpy()]
    return [sorted(np.argsort(-score, kind="stable")[:kept].tolist()) for score in scores]


def found(classifier, patches, kept):
    return [sorted(row) for row in highest_scores(classifier, patches, kept).tolist()]


@given(st.integers(0, 1000), st.sampled_from([2, 7, 300]), st.integers(1, 20), st.sampled_from([1.0, 30.0, 100.0]))
def test_they_are_those_of_the_highest_scores(seed, classes, kept, scale):
    classifier, patches = drawn(seed, 3, 20, classes, scale=scale)
    assert found(classifier, patches, kept) == by_definition(classifier, patches, kept)


@settings(max_examples=repeated(60))
@given(
    st.integers(0, 1000),
    st.integers(1, 11),
    st.sampled_from([0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4]),
    st.sampled_from([2, 300]),
)
def test_near_ties_are_decided_in_float64(seed, kept, apart, classes):
    """All patches are one, moved by about a rounding: float32 alone takes others."""
    classifier, patches = drawn(seed, 4, 12, classes, dim=64)
    near = patches[:, :1] + apart * patches
    assert found(classifier, near, kept) == by_definition(classifier, near, kept)


def test_of_equal_patches_the_first_stay():
    classifier, patches = drawn(0, 2, 3, classes=5)
    assert found(classifier, patches.repeat(1, 4, 1), 12) == [list(range(12))] * 2
    best = int(highest_scores(classifier, patches[:1], 1)[0, 0])
    assert found(classifier, patches[:1].repeat(1, 4, 1), 2) == [[best, best + 3]]


@pytest.mark.parametrize(("apart", "again"), [(1e-7, True), (1.0, False)])
def test_only_samples_in_doubt_are_computed_again(apart, again, monkeypatch):
    classifier, patches = drawn(1, 5, 12, classes=4, scale=10.0)
    seen, scores = [], patch_choice._scores
    monkeypatch.setattr(patch_choice, "_scores", lambda c, given: (seen.append(given.shape), scores(c, given))[1])
    highest_scores(classifier, patches[:, :1] + apart * patches, 3)
    assert [len(shape) for shape in seen] == [3, 3]
    assert (seen[1][0] == 5) == again


@pytest.mark.parametrize("classes", [10, 1000])
def test_float32_is_as_wrong_as_it_is_said_to_be_at_most(classes):
    classifier, patches = drawn(2, 2, 196, classes, dim=512)
    scores, exact = (patch_choice._scores(classifier, one) for one in (patches, patches.double()))
    error = ((scores - exact) / exact).abs().max()
    assert error < patch_choice._rounding(classifier, patches) / 2
