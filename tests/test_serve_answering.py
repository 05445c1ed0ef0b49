"""What a stream of the service learns and answers: the library's step up to rounding, and a replay to the last bit."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from oracle import TOLERANCES, assert_agrees
from serving import learn_rows, same_bits
from streams import RELEASED_RULE, clip_like_stream, cuts, is_clear, rules, streams

from pta import create_adapter
from pta.core.labels import UNKNOWN
from pta.engines.zero_shot import entropy_of
from pta.reference.pta import pta_loop
from pta.serve.streams.answering import StreamState, answer, answer_zero_shot, rounded, samples_from, score
from pta.serve.streams.served_model import rule_of

TOLERANCE = TOLERANCES[torch.float32]
SERVED = [("pta", {}), ("pta", {"state_dtype": "float64"}), ("pta", {"prior": "local"}), ("wpta", {}), ("tda", {})]


def state_of(stream, method="pta", **parameters):
    adapter = create_adapter(method, stream.to(torch.float32).classifier, **parameters)
    return StreamState(adapter, np.zeros(len(stream.anchors), np.int64), 0)


def scored(state, features):
    return score(features, state.adapter.classifier, rule_of(state.adapter))


def is_clear_when_rounded(stream, rule):
    unit = samples_from(rows_of(stream)).features
    return is_clear(replace(stream, anchors=stream.to(torch.float32).classifier.anchors, features=unit), rule)


def rows_of(stream):
    return rounded(stream.features.float().numpy())


def some_labels(stream, seed, share=0.3):
    random = np.random.default_rng(seed)
    labels = random.integers(0, len(stream.anchors), len(stream.features))
    return np.where(random.random(len(labels)) < share, labels, UNKNOWN)


@given(stream=streams(), rule=rules(min_probability=0.1), data=st.data())
def test_learning_again_gives_the_bits_of_the_state_and_any_rule_follows_the_loop(stream, rule, data):
    features, groups = rows_of(stream), data.draw(cuts(len(stream.features)))
    learned, again = state_of(stream, **asdict(rule)), state_of(stream, **asdict(rule))
    answers = []
    for rows in groups:
        batch = scored(learned, features[rows])
        answers.append(learned.learn(batch, rows.stop).logits)
        again.learn_again(features[rows], batch.touches, rows.stop)
    assert same_bits(again.adapter.state(), learned.adapter.state())
    assert again.touches.tolist() == learned.touches.tolist()
    assume(is_clear_when_rounded(stream, rule))
    assert_follows_the_loop(learned.adapter, torch.cat(answers), features, scale=stream.scale, **asdict(rule))


@pytest.mark.parametrize("rule", [{}, {"h": 1.0, "w": 0.0, "renormalise": False}])
@pytest.mark.parametrize("dim", [4, 37])
def test_a_replay_has_the_same_bits_beside_classes_that_only_have_to_be_scored(rule, dim):
    """A product of several rows at a time has other last bits in another company of rows."""
    for in_order, scale in ((True, 20.0), (False, 100.0)):
        stream = clip_like_stream(5, classes=30, dim=dim, count=240, in_order=in_order, scale=scale)
        features = rows_of(stream)
        learned, again = state_of(stream, **rule), state_of(stream, **rule)
        for start in range(0, 240, 24):
            batch = scored(learned, features[start : start + 24])
            learned.learn(batch, start + 24)
            again.learn_again(features[start : start + 24], batch.touches, start + 24)
            assert same_bits(again.adapter.state(), learned.adapter.state())


def assert_follows_the_loop(adapter, logits, features, **switches):
    learned, unit = {}, samples_from(features).features
    T = adapter.classifier.anchors.double().numpy()
    expected = pta_loop(T, unit.double().numpy(), learned=learned, **switches)
    if logits is not None:
        assert_agrees(logits, expected, TOLERANCE)
    np.testing.assert_allclose(adapter.knowledge, learned["P"], atol=TOLERANCE / 100, rtol=0)
    np.testing.assert_allclose(adapter.anchored, learned["R"], atol=TOLERANCE / 100, rtol=0)


@given(stream=streams(), rule=rules(min_probability=0.1), data=st.data(), seed=st.integers(0, 99))
def test_labels_are_learned_as_by_the_loop_and_by_the_step(stream, rule, data, seed):
    assume(is_clear_when_rounded(stream, rule))
    features, labels, parameters = rows_of(stream), some_labels(stream, seed), {**asdict(rule), "label_weight": 0.8}
    state, plain = state_of(stream, **parameters), state_of(stream, **parameters).adapter
    for rows in data.draw(cuts(len(features))):
        learn_rows(state.adapter, features[rows], labels[rows])
        plain.step(samples_from(features[rows]), labels[rows])
    switches = {"labels": labels, "label_weight": 0.8, "scale": stream.scale, **asdict(rule)}
    assert_follows_the_loop(state.adapter, None, features, **switches)
    torch.testing.assert_close(state.adapter.anchored, plain.anchored, atol=TOLERANCE / 100, rtol=0)
    assert state.adapter.position == plain.position


@pytest.mark.parametrize("with_numba", [True, False])
@pytest.mark.parametrize(("method", "parameters"), SERVED, ids=str)
def test_a_stream_of_any_method_agrees_with_the_library_through_resets_and_replays(
    monkeypatch, method, parameters, with_numba
):
    if with_numba:
        pytest.importorskip("numba")
    for module in ("gpu.processors", "pta.step"):
        monkeypatch.setattr(f"pta.engines.{module}.numba_is_installed", lambda: with_numba)
    stream = clip_like_stream(3, classes=12, dim=32, count=300)
    features, library = rows_of(stream), state_of(stream, method, **parameters).adapter
    learned, again = state_of(stream, method, **parameters), state_of(stream, method, **parameters)
    for number, rows in enumerate(np.split(np.arange(300), [1, 2, 40, 41, 100, 270])):
        batch = scored(learned, features[rows])
        now = answer(learned.adapter, batch, learn=False)
        torch.testing.assert_close(now.logits, library.predict(samples_from(features[rows])), atol=TOLERANCE, rtol=0)
        given = learned.learn(batch, number)
        logits = library.step(samples_from(features[rows]))
        torch.testing.assert_close(given.logits, logits, atol=TOLERANCE, rtol=0)
        check_answers(given, library.probabilities(given.logits))
        again.learn_again(features[rows], batch.touches, number)
        if number == 3:
            for one in (learned, again, library):
                one.reset([0, 5, 7])
        if number == 4:
            again = StreamState(again.adapter.clone(), again.touches.copy(), again.sequence)
        assert same_bits(again.adapter.state(), learned.adapter.state())
    assert again.adapter.position == library.position == 300


def check_answers(given, chances):
    np.testing.assert_allclose(given.chances, chances, atol=1e-6)
    assert given.answers["label"].tolist() == given.logits.argmax(dim=1).tolist()
    np.testing.assert_allclose(given.answers["probability"], chances.max(dim=1).values, atol=1e-6)
    np.testing.assert_allclose(given.answers["entropy"], entropy_of(chances), atol=1e-5)


def test_a_group_of_more_samples_than_are_learned_at_once_has_the_bits_of_its_replay():
    stream = clip_like_stream(3, classes=12, dim=32, count=600)
    learned, again = state_of(stream), state_of(stream)
    batch = scored(learned, rows_of(stream))
    logits = learned.learn(batch, 600).logits
    again.learn_again(batch.features, batch.touches, 600)
    assert same_bits(again.adapter.state(), learned.adapter.state())
    expected = state_of(stream).adapter.step(samples_from(batch.features))
    torch.testing.assert_close(logits, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("dim", [33, 512])
def test_the_scores_of_a_group_are_those_of_its_parts(dim):
    stream = clip_like_stream(3, classes=12, dim=dim, count=60)
    state, features = state_of(stream), rows_of(stream)
    whole = scored(state, features)
    for rows in (*np.split(np.arange(60), [1, 7, 30]), np.arange(0, 60, 3)):
        for one, other in zip(whole.take(rows), scored(state, features[rows]), strict=True):
            assert one == other if isinstance(one, list) else one.tobytes() == other.tobytes()


def test_zero_shots_answer_is_the_softmax_of_its_logits():
    stream = clip_like_stream(3, classes=12, dim=32, count=20).to(torch.float32)
    batch = score(rows_of(stream), stream.classifier, RELEASED_RULE)
    given = answer_zero_shot(stream.classifier, batch)
    np.testing.assert_allclose(given.chances, given.logits.double().softmax(dim=1), atol=1e-6)
    assert given.answers is batch.answers
