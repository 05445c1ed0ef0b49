"""TransCLIP against the same thing as a plain loop, and what it means."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import clip_like_stream, streams, toy_stream

from pta import ZeroShotClassifier
from pta.adapters.checks import check_adapter
from pta.adapters.transclip import TransCLIP
from pta.reference.transclip import transclip_loop

PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        "neighbours": st.integers(1, 6),
        "iterations": st.integers(0, 4),
        "sweeps": st.integers(1, 6),
        "text_weight": st.sampled_from([0.5, 1.0, 2.0]),
        "temperature": st.sampled_from([20.0, 50.0, 100.0]),
        "seeds": st.integers(1, 12),
    },
)
SWITCHES = [
    {"neighbours": 1},
    {"iterations": 0},
    {"sweeps": 1},
    {"text_weight": 0.5},
    {"temperature": 20.0},
    {"seeds": 2},
]


def loop_of(stream, **parameters):
    return transclip_loop(stream.anchors.numpy(), stream.features.numpy(), scale=stream.scale, **parameters)


def varied_stream(seed=1, count=80, dtype=torch.float64):
    return clip_like_stream(seed, classes=10, dim=24, count=count, scale=40.0).to(dtype)


def test_it_obeys_the_laws_of_adapters():
    held = check_adapter(TransCLIP, except_for={"batch_equals_loop": "answers depend on all samples of the set"})
    assert "float32_agrees_with_float64" in held


@settings(max_examples=30)
@given(streams(max_count=40), PARAMETERS)
def test_it_equals_the_loop_on_any_set(stream, parameters):
    found = TransCLIP(stream.classifier, **parameters).step(stream.features)
    np.testing.assert_allclose(found, loop_of(stream, **parameters), atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_single_precision_is_near_the_loop(seed):
    stream = varied_stream(seed, dtype=torch.float32)
    found = TransCLIP(stream.classifier).step(stream.features)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, loop_of(stream.to(torch.float64)), atol=1e-3, rtol=0)


def test_the_defaults_are_those_of_the_loop():
    stream = varied_stream()
    adapter = TransCLIP(stream.classifier)
    counts = {"neighbours": 3, "iterations": 10, "sweeps": 5, "seeds": 8}
    assert adapter.parameters == {**counts, "text_weight": 1.0, "temperature": 50.0}
    np.testing.assert_allclose(adapter.step(stream.features), loop_of(stream), atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("switch", SWITCHES, ids=str)
def test_each_parameter_does_what_it_does_in_the_loop_and_makes_a_difference(switch):
    stream, few = varied_stream(), {"iterations": 1}  # after more, labels have converged to the same
    found = TransCLIP(stream.classifier, **few | switch).step(stream.features)
    np.testing.assert_allclose(found, loop_of(stream, **few | switch), atol=1e-8, rtol=1e-8)
    assert (found - TransCLIP(stream.classifier, **few).step(stream.features)).abs().max() > 1e-3


@pytest.mark.parametrize("count", range(1, 10))
def test_sets_smaller_than_the_neighbourhood_or_the_seeds_are_answered(count):
    stream = varied_stream(count=count)
    found = TransCLIP(stream.classifier).step(stream.features)
    np.testing.assert_allclose(found, loop_of(stream), atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sample_alone_gets_its_zero_shot_probabilities(dtype):
    stream = varied_stream(dtype=dtype)
    alone = stream.features[:1]
    expected = stream.classifier.logits(alone).log_softmax(dim=1)
    torch.testing.assert_close(TransCLIP(stream.classifier).step(alone), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [2, 3, 20])
def test_copies_of_one_sample_are_finite_and_agree_on_its_class(dtype, count):
    stream = varied_stream(dtype=dtype)
    logits = TransCLIP(stream.classifier).step(stream.features[:1].expand(count, -1))
    assert logits.isfinite().all()
    assert logits.argmax(dim=1).tolist() == [int(stream.classifier.logits(stream.features[:1]).argmax())] * count


def test_labels_are_probabilities():
    z = TransCLIP(varied_stream().classifier).step(varied_stream().features).exp()
    torch.testing.assert_close(z.sum(dim=1), torch.ones(80, dtype=torch.float64))


def test_the_order_of_samples_does_not_matter():
    stream, order = varied_stream(), torch.randperm(80, generator=torch.manual_seed(0))
    adapter = TransCLIP(stream.classifier)
    shuffled = adapter.step(stream.features[order])
    torch.testing.assert_close(shuffled, adapter.step(stream.features)[order], atol=1e-8, rtol=0)


def test_the_order_of_classes_does_not_matter():
    stream, order = varied_stream(), torch.randperm(10, generator=torch.manual_seed(0))
    other = ZeroShotClassifier(stream.anchors[order], [str(c) for c in order], stream.scale)
    found = TransCLIP(other).step(stream.features)
    torch.testing.assert_close(found, TransCLIP(stream.classifier).step(stream.features)[:, order], atol=1e-8, rtol=0)


def test_a_bias_changes_nothing():
    stream = varied_stream()
    biased = ZeroShotClassifier(stream.anchors, stream.classifier.class_names, stream.scale, bias=-7.0)
    expected = TransCLIP(stream.classifier).step(stream.features)
    torch.testing.assert_close(TransCLIP(biased).step(stream.features), expected, atol=1e-8, rtol=0)


def test_nothing_is_kept():
    stream = varied_stream()
    adapter = TransCLIP(stream.classifier)
    first = adapter.step(stream.features)
    assert set(adapter.state()) == {"seen"}
    assert torch.equal(adapter.step(stream.features), first)
    assert torch.equal(adapter.predict(stream.features), first)


def test_neighbours_decide_where_the_text_cannot():
    right, left = [0.0, 1.0, 0.3], [0.0, 1.0, -0.3]
    near = [[0.03, 1.0, 0.3], [0.0, 1.02, 0.3], [-0.03, 1.0, -0.3], [0.0, 1.02, -0.3]]
    features = torch.tensor([right, left, *near], dtype=torch.float64)
    classifier = ZeroShotClassifier([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]], ["right", "left"])
    assert TransCLIP(classifier).step(features).argmax(dim=1).tolist() == [0, 1, 0, 0, 1, 1]


def test_a_class_that_nothing_speaks_for_stays_finite():
    stream = clip_like_stream(3, classes=4, dim=16, count=30)
    anchors = torch.cat([stream.anchors, -stream.anchors[:1]])  # 150 and more below the others
    classifier = ZeroShotClassifier(anchors, list("abcde"))
    for features in (stream.features, stream.features.float()):
        logits = TransCLIP(classifier.to(dtype=features.dtype)).step(features)
        assert logits.isfinite().all()
        expected = transclip_loop(anchors.numpy(), stream.features.numpy())
        np.testing.assert_allclose(logits, expected, atol=1e-6 if features.dtype == torch.float64 else 1e-2)
    assert not (logits.argmax(dim=1) == 4).any()


def test_the_worked_stream_is_answered_in_its_classes():
    toy = toy_stream()
    found = TransCLIP(toy.classifier).step(toy.features)
    np.testing.assert_allclose(found, loop_of(toy), atol=1e-8)
    assert found.argmax(dim=1)[2] == 2
