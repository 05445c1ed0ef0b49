"""ZERO: who votes, how ties are broken, and how float16 splits votes."""

import math

import pytest
import torch
from streams import clip_like_stream, with_views

from pta import Samples, ZeroShotClassifier
from pta.methods.zero import ZERO

NO_VOTES = 1e-12


def small_samples(views):
    stream = clip_like_stream(1, classes=8, dim=16, count=40)
    return stream, with_views(stream, views, noise=0.5)


def shares(classes_and_sureness, *, keep):
    """The shares of votes where view v leans to a class, more confidently for larger v, with axes as anchors."""
    classifier = ZeroShotClassifier(torch.eye(5, dtype=torch.float64)[:4], list("abcd"), scale=10.0)
    views = torch.ones(1, len(classes_and_sureness), 5, dtype=torch.float64)
    for view, (label, sureness) in enumerate(classes_and_sureness):
        views[0, view, label] += sureness
    return ZERO(classifier, keep=keep).step(Samples.of(views[:, 0], views=views))[0].exp()


def assert_shares(found, *expected):
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64).clamp_min(NO_VOTES))


def test_each_of_the_most_confident_views_has_one_vote():
    views = [(0, 1.0), (1, 5.0), (2, 3.0), (1, 4.0), (3, 2.0)]
    assert_shares(shares(views, keep=0.6), 0.0, 2 / 3, 1 / 3, 0.0)
    for keep in (0.2, 0.0):  # at least one view votes
        assert_shares(shares(views, keep=keep), 0.0, 1.0, 0.0, 0.0)


def test_nineteen_of_sixty_four_views_vote_by_default():
    stream, samples = small_samples(views=64)
    votes = ZERO(stream.classifier).step(samples).exp() * 19
    untied = (votes.topk(2, dim=1).values.diff(dim=1) < -0.5)[:, 0]
    assert untied.sum() > 20
    torch.testing.assert_close(votes[untied], votes[untied].round(), atol=1e-6, rtol=0)


def test_a_tie_is_broken_by_the_most_confident_of_the_other_views_that_names_one_of_the_tied():
    views = [(0, 6.0), (1, 5.0), (2, 2.0), (3, 4.0), (1, 3.0), (0, 1.0)]
    assert_shares(shares(views, keep=0.4), 1 / 3, 2 / 3, 0.0, 0.0)


def test_a_tie_that_no_other_view_breaks_is_broken_by_the_most_confident_voter():
    assert_shares(shares([(2, 5.0), (1, 6.0), (3, 2.0), (3, 1.0)], keep=0.5), 0.0, 2 / 3, 1 / 3, 0.0)
    assert_shares(shares([(2, 6.0), (1, 5.0)], keep=1.0), 0.0, 1 / 3, 2 / 3, 0.0)


def test_only_directions_of_views_are_looked_at():
    stream, samples = small_samples(views=20)
    other = Samples(samples.features.flip(0), views=3 * samples.views)
    torch.testing.assert_close(ZERO(stream.classifier).step(samples), ZERO(stream.classifier).step(other))


@pytest.mark.parametrize(
    ("close", "split", "whole"),
    [
        (0.25 - 2**-12, 1 / (1 + math.exp(-0.25)), [1.0, 0.0, 0.0]),  # two steps of float16: 1024 times the cosines
        (0.25 + 2**-14, 0.75, [0.0, 1.0, 0.0]),  # rounds to the same number; the first gets the vote of the tie
    ],
)
def test_float16_splits_the_vote_of_a_view(close, split, whole):
    view = torch.tensor([[[0.25, close, 0.0, math.sqrt(1 - 0.25**2 - close**2)]]], dtype=torch.float64)
    classifier = ZeroShotClassifier(torch.eye(4, dtype=torch.float64)[:3], ["a", "b", "c"])
    samples = Samples(view[:, 0], views=view)
    found = ZERO(classifier, temperature="float16").step(samples)[0].exp()
    torch.testing.assert_close(found, torch.tensor([split, 1 - split, NO_VOTES], dtype=torch.float64))
    assert_shares(ZERO(classifier).step(samples)[0].exp(), *whole)
