"""StatA against the same thing as a plain loop, and what it means."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import clip_like_stream, cuts, streams, toy_stream

from pta import ZeroShotClassifier
from pta.adapters import stata
from pta.adapters.checks import check_adapter
from pta.adapters.stata import StatA
from pta.reference.stata import stata_loop

PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        "alpha": st.sampled_from([0.1, 1.0, 10.0]),
        "counts": st.sampled_from(["hard", "soft"]),
        "neighbours": st.integers(1, 6),
        "iterations": st.integers(0, 4),
        "sweeps": st.integers(1, 6),
        "text_weight": st.sampled_from([0.5, 1.0, 2.0]),
        "neighbour_weight": st.sampled_from([0.0, 0.5, 1.0]),
        "temperature": st.sampled_from([20.0, 50.0, 100.0]),
        "chunked_covariance": st.booleans(),
    },
)
SWITCHES = [
    {"alpha": 0.0},
    {"alpha": 5.0},
    {"counts": "soft"},
    {"neighbours": 1},
    {"iterations": 0},
    {"sweeps": 1},
    {"text_weight": 0.5},
    {"neighbour_weight": 0.0},
    {"temperature": 20.0},
]


def loop_of(stream, **parameters):
    return stata_loop(stream.anchors.numpy(), stream.features.numpy(), scale=stream.scale, **parameters)


def varied_stream(seed=1, count=80, dtype=torch.float64):
    return clip_like_stream(seed, classes=10, dim=24, count=count, scale=40.0).to(dtype)


@pytest.mark.parametrize("counts", ["hard", "soft"])
def test_it_obeys_the_laws_of_adapters(counts):
    held = check_adapter(
        lambda classifier: StatA(classifier, counts=counts),
        except_for={"batch_equals_loop": "answers depend on all samples of the batch, by design"},
    )
    assert "float32_agrees_with_float64" in held


@settings(max_examples=30)
@given(st.data(), streams(max_count=40), PARAMETERS)
def test_every_batch_equals_the_loop_on_it_alone(data, stream, parameters):
    adapter = StatA(stream.classifier, **parameters)
    for batch in data.draw(cuts(len(stream.features), max_cuts=2)):
        part = stream.features[batch]
        expected = stata_loop(stream.anchors.numpy(), part.numpy(), scale=stream.scale, **parameters)
        np.testing.assert_allclose(adapter.step(part), expected, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("counts", ["hard", "soft"])
def test_single_precision_is_near_the_loop(seed, counts):
    stream = varied_stream(seed, dtype=torch.float32)
    found = StatA(stream.classifier, counts=counts).step(stream.features)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, loop_of(stream.to(torch.float64), counts=counts), atol=2e-3, rtol=0)


def test_the_defaults_are_those_of_the_loop():
    stream = varied_stream()
    adapter = StatA(stream.classifier)
    counts = {"counts": "hard", "neighbours": 3, "iterations": 10, "sweeps": 5}
    weights = {"alpha": 1.0, "text_weight": 1.0, "neighbour_weight": 1.0, "temperature": 50.0}
    assert adapter.parameters == {**counts, **weights, "chunked_covariance": True}
    np.testing.assert_allclose(adapter.step(stream.features), loop_of(stream), atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("switch", SWITCHES, ids=str)
def test_each_parameter_does_what_it_does_in_the_loop_and_makes_a_difference(switch):
    stream, few = varied_stream(), {"iterations": 1}  # after more, labels have converged to the same
    found = StatA(stream.classifier, **few | switch).step(stream.features)
    np.testing.assert_allclose(found, loop_of(stream, **few | switch), atol=1e-8, rtol=1e-8)
    assert (found - StatA(stream.classifier, **few).step(stream.features)).abs().max() > 1e-3


@pytest.mark.parametrize("counts", ["hard", "soft"])
@pytest.mark.parametrize("count", range(1, 6))
def test_batches_smaller_than_the_neighbourhood_are_answered(count, counts):
    stream = varied_stream(count=count)
    found = StatA(stream.classifier, counts=counts).step(stream.features)
    np.testing.assert_allclose(found, loop_of(stream, counts=counts), atol=1e-8, rtol=1e-8)


# -- the initial covariance -------------------------------------------------------------------------------------------


def test_batches_of_up_to_2500_samples_do_not_show_the_chunks():
    stream = clip_like_stream(2, classes=3, dim=4, count=2500, scale=20.0)
    released, corrected = (StatA(stream.classifier, iterations=1, chunked_covariance=on) for on in (True, False))
    assert torch.equal(released.step(stream.features), corrected.step(stream.features))


def test_larger_batches_divide_the_covariance_of_early_chunks_again():
    stream = clip_like_stream(2, classes=3, dim=4, count=3000, scale=20.0)
    log_prior = stream.classifier.logits(stream.features).log_softmax(dim=1)
    squares = (stream.features[:, None] - stream.anchors).square()
    first, second = (
        torch.einsum("nc,ncd->d", log_prior[part].exp(), squares[part]) for part in (slice(2500), slice(2500, None))
    )
    released = StatA(stream.classifier)._anchor_variance(stream.features, log_prior)
    corrected = StatA(stream.classifier, chunked_covariance=False)._anchor_variance(stream.features, log_prior)
    torch.testing.assert_close(released, first / 3000**2 + second / 3000)
    torch.testing.assert_close(corrected, (first + second) / 3000)


@pytest.mark.parametrize("chunked", [True, False])
def test_a_chunked_covariance_gives_the_answers_of_the_loop(monkeypatch, chunked):
    monkeypatch.setattr(stata, "_CHUNK", 30)
    stream = varied_stream()
    found = StatA(stream.classifier, chunked_covariance=chunked).step(stream.features)
    np.testing.assert_allclose(found, loop_of(stream, chunked_covariance=chunked, chunk=30), atol=1e-8, rtol=1e-8)
    other = loop_of(stream, chunked_covariance=not chunked, chunk=30)
    assert np.abs(found.numpy() - other).max() > 1e-2


# -- what it means ----------------------------------------------------------------------------------------------------


def test_batches_know_nothing_of_each_other():
    stream = varied_stream()
    adapter = StatA(stream.classifier)
    adapter.step(stream.features[:50])
    after = adapter.step(stream.features[50:])
    assert set(adapter.state()) == {"seen"}
    assert torch.equal(after, StatA(stream.classifier).step(stream.features[50:]))
    assert torch.equal(after, adapter.predict(stream.features[50:]))


def test_an_anchor_worth_any_number_of_samples_is_never_left():
    stream = varied_stream()
    held = StatA(stream.classifier, alpha=1e9, iterations=10, neighbour_weight=0.0).step(stream.features)
    unfitted = StatA(stream.classifier, iterations=0, neighbour_weight=0.0).step(stream.features)
    torch.testing.assert_close(held, unfitted, atol=1e-5, rtol=0)


def test_classes_that_no_sample_is_counted_for_keep_their_anchor():
    stream = clip_like_stream(4, classes=10, dim=24, count=40, present=0.3)
    adapter = StatA(stream.classifier)
    log_z = adapter.step(stream.features)
    sigma0 = torch.full((24,), 0.01, dtype=torch.float64)
    mu, sigma = adapter._gaussians(stream.features, log_z, sigma0)
    absent = torch.bincount(log_z.argmax(dim=1), minlength=10) == 0
    assert 0 < absent.sum() < 10
    torch.testing.assert_close(mu[absent], stream.anchors[absent])
    torch.testing.assert_close(sigma[absent], sigma0.expand_as(sigma[absent]))
    assert (mu[~absent] - stream.anchors[~absent]).abs().max() > 0.01


@pytest.mark.parametrize(
    ("counts", "trust"), [("hard", [2 / 3, 1 / 2, 0]), ("soft", [1.3 / 2.3, 1.1 / 2.1, 0.6 / 1.6])]
)
def test_trust_counts_winners_or_adds_labels(counts, trust):
    z = torch.tensor([[0.6, 0.1, 0.3], [0.5, 0.3, 0.2], [0.2, 0.7, 0.1]], dtype=torch.float64)
    found = StatA(toy_stream().classifier, counts=counts)._trust(z.log())
    torch.testing.assert_close(found, torch.tensor(trust, dtype=torch.float64))


@pytest.mark.parametrize("counts", ["hard", "soft"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_copies_of_one_sample_are_finite_and_agree_on_its_class(dtype, alpha, counts):
    stream = varied_stream(dtype=dtype)
    for count in (1, 2, 3, 20):
        logits = StatA(stream.classifier, alpha=alpha, counts=counts).step(stream.features[:1].expand(count, -1))
        assert logits.isfinite().all()
        assert len(logits.argmax(dim=1).unique()) == 1


@pytest.mark.parametrize("counts", ["hard", "soft"])
def test_a_class_that_nothing_speaks_for_stays_finite(counts):
    stream = clip_like_stream(3, classes=4, dim=16, count=30)
    anchors = torch.cat([stream.anchors, -stream.anchors[:1]])  # 150 and more below the others
    classifier = ZeroShotClassifier(anchors, list("abcde"))
    for features in (stream.features, stream.features.float()):
        logits = StatA(classifier.to(dtype=features.dtype), alpha=0.0, counts=counts).step(features)
        assert logits.isfinite().all()
        assert not (logits.argmax(dim=1) == 4).any()


def test_labels_are_probabilities():
    z = StatA(varied_stream().classifier).step(varied_stream().features).exp()
    torch.testing.assert_close(z.sum(dim=1), torch.ones(80, dtype=torch.float64))


def test_the_order_of_samples_does_not_matter():
    stream, order = varied_stream(), torch.randperm(80, generator=torch.manual_seed(0))
    adapter = StatA(stream.classifier)
    shuffled = adapter.step(stream.features[order])
    torch.testing.assert_close(shuffled, adapter.step(stream.features)[order], atol=1e-8, rtol=0)


def test_a_bias_changes_nothing():
    stream = varied_stream()
    biased = ZeroShotClassifier(stream.anchors, stream.classifier.class_names, stream.scale, bias=-7.0)
    expected = StatA(stream.classifier).step(stream.features)
    torch.testing.assert_close(StatA(biased).step(stream.features), expected, atol=1e-8, rtol=0)


def test_the_worked_stream_is_answered_in_its_classes():
    toy = toy_stream()
    found = StatA(toy.classifier).step(toy.features)
    np.testing.assert_allclose(found, loop_of(toy), atol=1e-8)
    assert found.argmax(dim=1).tolist() == [0, 1, 2]
