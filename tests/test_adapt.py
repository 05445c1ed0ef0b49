"""ADAPT, online and transductive: the worked example, the loop, and every switch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import clip_like_stream, cuts, streams, toy_stream

from pta import Samples, ZeroShotClassifier
from pta.adapters.adapt import ADAPT, TransductiveADAPT
from pta.adapters.checks import check_adapter
from pta.reference.adapt import adapt_loop, adapt_transductive_loop

PARAMETERS = st.fixed_dictionaries(
    {
        "slots": st.sampled_from([1, 2, 16]),
        "alpha": st.sampled_from([0.9, 0.5]),
        "temperature": st.sampled_from([100.0, 20.0]),
        "count_current": st.sampled_from(["twice", "once"]),
        "similarity": st.sampled_from(["stale", "fresh"]),
        "order": st.sampled_from(["update-first", "predict-first"]),
    }
)


def loop_of(stream, **parameters):
    return adapt_loop(stream.anchors.numpy(), stream.features.numpy(), scale=stream.scale, **parameters)


def test_worked_example():
    toy = toy_stream()
    outputs = ADAPT(toy.classifier, slots=2, temperature=20.0).step(toy.features)
    expected = [[7.72473, 5.75863, 1.54584], [6.05392, 7.86845, 0.0], [0.0, 0.0, 9.80767]]
    np.testing.assert_allclose(outputs, expected, atol=1e-5, rtol=0)


@settings(max_examples=30)
@given(st.data())
def test_adapt_equals_the_loop_on_any_stream_in_any_batches(data):
    stream, parameters = data.draw(streams(max_count=50)), data.draw(PARAMETERS)
    adapter = ADAPT(stream.classifier, **parameters)
    batches = data.draw(cuts(len(stream.features)))
    outputs = torch.cat([adapter.step(stream.features[batch]) for batch in batches])
    np.testing.assert_allclose(outputs, loop_of(stream, **parameters), atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_single_precision_is_near_the_loop(seed):
    stream = clip_like_stream(seed, classes=12, dim=32, count=150, duplicates=0.2).to(torch.float32)
    outputs = ADAPT(stream.classifier, slots=4).step(stream.features)
    expected = loop_of(stream.to(torch.float64), slots=4)
    np.testing.assert_allclose(outputs, expected, atol=2e-3, rtol=0)


@settings(max_examples=30)
@given(
    streams(max_count=50),
    st.sampled_from([1, 2, 6]),
    st.sampled_from([0.9, 0.5]),
    st.sampled_from([100.0, 20.0]),
)
def test_transductive_adapt_equals_the_loop(stream, slots, alpha, temperature):
    parameters = {"slots": slots, "alpha": alpha, "temperature": temperature}
    adapter = TransductiveADAPT(stream.classifier, **parameters)
    outputs = adapter.step(stream.features)
    anchors, features = stream.anchors.numpy(), stream.features.numpy()
    expected = adapt_transductive_loop(anchors, features, scale=stream.scale, **parameters)
    np.testing.assert_allclose(outputs, expected, atol=1e-8, rtol=1e-8)
    assert torch.equal(adapter.predict(stream.features), outputs)


def test_the_defaults_are_those_of_the_loops():
    stream = clip_like_stream(8, classes=3, dim=24, count=120)
    online, whole = ADAPT(stream.classifier), TransductiveADAPT(stream.classifier)
    shared = {"alpha": 0.9, "temperature": 100.0}
    switches = {"count_current": "twice", "similarity": "stale", "order": "update-first"}
    assert online.parameters == {"slots": 16, **shared, **switches}
    assert whole.parameters == {"slots": 6, **shared}
    np.testing.assert_allclose(online.step(stream.features), loop_of(stream), atol=1e-8, rtol=0)
    expected = adapt_transductive_loop(stream.anchors.numpy(), stream.features.numpy(), scale=stream.scale)
    np.testing.assert_allclose(whole.step(stream.features), expected, atol=1e-8, rtol=0)
    assert (online.shares > 0).all()


def test_adapt_obeys_the_laws():
    check_adapter(ADAPT)


def test_adapt_obeys_the_laws_with_every_switch_turned():
    turned = {"order": "predict-first", "similarity": "fresh", "count_current": "once", "slots": 2, "temperature": 20.0}
    check_adapter(lambda classifier: ADAPT(classifier, **turned))


def test_transductive_adapt_obeys_the_laws():
    check_adapter(TransductiveADAPT, except_for={"batch_equals_loop": "an answer depends on the whole set"})


# -- the switches -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "switch", [{"count_current": "once"}, {"order": "predict-first"}, {"slots": 2}, {"alpha": 0.5}], ids=str
)
def test_a_switch_makes_a_difference(switch):
    stream = clip_like_stream(1, classes=6, dim=24, count=80)
    switched = ADAPT(stream.classifier, **switch).step(stream.features)
    assert (switched - ADAPT(stream.classifier).step(stream.features)).abs().max() > 0.1
    np.testing.assert_allclose(switched, loop_of(stream, **switch), atol=1e-8, rtol=0)


def test_the_mean_counts_an_entering_sample_twice_or_once():
    toy = toy_stream()
    sure = toy.features[1:2]  # p = 0.653990 of class 1
    items = torch.cat([toy.features[1:2], torch.nn.functional.normalize(toy.features[1:2] + 0.1 * toy.anchors[1:2])])
    for count_current, weight in (("twice", 2), ("once", 1)):
        adapter = ADAPT(toy.classifier, count_current=count_current)
        adapter.step(sure)
        torch.testing.assert_close(adapter.means[1], 0.9 * items[0] + 0.1 * toy.anchors[1])
        adapter.step(items[1:])
        first, second = (10 * items @ toy.anchors.T).softmax(dim=1)[:, 1]
        mean = (first * items[0] + weight * second * items[1]) / (first + weight * second)
        torch.testing.assert_close(adapter.means[1], 0.9 * mean + 0.1 * toy.anchors[1])


def test_a_sample_that_does_not_enter_is_compared_in_the_place_of_the_last_that_did():
    toy = toy_stream()
    surer, same_class = toy.features[1:2], toy.features[1:2] + 0.02 * toy.features[:1]
    stale, fresh = (ADAPT(toy.classifier, slots=1, similarity=kind) for kind in ("stale", "fresh"))
    for adapter in (stale, fresh):
        adapter.step(surer)
    differs = (stale.step(same_class) - fresh.step(same_class)).abs().max()
    torch.testing.assert_close(stale.last, surer[0])
    assert 1e-6 < differs < 0.1


def test_samples_that_do_not_enter_change_no_state():
    stream = clip_like_stream(2, classes=4, dim=16, count=60)
    adapter = ADAPT(stream.classifier, slots=1)
    adapter.step(stream.features)
    before = adapter.snapshot().tensors
    adapter.step(stream.features)  # nobody is more confident than the most confident
    for name, tensor in adapter.state().items():
        assert name == "seen" or torch.equal(tensor, before[name]), name


def test_before_anything_is_learnt_zero_shot_wins():
    stream = clip_like_stream(3, classes=8, dim=16, count=40)
    outputs = ADAPT(stream.classifier).predict(stream.features)
    assert torch.equal(outputs.argmax(dim=1), stream.classifier.logits(stream.features).argmax(dim=1))


def test_the_same_sample_again_and_again_is_no_spread_and_no_nan():
    toy = toy_stream()
    features = toy.features[:1].repeat(20, 1)
    outputs = ADAPT(toy.classifier, slots=4).step(features)
    assert outputs.isfinite().all()
    np.testing.assert_allclose(outputs, loop_of(toy.__class__(toy.anchors, features, None, 10.0), slots=4), atol=1e-8)


def test_the_winning_class_keeps_its_logit():
    stream = clip_like_stream(4, classes=8, dim=16, count=60)
    outputs, z = ADAPT(stream.classifier).step(stream.features), stream.classifier.logits(stream.features)
    assert (outputs <= z + 1e-9).all()
    assert ((outputs - z).abs().min(dim=1).values < 1e-9).all()


def test_means_of_views_are_stored_unnormalised_with_the_mean_of_their_probabilities():
    views = clip_like_stream(5, classes=8, dim=24, count=6 * 40, in_order=True)
    most_confident = views.features.unflatten(0, (40, 6))
    means = most_confident.mean(dim=1)
    outputs = ADAPT(views.classifier).step(Samples.of(means, most_confident=most_confident, normalise=False))
    expected = adapt_loop(
        views.anchors.numpy(), means.numpy(), scale=views.scale, most_confident=most_confident.numpy()
    )
    np.testing.assert_allclose(outputs, expected, atol=1e-8, rtol=0)
    plain = ADAPT(views.classifier).step(Samples.of(means, normalise=False))
    assert (outputs - plain).abs().max() > 1e-3


@pytest.mark.parametrize("method", [ADAPT, TransductiveADAPT])
def test_a_bias_is_added_and_changes_no_answer(method):
    stream = clip_like_stream(6, classes=6, dim=16, count=30)
    names = [f"class {c}" for c in range(6)]
    plain, biased = (ZeroShotClassifier(stream.anchors, names, scale=30.0, bias=bias) for bias in (0.0, -12.0))
    expected, found = (method(classifier).step(stream.features) for classifier in (plain, biased))
    torch.testing.assert_close(found, expected - 12.0)


def test_forgetting_a_class_leaves_the_covariance_of_the_others():
    stream = clip_like_stream(7, classes=6, dim=16, count=60)
    adapter = ADAPT(stream.classifier)
    adapter.step(stream.features)
    z = stream.classifier.logits(stream.features)
    adapter.reset(classes=[0, 3])
    others = ADAPT(stream.classifier)
    others.step(stream.features[~torch.isin(z.argmax(dim=1), torch.tensor([0, 3]))])
    torch.testing.assert_close(adapter.moments, others.moments)
    assert not adapter.last.any()  # it may have been of a class that is forgotten
    others.last = adapter.last
    torch.testing.assert_close(adapter.predict(stream.features), others.predict(stream.features))
