"""MTA: the worked example, and what becomes of few and of equal views."""

import numpy as np
import pytest
import torch
from streams import clip_like_stream, toy_stream, with_views
from torch.nn.functional import normalize

from pta import Samples
from pta.errors import InvalidSamples
from pta.methods.mta import MTA
from pta.reference.mta import mta_loop, mta_of_views

PRINTED = {"atol": 1e-5, "rtol": 0}
ONE_NEIGHBOUR_OF_FOUR = 0.4  # int(0.4·3) = 1


def small_samples(views=12, **shape):
    stream = clip_like_stream(1, **{"classes": 8, "dim": 16, "count": 40} | shape)
    return stream, with_views(stream, views)


def test_worked_example():
    toy, rows = toy_stream(), [[1, 0.98, 0.2], [1, 0.8, 0.1], [0.9, 1.1, 0.2], [0.1, 0.2, 1]]
    views = normalize(torch.tensor([rows], dtype=torch.float64), dim=2)
    logits = MTA(toy.classifier, bandwidth_share=ONE_NEIGHBOUR_OF_FOUR).step(Samples(views[:, 0], views=views))
    np.testing.assert_allclose(logits, [[7.73832, 7.58798, 2.07818]], **PRINTED)
    parameters = {"scale": 10.0, "lambda_y": 0.2, "lambda_q": 4.0, "bandwidth_share": ONE_NEIGHBOUR_OF_FOUR}
    _, h, y = mta_of_views(toy.anchors.numpy(), views[0].numpy(), **parameters)
    np.testing.assert_allclose(h, [0.07683, 0.08384, 0.07683, 0.80823], **PRINTED)
    np.testing.assert_allclose(y, [0.91109, 0.06748, 0.02142, 0.0], **PRINTED)


def test_a_sample_that_settles_early_stays_where_it_is_while_others_go_on():
    stream, samples = small_samples(count=2)
    original = samples.views[:1, :1]
    views = torch.cat([normalize(original + 1e-4 * (samples.views[:1] - original), dim=2), samples.views[1:]])
    both = Samples(samples.features, views=views)
    adapter = MTA(stream.classifier)
    torch.testing.assert_close(adapter.step(both)[:1], adapter.step(both[:1]), atol=1e-12, rtol=0)
    arrays = (tensor.numpy() for tensor in (stream.anchors, both.features, both.views))
    np.testing.assert_allclose(adapter.step(both), mta_loop(*arrays, scale=stream.scale), atol=1e-9, rtol=0)


def test_the_answer_is_the_score_of_the_refined_feature():
    stream, samples = small_samples(count=40)
    adapter = MTA(stream.classifier)
    adapter.max_batch = 32
    modes = adapter.refined(samples)
    assert modes.shape == samples.features.shape
    torch.testing.assert_close(modes.norm(dim=1), torch.ones(len(modes), dtype=torch.float64))
    torch.testing.assert_close(adapter.step(samples), stream.classifier.logits(modes))


def test_only_the_views_are_looked_at():
    stream, samples = small_samples()
    other = Samples(samples.features.flip(0), views=samples.views)
    adapter = MTA(stream.classifier)
    torch.testing.assert_close(adapter.step(samples), adapter.step(other))


def test_views_that_are_all_the_same_have_it_as_their_mode():
    stream = clip_like_stream(2, classes=8, dim=16, count=5)
    copies = Samples(stream.features, views=stream.features[:, None].expand(-1, 12, -1))
    torch.testing.assert_close(MTA(stream.classifier).refined(copies), stream.features)


def test_tight_clusters_of_copies_give_a_unit_mode():
    stream = clip_like_stream(3, classes=8, dim=16, count=2)
    views = torch.cat([stream.features[:1].expand(6, -1), stream.features[1:].expand(6, -1)])[None]
    for order in (views, views.flip(1), views[:, torch.arange(12) // 2 + 6 * (torch.arange(12) % 2)]):
        mode = MTA(stream.classifier).refined(Samples(order[:, 0], views=order))
        torch.testing.assert_close(mode.norm(), torch.tensor(1.0, dtype=torch.float64))


@pytest.mark.parametrize("views", [1, 4])
def test_too_few_views_for_a_neighbour_are_refused(views):
    stream, samples = small_samples(views=views)
    with pytest.raises(InvalidSamples, match=rf"{views} views leave none .* bandwidth_share=0.3; mta needs more views"):
        MTA(stream.classifier).step(samples)
    assert MTA(stream.classifier, bandwidth_share=0.3).step(small_samples(views=5)[1]).isfinite().all()
