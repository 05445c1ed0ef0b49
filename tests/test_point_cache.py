"""Point-Cache: its local features, and what it does with samples that it sees before the first is answered."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from streams import clip_like_stream, cuts, feature_file, streams, with_views

from pta import Classifier, PointCache, Samples, ZeroShotClassifier, check_adapter, create_adapter
from pta.errors import InvalidParameter, InvalidSamples
from pta.measure.evaluate import evaluate
from pta.reference.point_cache import point_cache_loop


def previewed(stream, samples, numbers, **parameters):
    adapter = PointCache(stream.classifier, prefill=True, **parameters)
    adapter.preview(samples[torch.as_tensor(numbers)])
    return adapter


def expected(stream, samples, **parameters):
    arrays = (one.double().numpy() for one in (stream.anchors, samples.features, samples.patches))
    return point_cache_loop(*arrays, scale=stream.scale, **parameters)


@given(st.data())
def test_a_filled_cache_gives_what_the_loop_gives_in_any_batches(data):
    stream = data.draw(streams(max_count=40))  # with equal samples, and classes of which none or few come
    samples = with_views(stream, 2)
    numbers = data.draw(st.permutations(range(len(samples))))[: data.draw(st.integers(1, len(samples)))]
    chosen = {
        "positive_slots": data.draw(st.sampled_from([1, 2, 3, 5])),
        "local_features": data.draw(st.sampled_from([0, 1, 3])),
        "order": data.draw(st.sampled_from(["update-first", "predict-first"])),
    }
    adapter = previewed(stream, samples, numbers, **chosen)
    logits = torch.cat([adapter.step(samples[part]) for part in data.draw(cuts(len(samples)))])
    loop = expected(stream, samples, prefill=True, preview=numbers, **chosen)
    np.testing.assert_allclose(logits, loop, atol=1e-9 * max(100, np.abs(loop).max()), rtol=0)


def filled_with(angles):
    """A cache of three slots, filled with samples of the first of two classes at these angles to it."""
    anchors, entering = torch.eye(2, dtype=torch.float64), torch.tensor(angles, dtype=torch.float64)
    adapter = PointCache(ZeroShotClassifier(anchors, ["a", "b"], scale=5.0), prefill=True, local_features=0)
    adapter.preview(torch.stack([entering.cos(), entering.sin()], dim=1))
    return adapter


def kept_in(adapter):
    return torch.atan2(adapter.positive_keys[0, :, 1], adapter.positive_keys[0, :, 0]).sort().values.tolist()


def sample_at(angle):
    return torch.tensor([[np.cos(angle), np.sin(angle)]])


def test_the_first_to_come_competes_with_the_last_that_was_put_there():
    adapter = filled_with([0.6, 0.2, 0.4, 0.1])  # the fourth finds no place
    assert kept_in(adapter) == pytest.approx([0.2, 0.4, 0.6])
    adapter.step(sample_at(0.3))  # more confident than the last and than the worst, which stays
    assert kept_in(adapter) == pytest.approx([0.2, 0.3, 0.6])
    adapter.step(sample_at(0.5))  # now with the worst
    assert kept_in(adapter) == pytest.approx([0.2, 0.3, 0.5])


def test_the_first_to_come_may_lose_against_the_last_though_it_beats_the_worst():
    adapter = filled_with([0.6, 0.2, 0.4])
    adapter.step(sample_at(0.5))
    assert kept_in(adapter) == pytest.approx([0.2, 0.4, 0.6])


def test_a_class_that_is_not_full_takes_whoever_comes():
    adapter = filled_with([0.6, 0.2])
    adapter.step(sample_at(0.7))
    assert kept_in(adapter) == pytest.approx([0.2, 0.6, 0.7])
    adapter.step(sample_at(0.5))
    assert kept_in(adapter) == pytest.approx([0.2, 0.5, 0.6])


def test_of_very_sure_samples_the_surest_stay():
    anchors, angles = np.eye(2), np.array([0.3, 0.2, 0.1, 0.0])  # entropies below 10⁻¹⁰, each below the one before
    features = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    adapter = PointCache(ZeroShotClassifier(anchors, ["a", "b"], scale=100.0), local_features=0)
    logits = adapter.step(torch.from_numpy(features))
    assert kept_in(adapter) == pytest.approx([0.0, 0.1, 0.2])
    np.testing.assert_allclose(logits, point_cache_loop(anchors, features, local_features=0), atol=1e-9, rtol=0)


def test_a_preview_fills_no_negative_cache_and_is_no_step():
    stream = clip_like_stream(1, classes=5, dim=12, count=40, scale=30.0)
    samples = with_views(stream, 2)
    adapter = previewed(stream, samples, range(40))
    fresh = PointCache(stream.classifier, prefill=True)
    assert adapter.position == 0
    assert adapter.negative_scores.equal(fresh.negative_scores)
    assert adapter.remarks() == ["point-cache saw 40 samples before it answered the first; online methods do not"]
    adapter.step(samples)
    assert adapter.negative_scores.less(fresh.negative_scores).any()


def test_a_preview_is_refused_without_prefill_or_after_the_first_step():
    stream = clip_like_stream(1, classes=5, dim=12, count=10)
    samples = with_views(stream, 2)
    late = PointCache(stream.classifier, prefill=True)
    late.step(samples)
    for adapter in (late, PointCache(stream.classifier)):
        before = adapter.snapshot()
        with pytest.raises(InvalidParameter, match="only with prefill=True"):
            adapter.preview(samples)
        assert all(one.equal(before.tensors[name]) for name, one in adapter.state().items())
    with pytest.raises(InvalidParameter, match="tda is an online method: it takes no preview of the stream"):
        create_adapter("tda", stream.classifier).preview(samples)


def test_a_filled_cache_obeys_the_laws():
    def filled(classifier, source):
        adapter = PointCache(classifier, prefill=True)
        adapter.preview(source)
        return adapter

    forgotten = {"reset_equals_new": "reset forgets what was seen before, too"}
    check_adapter(filled, except_for=forgotten)
    check_adapter(partial(create_adapter, "point-cache", local_features=0, order="predict-first"))


def test_samples_need_as_many_patches_as_are_kept():
    stream = clip_like_stream(1, classes=3, dim=8, count=4)
    with pytest.raises(InvalidSamples, match=r"keeps 30 local features, but the samples have 20 patches"):
        PointCache(stream.classifier, local_features=30).step(with_views(stream, 2))
    PointCache(stream.classifier, local_features=0).step(Samples(stream.features))


def test_an_evaluation_shows_the_stream_in_another_order_first_and_says_so():
    data = feature_file(60, scale=5.0)
    (plain,) = evaluate(data, {"point-cache": {"local_features": 0}}, [1])
    (filled,) = evaluate(data, {"point-cache": {"local_features": 0, "prefill": True}}, [1])
    assert plain.run.remarks == []
    assert filled.record()["remarks"] == [
        "point-cache saw 60 samples before it answered the first; online methods do not"
    ]
    assert not np.array_equal(plain.run.confidences, filled.run.confidences)
    assert (plain.run.order == filled.run.order).all()


def test_a_live_classifier_cannot_see_samples_before_they_come():
    with pytest.raises(InvalidParameter, match="needs the whole stream before it predicts; use pta eval"):
        Classifier("embedded", ["coat", "bag"], method="point-cache", prefill=True, cache=None)


def test_pta_on_top_of_it_shows_it_the_stream_too():
    base = {"base": "point-cache", "base_parameters": {"local_features": 0, "prefill": True}}
    (one,) = evaluate(feature_file(30), {"combined": base}, [1])
    assert len(one.run.remarks) == 1
