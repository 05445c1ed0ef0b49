"""Scores and answers of samples: those of float64, with bits that no batch changes, with and without numba."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from streams import RELEASED_RULE, clip_like_stream, is_clear, samples_on_either_side_of, streams

from pta import ZeroShotClassifier
from pta.engines.gpu import processors
from pta.engines.sample_scores import describe_logits, score_samples


@pytest.fixture(params=[True, False], ids=["numba", "no numba"], autouse=True)
def _compiler(request):
    if request.param:
        pytest.importorskip("numba")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processors, "numba_is_installed", lambda: request.param)
        yield


def columns(count):
    """Labels, probabilities and entropies to be filled."""
    return np.zeros(count, np.int32), np.zeros(count, np.float32), np.zeros(count, np.float32)


def bits(unit, classifier, rule=RELEASED_RULE):
    """All that is found of samples, as bytes of each."""
    own, other = columns(len(unit)), columns(len(unit))
    logits, touches = score_samples(unit, classifier, rule, own)
    chances = describe_logits(torch.from_numpy(logits), 0.5, other)
    touched = [(touches.classes[a:b], touches.probabilities[a:b]) for a, b in pairwise(touches.begin)]
    rows = zip(logits, chances, *own, *other, touched, strict=True)
    return [b"|".join(part.tobytes() for part in (*parts, *touch)) for *parts, touch in rows]


def elsewhere(rows, offset):
    """The same numbers in memory that begins at another place."""
    memory = np.empty(rows.size + offset, rows.dtype)
    memory[offset:] = rows.reshape(-1)
    return memory[offset:].reshape(rows.shape)


def rows_of(stream):
    return stream.features.float().numpy()


@pytest.mark.parametrize("shape", [(2, 8), (3, 5), (7, 13), (37, 64), (50, 67)], ids=str)
def test_the_bits_of_a_sample_do_not_depend_on_its_batch_and_place(shape):
    classes, dim = shape
    stream = clip_like_stream(1, classes=classes, dim=dim, count=256, scale=20.0)
    unit, classifier = rows_of(stream), stream.to(torch.float32).classifier
    alone = [bits(row[None], classifier)[0] for row in unit]
    random = np.random.default_rng(0)
    for size in range(1, 257):
        first, offset = random.integers(0, [257 - size, 16])
        assert bits(elsewhere(unit[first : first + size], offset), classifier) == alone[first : first + size]


@given(stream=streams(), bias=st.sampled_from([0.0, -3.0]), factor=st.sampled_from([0.5, 1.0]))
def test_scores_touches_and_answers_are_those_of_float64(stream, bias, factor):
    unit, T = rows_of(stream), stream.anchors.float()
    classifier = ZeroShotClassifier(T, [str(number) for number in range(len(T))], stream.scale, bias)
    own = columns(len(unit))
    logits, touches = score_samples(unit, classifier, RELEASED_RULE, own)
    z = stream.scale * unit.astype(np.float64) @ T.double().numpy().T + bias
    np.testing.assert_allclose(logits, z, atol=1e-6 * (stream.scale + abs(bias)), rtol=0)
    p = torch.from_numpy(z).softmax(dim=1)
    if is_clear(stream, RELEASED_RULE):
        found = touches.by_class
        pairs = torch.nonzero(p.T.float() >= RELEASED_RULE.threshold)
        assert [*zip(found.classes, found.samples, strict=True)] == [*map(tuple, pairs.tolist())]
        np.testing.assert_allclose(found.probabilities, p[found.samples, found.classes], rtol=2e-4)
    check_answers(own, logits, 1.0)
    given, spread = columns(len(unit)), torch.from_numpy(factor * logits.astype(np.float64)).softmax(dim=1)
    np.testing.assert_allclose(describe_logits(torch.from_numpy(logits), factor, given), spread, rtol=1e-5, atol=1e-30)
    check_answers(given, logits, factor)


def check_answers(given, logits, factor):
    p = torch.from_numpy(factor * logits.astype(np.float64)).softmax(dim=1)
    np.testing.assert_array_equal(given[0], logits.argmax(axis=1))
    np.testing.assert_allclose(given[1], p.max(dim=1).values, rtol=1e-6)
    np.testing.assert_allclose(given[2], torch.special.entr(p).sum(dim=1), rtol=1e-5, atol=1e-6)


def test_next_to_the_threshold_float64_decides():
    stream = clip_like_stream(4, classes=12, dim=48, count=1).to(torch.float32)
    features = samples_on_either_side_of(float(np.float32(0.1)), stream.anchors, each=40)
    exact = (100 * features.double() @ stream.anchors.double().T).softmax(dim=1)
    _, touches = score_samples(features.numpy(), stream.classifier, RELEASED_RULE, columns(80))
    touched = torch.zeros(80, 12, dtype=torch.bool)
    found = touches.by_class
    touched[found.samples, found.classes] = True
    assert torch.equal(touched, exact.float() >= np.float32(0.1))
    np.testing.assert_allclose(found.probabilities, exact[found.samples, found.classes], rtol=1e-10)


def test_without_a_rule_nothing_is_touched_and_anchors_may_be_float64():
    stream = clip_like_stream(4, classes=12, dim=48, count=30)
    logits, touches = score_samples(rows_of(stream), stream.classifier, None, columns(30))
    assert logits.dtype == np.float32
    assert not len(touches.classes)
    assert touches.begin.tolist() == [0] * 31
