"""SCA: the batch form against direct solves, the pseudo-labels, and everything that is uncertain as a switch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import clip_like_stream, cuts, streams, toy_stream

from pta import Samples
from pta.adapters.checks import check_adapter
from pta.adapters.sca import SCA
from pta.engines.recursive_least_squares import learn_least_squares
from pta.errors import InvalidParameter
from pta.reference.sca import pseudo_label, sca_loop

SWITCHES = [
    {"gamma": 1.0},
    {"gamma": 1e-2},
    {"tau": 1.0},
    {"tau": 0.0},
    {"threshold": "fixed"},
    {"threshold": "fixed", "tau": 0.9, "temperature": 2.0},
    {"beta_f": 5.0},
    {"trust": "less-sure"},
    {"cache": "product"},
    {"cache": "product", "gamma": 1.0, "cache_scale": 20.0},
    {"cache_scale": 1.0},
    {"order": "predict-first"},
]


def loop_of(stream, **parameters):
    return sca_loop(stream.anchors.numpy(), stream.features.numpy(), scale=stream.scale, **parameters)


def in_batches(adapter, features, slices):
    return torch.cat([adapter.step(features[part]) for part in slices])


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("switch", [{}, *SWITCHES], ids=str)
def test_the_toy_stream_gives_what_direct_solves_give(switch, size):
    toy = toy_stream()
    adapter = SCA(toy.classifier, **switch)
    outputs = torch.cat([adapter.step(part) for part in toy.features.split(size)])
    np.testing.assert_allclose(outputs, loop_of(toy, **switch), atol=1e-10, rtol=0)


@settings(max_examples=30)
@given(st.data())
def test_any_cut_into_batches_gives_what_direct_solves_give(data):
    stream = data.draw(streams(40))
    parameters = {
        "gamma": 10 ** data.draw(st.floats(-2, 5)),
        "tau": data.draw(st.floats(0, 1)),
        "threshold": data.draw(st.sampled_from(["unsureness", "fixed"])),
        "temperature": data.draw(st.sampled_from([1.0, 0.5, 3.0])),
        "beta_f": data.draw(st.sampled_from([0.0, 0.5, 5.0])),
        "trust": data.draw(st.sampled_from(["surer", "less-sure"])),
        "cache": data.draw(st.sampled_from(["cosine", "product"])),
        "cache_scale": data.draw(st.sampled_from([None, 1.0])),
        "order": data.draw(st.sampled_from(["update-first", "predict-first"])),
    }
    outputs = in_batches(SCA(stream.classifier, **parameters), stream.features, data.draw(cuts(len(stream.features))))
    np.testing.assert_allclose(outputs, loop_of(stream, **parameters), atol=1e-7, rtol=0)


def test_what_is_not_given_is_as_documented():
    stream = clip_like_stream(6, classes=40, dim=16, count=60, scale=10.0)
    np.testing.assert_allclose(SCA(stream.classifier).step(stream.features), loop_of(stream), atol=1e-9, rtol=0)


@settings(max_examples=20)
@given(st.data())
def test_single_precision_is_near_direct_solves(data):
    stream = data.draw(streams(60))
    outputs = in_batches(
        SCA(stream.to(torch.float32).classifier), stream.features, data.draw(cuts(len(stream.features)))
    )
    assert outputs.dtype == torch.float32
    np.testing.assert_allclose(outputs, loop_of(stream), atol=5e-3, rtol=0)


@pytest.mark.parametrize("switch", SWITCHES, ids=str)
def test_a_switch_makes_a_difference(switch):
    stream = clip_like_stream(1, classes=12, dim=24, count=60, scale=30.0)
    switched = SCA(stream.classifier, **switch).step(stream.features)
    assert (switched - SCA(stream.classifier).step(stream.features)).abs().max() > 1e-3


@pytest.mark.parametrize("gamma", [1e4, 1.0, 1e-4])
def test_the_state_is_the_ridge_regression_of_all_samples(gamma):
    stream = clip_like_stream(2, classes=10, dim=16, count=300)
    adapter = SCA(stream.classifier, gamma=gamma)
    in_batches(adapter, stream.features, [slice(0, 7), slice(7, 8), slice(8, 300)])
    f = stream.features
    labels = adapter._pseudo_labels((stream.scale * f @ stream.anchors.T).softmax(dim=1))
    system = f.T @ f + gamma * torch.eye(16, dtype=torch.float64)
    torch.testing.assert_close(adapter.weights.T, torch.linalg.solve(system, f.T @ labels), rtol=1e-7, atol=1e-12)
    torch.testing.assert_close(adapter.inverse, torch.linalg.inv(system), rtol=1e-7, atol=1e-12)
    assert torch.equal(adapter.inverse, adapter.inverse.T)


@pytest.mark.parametrize("order", ["update-first", "predict-first"])
def test_the_engine_gives_each_sample_the_weights_of_its_turn(order):
    random = np.random.default_rng(3)
    f, y = torch.from_numpy(random.normal(size=(20, 6))), torch.from_numpy(random.random((20, 4)))
    inverse, weights = torch.eye(6, dtype=torch.float64) / 2, torch.zeros(4, 6, dtype=torch.float64)
    scores = learn_least_squares(inverse, weights, f, y, order)
    for t in range(20):
        seen = slice(0, t + (order == "update-first"))
        W = torch.linalg.solve(f[seen].T @ f[seen] + 2 * torch.eye(6, dtype=torch.float64), f[seen].T @ y[seen])
        torch.testing.assert_close(scores.products[t], f[t] @ W)
        torch.testing.assert_close(scores.lengths[t], W.norm(dim=0))


def test_a_sure_sample_has_one_label_and_an_unsure_one_several():
    labels = SCA(toy_stream().classifier)._pseudo_labels(
        torch.tensor([[0.9, 0.06, 0.04], [0.3, 0.36, 0.34], [0.3, 0.35, 0.35]], dtype=torch.float64)
    )
    # thresholds 0.05, 0.32 and 0.325: the best class alone reaches each
    assert labels.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0]]
    uniform = torch.full((1, 5), 0.2, dtype=torch.float64)
    five = SCA(clip_like_stream(0, classes=5, dim=8, count=1).classifier)
    assert five._pseudo_labels(uniform).tolist() == [[0.5, 0.5, 0, 0, 0]]  # 0.4 needs two


@given(st.integers(0, 2**32 - 1), st.floats(0, 1), st.sampled_from(["unsureness", "fixed"]))
@settings(max_examples=30)
def test_pseudo_labels_are_distributions_within_the_fewest_classes(seed, tau, threshold):
    p = np.random.default_rng(seed).dirichlet(np.full(9, 0.3))
    adapter = SCA(clip_like_stream(0, classes=9, dim=8, count=1).classifier, tau=tau, threshold=threshold)
    found = adapter._pseudo_labels(torch.from_numpy(p)[None])[0].numpy()
    np.testing.assert_allclose(found, pseudo_label(p, tau, threshold, 1.0), atol=1e-12)
    assert found.sum() == pytest.approx(1.0)
    needed = tau * (1 - p.max()) if threshold == "unsureness" else tau
    assert p[found > 0].sum() >= min(needed, 1) - 2e-12


def test_rounding_does_not_decide_whether_equal_probabilities_reach_the_threshold():
    for classes in range(2, 61):
        p = np.full(classes, 1 / classes)
        expected = np.zeros(classes)
        expected[: classes // 2] = 1 / (classes // 2)  # the fewest k with k/C ≥ (1 − 1/C)/2
        adapter = SCA(clip_like_stream(0, classes=classes, dim=4, count=1).classifier)
        np.testing.assert_allclose(adapter._pseudo_labels(torch.from_numpy(p)[None])[0], expected, atol=1e-15)
        np.testing.assert_allclose(pseudo_label(p, 0.5, "unsureness", 1.0), expected, atol=1e-15)


def test_a_class_that_was_never_a_label_has_cosine_zero():
    stream = clip_like_stream(4, classes=10, dim=16, count=30, present=0.2)
    adapter = SCA(stream.classifier, beta_f=0.0)
    cache = 2 * adapter.step(stream.features) - stream.classifier.logits(stream.features)
    never = ~adapter.weights.any(dim=1)
    assert 0 < never.sum() < 10
    assert cache[:, never].abs().max() < 1e-12
    assert cache[-1, ~never].abs().min() > 1


def test_before_the_first_sample_the_cache_knows_nothing():
    toy = toy_stream()
    z = toy.classifier.logits(toy.features)
    logits = SCA(toy.classifier, beta_f=0.0).predict(toy.features)
    torch.testing.assert_close(logits, z / 2)  # an even mixture of z and zeros


def test_views_give_the_mean_of_their_distributions():
    stream = clip_like_stream(5, classes=8, dim=16, count=6 * 20, in_order=True, scale=30.0)
    views = stream.features.unflatten(0, (20, 6))
    samples = Samples.of(views.mean(dim=1), most_confident=views, normalise=False)
    outputs = SCA(stream.classifier).step(samples)
    parameters = {"scale": stream.scale, "most_confident": views.numpy()}
    expected = sca_loop(stream.anchors.numpy(), views.mean(dim=1).numpy(), **parameters)
    np.testing.assert_allclose(outputs, expected, atol=1e-8, rtol=0)


@pytest.mark.parametrize("parameters", [{}, {"order": "predict-first", "gamma": 1.0}, {"cache": "product"}], ids=str)
def test_sca_obeys_the_laws(parameters):
    check_adapter(lambda classifier: SCA(classifier, **parameters))


def test_a_scale_of_the_cache_is_a_number_or_none():
    classifier = toy_stream().classifier
    assert SCA(classifier, cache_scale=None).cache_scale is None
    for value in (-1.0, "1"):
        with pytest.raises(InvalidParameter, match=f"cache_scale must be a number from 0 to 1e\\+09, got {value!r}"):
            SCA(classifier, cache_scale=value)
