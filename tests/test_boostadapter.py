"""BoostAdapter: what its views do to TDA's cache, every switch, and the loop of the released program."""

import math
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import clip_like_stream, cuts, defaults, with_views
from torch.nn.functional import normalize

from pta import Samples, ZeroShotClassifier
from pta.adapters.boostadapter import BoostAdapter
from pta.adapters.checks import check_adapter
from pta.adapters.presets import load_preset
from pta.adapters.tda import TDA
from pta.engines.admission import EMPTY
from pta.errors import InvalidSamples
from pta.reference.boostadapter import boostadapter_loop
from pta.reference.tda import tda_loop

SETS = ["imagenet", "imagenet_a", "dtd"]
TOLERANCES = {torch.float64: 1e-9, torch.float32: 2e-3}

PARAMETERS = st.fixed_dictionaries(
    {"delta": st.integers(0, 3), "share": st.sampled_from([0.1, 0.3, 0.5, 1.0])},
    optional={
        "negatives": st.sampled_from(["newest", "most-confident"]),
        "positive_alpha": st.floats(0.0, 5.0),
        "positive_beta": st.floats(0.0, 8.0),
        "positive_slots": st.integers(0, 4),
        "negative_alpha": st.floats(0.0, 2.0),
        "negative_slots": st.integers(0, 3),
        "max_entropy": st.floats(0.3, 1.0),
        "entropy_base": st.sampled_from(["log2", "ln"]),
        "order": st.sampled_from(["update-first", "predict-first"]),
    },
)


def viewed_stream(seed, *, views=20, dtype=torch.float64, **given):
    """A stream and its samples, with views on either side of their classes."""
    stream = clip_like_stream(seed, **{"classes": 8, "dim": 16, "count": 60, "scale": 70.0} | given)
    return stream, with_views(stream.to(dtype), views, noise=0.1, seed=seed)


def loop_of(stream, samples, **parameters):
    arrays = (tensor.double().numpy() for tensor in (stream.anchors, samples.features, samples.views))
    return boostadapter_loop(*arrays, scale=stream.scale, **parameters)


def step_of(stream, samples, **parameters):
    return BoostAdapter(stream.classifier, **parameters).step(samples).numpy()


# -- the loop ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@settings(max_examples=30)
@given(data=st.data(), seed=st.integers(0, 1000), views=st.just(1) | st.integers(10, 24), in_order=st.booleans())
def test_any_batches_give_what_the_loop_gives(dtype, data, seed, views, in_order):
    stream, samples = viewed_stream(seed, views=views, dtype=dtype, in_order=in_order, duplicates=0.1)
    parameters = data.draw(PARAMETERS)
    adapter = BoostAdapter(stream.to(dtype).classifier, **parameters)
    outputs = torch.cat([adapter.step(samples[part]) for part in data.draw(cuts(len(samples)))])
    expected = loop_of(stream.to(dtype), samples, **parameters)
    np.testing.assert_allclose(outputs, expected, rtol=0, atol=TOLERANCES[dtype])


@settings(max_examples=15)
@given(data=st.data(), seed=st.integers(0, 1000), views=st.just(1) | st.integers(10, 24))
def test_answers_and_state_are_the_same_where_numbers_are_not_host_readable(data, seed, views):
    stream, samples = viewed_stream(seed, views=views, duplicates=0.1)
    parameters = data.draw(PARAMETERS)
    reading, other = (BoostAdapter(stream.classifier, **parameters) for _ in range(2))
    for part in data.draw(cuts(len(samples))):
        expected = reading.step(samples[part])
        with patch("pta.engines.admission.is_host_readable", return_value=False):
            torch.testing.assert_close(other.step(samples[part]), expected, rtol=0, atol=1e-9)
    for name, tensor in reading.state().items():
        assert torch.equal(other.state()[name], tensor), name


@settings(max_examples=10)
@given(st.data())
def test_means_of_views_are_cached_and_single_views_boost_them(data):
    stream, samples = viewed_stream(data.draw(st.integers(0, 1000)))
    most_confident = samples.views[:, :6]
    averaged = Samples(most_confident.mean(dim=1), views=samples.views, most_confident=most_confident)
    adapter = BoostAdapter(stream.classifier, delta=2, share=0.3)
    outputs = torch.cat([adapter.step(averaged[part]) for part in data.draw(cuts(len(averaged)))])
    expected = loop_of(stream, averaged, delta=2, share=0.3, most_confident=most_confident.numpy())
    np.testing.assert_allclose(outputs, expected, rtol=0, atol=1e-9)


def test_a_longer_batch_than_is_done_at_once_is_still_one_stream():
    stream, samples = viewed_stream(2, count=150)
    adapter = BoostAdapter(stream.classifier)
    adapter.at_once = 64
    np.testing.assert_allclose(adapter.step(samples), loop_of(stream, samples), rtol=0, atol=1e-9)


def test_defaults_are_those_the_loop_was_written_with():
    assert defaults(BoostAdapter).items() <= defaults(boostadapter_loop).items()


def test_every_law_of_adapters_holds():
    assert len(check_adapter(BoostAdapter)) >= 10
    check_adapter(lambda classifier: BoostAdapter(classifier, delta=1, share=0.4, order="predict-first"))


# -- what the views do ------------------------------------------------------------------------------------------------


def test_too_few_views_to_choose_from_are_refused():
    stream, samples = viewed_stream(3, views=9)
    with pytest.raises(InvalidSamples, match="of 9 views none is chosen"):
        step_of(stream, samples)


def test_with_one_view_it_is_tda_with_the_newest_negatives():
    stream, samples = viewed_stream(3, views=1)
    plain = TDA(stream.classifier).step(samples).numpy()
    assert np.abs(step_of(stream, samples, delta=3) - plain).max() > 0.01
    np.testing.assert_allclose(step_of(stream, samples, delta=3, negatives="most-confident"), plain, rtol=0, atol=1e-12)


def test_six_of_sixty_four_views_boost_by_default():
    stream, samples = viewed_stream(4, views=64, count=20)
    np.testing.assert_allclose(step_of(stream, samples), loop_of(stream, samples), rtol=0, atol=1e-9)
    copies = Samples(samples.features[:1], views=samples.features[:1, None].expand(-1, 64, -1))
    gain = step_of(stream, copies, delta=100, negative_slots=0) - stream.classifier.logits(copies.features).numpy()
    assert gain.max() == pytest.approx(2.0 * (1 + 6))


def test_an_image_and_the_same_view_of_it_are_cached_twice():
    stream, samples = viewed_stream(4, views=10)
    same = Samples(samples.features, views=samples.features[:, None].expand(-1, 10, -1))
    first = step_of(stream, same[:1], negative_slots=0) - stream.classifier.logits(samples.features[:1]).numpy()
    assert sorted(first[0]) == pytest.approx([0.0] * 7 + [2 * 2.0])


def test_views_leave_nothing_behind():
    stream, samples = viewed_stream(5)
    boosted, plain = BoostAdapter(stream.classifier, delta=3, share=0.5), BoostAdapter(stream.classifier, share=0.0)
    assert (boosted.step(samples) - plain.step(samples)).abs().max() > 0.1
    for name, tensor in boosted.state().items():
        assert torch.equal(tensor, plain.state()[name]), name


def test_without_more_slots_views_push_out_what_is_less_confident():
    anchors = torch.eye(2, dtype=torch.float64)
    classifier = ZeroShotClassifier(anchors, ["a", "b"], scale=10.0)
    image, sure = normalize(torch.tensor([[0.8, 0.6], [1.0, 0.1]], dtype=torch.float64))
    sample = Samples(image[None], views=torch.stack([image, sure])[None])
    near = math.exp(-5 * (1 - float(image @ sure)))
    for delta, expected in ((0, 2 * near), (1, 2 * (1 + near)), (2, 2 * (1 + near))):
        adapter = BoostAdapter(classifier, delta=delta, share=0.5, positive_slots=1, negative_slots=0)
        gain = adapter.step(sample) - classifier.logits(sample.features)
        np.testing.assert_allclose(gain, [[expected, 0.0]], atol=1e-12)
        np.testing.assert_allclose(adapter.positive_keys[0, 0], image)


def test_predictions_are_boosted_too():
    stream, samples = viewed_stream(6)
    adapter = BoostAdapter(stream.classifier, delta=2, share=0.3)
    adapter.step(samples)
    plain = TDA(stream.classifier)
    plain.step(samples)
    assert (adapter.predict(samples) - plain.predict(samples)).abs().max() > 0.1


# -- every switch -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "switch",
    [
        {"delta": 2},
        {"share": 0.5},
        {"share": 0.0},
        {"negatives": "most-confident"},
        {"entropy_base": "ln"},
        {"order": "predict-first"},
        {"positive_slots": 1},
        {"negative_slots": 1},
    ],
    ids=str,
)
def test_each_switch_matters_and_as_in_the_loop(switch):
    stream, samples = viewed_stream(7)
    outputs = step_of(stream, samples, **switch)
    np.testing.assert_allclose(outputs, loop_of(stream, samples, **switch), rtol=0, atol=1e-9)
    assert np.abs(outputs - step_of(stream, samples)).max() > 0.01


def test_the_newest_negatives_stay():
    stream, samples = viewed_stream(8, count=100)
    adapter = BoostAdapter(stream.classifier)
    adapter.step(samples)
    p = stream.classifier.logits(samples.features).softmax(dim=1)
    share = torch.special.entr(p).sum(dim=1) / math.log2(8)
    uncertain = (share > 0.2) & (share < 0.5)
    for label in range(8):
        newest = samples.features[uncertain & (p.argmax(dim=1) == label)].flip(0)[:2]
        torch.testing.assert_close(adapter.negative_keys[label][adapter.negative_scores[label] < EMPTY], newest)


def test_the_most_confident_negatives_without_views_are_those_of_the_released_tda():
    stream, samples = viewed_stream(9)
    outputs = step_of(stream, samples, share=0.0, negatives="most-confident")
    expected = tda_loop(stream.anchors.numpy(), samples.features.numpy(), scale=stream.scale)
    np.testing.assert_allclose(outputs, expected, rtol=0, atol=1e-9)


def test_samples_without_views_are_refused():
    stream, samples = viewed_stream(10)
    with pytest.raises(InvalidSamples, match="boostadapter needs views"):
        BoostAdapter(stream.classifier).step(samples.features)


def test_without_a_share_of_the_views_none_are_needed():
    stream, samples = viewed_stream(11)
    plain = BoostAdapter(stream.classifier, share=0.0)
    outputs = plain.step(samples.features)
    np.testing.assert_allclose(outputs, loop_of(stream, samples, share=0.0), rtol=0, atol=1e-9)
    torch.testing.assert_close(plain.predict(samples.features), plain.predict(samples))


def test_the_preset_for_imagenet_needs_no_views_and_the_others_do():
    needs = {name: BoostAdapter.needs_with(load_preset("boostadapter", "paper", name)) for name in SETS}
    assert needs == {"imagenet": {"features"}, "imagenet_a": {"features", "views"}, "dtd": {"features", "views"}}
