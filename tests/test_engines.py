"""Every engine gives the recurrence of the oracle, wherever the stream is cut and whichever engine takes over."""

import sys
from dataclasses import asdict
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from oracle import TOLERANCES, assert_agrees, oracle_pta
from streams import (
    PAPER_RULE,
    RELEASED_RULE,
    Stream,
    clip_like_stream,
    cuts,
    is_clear,
    rules,
    samples_on_either_side_of,
    streams,
    with_edges,
)

from pta.core.samples import Samples
from pta.engines.gpu.processors import triton_runs_on
from pta.engines.pta.advance import advance
from pta.engines.pta.chunk import advance_by_chunk
from pta.engines.pta.loop import advance_by_loop
from pta.engines.pta.rule import Prototypes, Rule
from pta.engines.pta.step import advance_by_step
from pta.engines.pta.touches import Touches, find_touches
from pta.engines.zero_shot import ZeroShot


def advance_by_single_steps(prototypes, anchors, features, touches, rule):
    cosines = [
        advance_by_step(prototypes, anchors, features[t : t + 1], touches.between(t, t + 1), rule)
        for t in range(len(features))
    ]
    return torch.cat(cosines)


ENGINES = {"loop": advance_by_loop, "step": advance_by_single_steps, "chunk": advance_by_chunk, "picked": advance}
if find_spec("numba"):
    from pta.engines.pta.numba_loops import advance_by_numba

    ENGINES["numba"] = advance_by_numba


@pytest.fixture(scope="module", params=ENGINES)
def engine(request):
    return ENGINES[request.param]


@pytest.fixture(scope="module", params=TOLERANCES, ids=str)
def dtype(request):
    return request.param


def run(stream, rule, probabilities, pieces, engines, state_dtype=None):
    """Cosines of the pieces of a stream, each by its engine on the same state, and the state after the last."""
    prototypes = Prototypes.fresh(stream.anchors.to(state_dtype or stream.anchors.dtype))
    cosines = []
    for piece, engine in zip(pieces, engines, strict=True):
        touches = Touches.of(probabilities[piece], rule)
        cosines.append(engine(prototypes, stream.anchors, stream.features[piece], touches, rule))
    return torch.cat(cosines), prototypes


def assert_like_the_oracle(stream, rule, probabilities, pieces, *choices):
    """With each choice of an engine for every piece."""
    expected, P, R = oracle_pta(
        stream.anchors,
        stream.features,
        scale=stream.scale,
        fusion="logits",
        probabilities=probabilities.numpy(),
        **asdict(rule),
    )
    tolerance = TOLERANCES[stream.anchors.dtype]
    logits = stream.classifier.logits(stream.features)
    for engines in choices:
        cosines, prototypes = run(stream, rule, probabilities, pieces, engines)
        assert_agrees(logits + stream.scale * cosines, expected, tolerance)
        np.testing.assert_allclose(prototypes.knowledge, P, atol=tolerance / 100, rtol=0)
        np.testing.assert_allclose(prototypes.anchored, R, atol=tolerance / 100, rtol=0)


# -- the recurrence ---------------------------------------------------------------------------------------------------


@given(st.data())
def test_engines_and_mixtures_of_them_agree_with_the_oracle_however_the_stream_is_cut(dtype, data):
    stream, rule = data.draw(streams()).to(dtype), data.draw(rules())
    pieces = data.draw(cuts(len(stream.features)))
    names = data.draw(st.lists(st.sampled_from(list(ENGINES)), min_size=len(pieces), max_size=len(pieces)))
    alone = ([engine] * len(pieces) for engine in ENGINES.values())
    assert_like_the_oracle(stream, rule, stream.probabilities, pieces, *alone, [ENGINES[name] for name in names])


@given(stream=streams(), rule=rules(), seed=st.integers(0, 2**32 - 1))
def test_engines_agree_with_the_oracle_at_the_edge_of_the_mask(dtype, stream, rule, seed):
    stream = stream.to(dtype)
    probabilities = with_edges(stream.probabilities, rule, seed)
    assert_like_the_oracle(stream, rule, probabilities, [slice(None)], *([engine] for engine in ENGINES.values()))


@pytest.mark.parametrize("rule", [RELEASED_RULE, PAPER_RULE], ids=["released", "paper"])
def test_an_engine_agrees_with_the_oracle_on_a_stream_of_several_chunks(engine, dtype, rule):
    stream = clip_like_stream(1, classes=10, dim=24, count=300).to(dtype)
    assert_like_the_oracle(stream, rule, stream.probabilities, [slice(None)], [engine])


def test_a_sure_sample_of_raw_weight_replaces_all_that_was_known(engine, dtype):
    stream = clip_like_stream(2, classes=4, dim=8, count=12).to(dtype)
    rule = Rule(**asdict(RELEASED_RULE) | {"weight": "raw"})
    _, prototypes = run(stream, rule, torch.ones(12, 4), [slice(None)], [engine])
    torch.testing.assert_close(prototypes.knowledge, stream.features[-1].expand(4, -1))


@pytest.mark.parametrize("switches", [{"w": 0.0}, {"w": 0.01, "renormalise": False}], ids=str)
@pytest.mark.parametrize("probability", [1e-15, 1e-12, 1e-9])
def test_a_class_that_was_hardly_touched_is_followed_like_any_other(engine, dtype, switches, probability):
    stream = clip_like_stream(5, classes=3, dim=16, count=60).to(dtype)
    probabilities = torch.zeros(60, 3)
    probabilities[:, 0], probabilities[0, 1], probabilities[30, 2] = 1.0, probability, probability
    rule = Rule(**asdict(RELEASED_RULE) | {"min_probability": 0.0, "h": 1000.0} | switches)
    assert_like_the_oracle(stream, rule, probabilities, [slice(0, 40), slice(40, 60)], [engine] * 2)


@pytest.mark.parametrize("count", [20, 40, 98, 99])
def test_an_anchor_that_faded_to_nothing_keeps_its_direction_until_it_is_touched(engine, dtype, count):
    """Without renormalising, 10⁻⁴ to the 40th has a square below float64, and to the 98th is itself below."""
    stream = clip_like_stream(3, classes=3, dim=8, count=count).to(dtype)
    probabilities = torch.zeros(count, 3)
    probabilities[:, 0] = 1.0
    rule = Rule(**asdict(PAPER_RULE) | {"w": 1e-4})
    _, faded = run(stream, rule, probabilities, [slice(None)], [engine])
    torch.testing.assert_close(faded.anchored[1:], stream.anchors[1:], atol=1e-6, rtol=0)

    probabilities[-1, 1] = 1.0
    _, touched = run(stream, rule, probabilities, [slice(None)], [engine])
    torch.testing.assert_close(touched.anchored[1], stream.features[-1], atol=1e-6, rtol=0)
    torch.testing.assert_close(touched.anchored[2], stream.anchors[2], atol=1e-6, rtol=0)


@pytest.mark.parametrize("order", ["update-first", "predict-first"])
def test_an_engine_keeps_the_lengths_and_flags_of_the_loop(engine, order):
    stream = clip_like_stream(6, classes=12, dim=16, count=60, present=0.3, scale=30.0)
    rule = Rule(**asdict(PAPER_RULE) | {"w": 0.3, "min_probability": 0.1, "order": order})
    pieces = [slice(0, 25), slice(25, 60)]
    _, prototypes = run(stream, rule, stream.probabilities, pieces, [engine] * 2)
    _, expected = run(stream, rule, stream.probabilities, pieces, [advance_by_loop] * 2)
    assert 0 < expected.touched.sum() < 12
    assert torch.equal(prototypes.touched, expected.touched)
    torch.testing.assert_close(prototypes.length, expected.length, atol=0, rtol=1e-9)


@pytest.mark.parametrize("renormalise", [True, False])
@pytest.mark.parametrize("name", sorted(ENGINES.keys() - {"loop", "picked"}))
def test_a_class_rests_when_its_anchor_has_arrived_until_it_is_touched_again(name, dtype, renormalise):
    stream = clip_like_stream(7, classes=3, dim=8, count=40).to(dtype)
    rule = Rule(**asdict(RELEASED_RULE) | {"w": 0.2, "h": 1.0, "renormalise": renormalise})
    prototypes, touched = Prototypes.fresh(stream.anchors), torch.tensor([[0.0, 1.0, 0.0]])
    for turn in range(2):
        for rows, touches in ((slice(turn, turn + 1), touched), (slice(2, 40), torch.zeros(38, 3))):
            ENGINES[name](prototypes, stream.anchors, stream.features[rows], Touches.of(touches, rule), rule)
            assert prototypes.resting.tolist() == [True, not touches.any(), True]
        arrived = prototypes.knowledge[1] / prototypes.knowledge[1].norm()
        torch.testing.assert_close(prototypes.anchored[1], arrived, atol=3 * prototypes.arrived_within, rtol=0)


@pytest.mark.parametrize("name", sorted(ENGINES.keys() - {"loop", "picked"}))
def test_without_renormalising_a_class_rests_when_its_length_has_arrived_too(name, dtype):
    stream = clip_like_stream(7, classes=3, dim=8, count=40).to(dtype)
    rule = Rule(**asdict(PAPER_RULE) | {"w": 0.2, "h": 1.0})
    prototypes, touched = Prototypes.fresh(stream.anchors), torch.tensor([[0.0, 1.0, 0.0]])
    along = stream.anchors[1:2]  # a feature along R leaves R where it is, and P shorter than R
    ENGINES[name](prototypes, stream.anchors, along, Touches.of(touched, rule), rule)
    assert prototypes.resting.tolist() == [True, False, True]
    ENGINES[name](prototypes, stream.anchors, stream.features, Touches.of(torch.zeros(40, 3), rule), rule)
    assert prototypes.resting.tolist() == [True, True, True]
    torch.testing.assert_close(prototypes.length[1], prototypes.knowledge[1].double().norm(), atol=0, rtol=1e-6)


@given(st.data())
def test_half_precision_state_does_not_depend_on_where_the_stream_is_cut(data):
    stream, rule = data.draw(streams()).to(torch.float32), data.draw(rules())
    pieces = data.draw(cuts(len(stream.features)))
    inputs = stream, rule, stream.probabilities
    _, whole = run(*inputs, [slice(None)], [advance], torch.float16)
    _, parts = run(*inputs, pieces, [advance] * len(pieces), torch.float16)
    for name, tensor in vars(whole).items():
        assert torch.equal(tensor, getattr(parts, name)), name


def test_batches_of_many_touches_without_numba_are_like_the_oracle(monkeypatch):
    monkeypatch.setattr("pta.engines.gpu.processors.numba_is_installed", lambda: False)
    stream = clip_like_stream(8, classes=20, dim=24, count=70, scale=1.0)
    assert_like_the_oracle(stream, PAPER_RULE, stream.probabilities, [slice(None)], [advance])  # all touch all


# -- touches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("min_probability", [0.1, 0.5, 0.0])
def test_the_threshold_itself_touches_and_the_number_below_it_does_not(min_probability):
    rule = Rule(**asdict(RELEASED_RULE) | {"min_probability": min_probability})
    edge = np.float32(max(min_probability, 1e-15))
    below, above = np.nextafter(edge, np.float32(0)), np.nextafter(edge, np.float32(1))
    touches = Touches.of(torch.tensor(np.array([[below, edge], [above, 0.0]])), rule)
    assert list(zip(touches.samples, touches.classes, strict=True)) == [(1, 0), (0, 1)]
    np.testing.assert_array_equal(touches.probabilities, [above, edge])
    assert touches.count == 2


def touches_of(zero_shot, rule):
    return find_touches(zero_shot, zero_shot.logits, rule)


def pairs(touches):
    return set(zip(touches.samples.tolist(), touches.classes.tolist(), strict=True))


def test_touches_next_to_the_threshold_are_decided_as_float64_would_in_a_batch_or_alone():
    stream = clip_like_stream(4, classes=12, dim=48, count=200).to(torch.float32)
    classifier, rule = stream.classifier, RELEASED_RULE
    near = samples_on_either_side_of(float(np.float32(0.1)), stream.anchors, each=100)
    features = torch.cat([near, stream.features])[torch.randperm(400, generator=torch.Generator().manual_seed(0))]

    batch = pairs(touches_of(ZeroShot(classifier, Samples(features)), rule))
    alone = {
        (t, c)
        for t, f in enumerate(features.split(1))
        for _, c in pairs(touches_of(ZeroShot(classifier, Samples(f)), rule))
    }
    assert batch == alone
    exact = (100 * features.double() @ stream.anchors.double().T).softmax(dim=1).float()
    assert batch == {tuple(pair) for pair in (exact >= np.float32(0.1)).nonzero().tolist()}


def test_a_sample_all_of_whose_touches_are_near_the_threshold_is_decided_as_float64_would():
    random = torch.Generator().manual_seed(0)
    anchors = torch.eye(10)
    features = torch.nn.functional.normalize(1 + 1e-6 * torch.randn(30, 10, generator=random))
    classifier = Stream(anchors, features, torch.zeros(30), 100.0).classifier
    exact = (100 * features.double() @ anchors.double()).softmax(dim=1)
    touches = touches_of(ZeroShot(classifier, Samples(features)), RELEASED_RULE)
    expected = (exact.float() >= np.float32(0.1)).numpy()
    assert 100 < expected.sum() < 200
    assert pairs(touches) == set(zip(*map(np.ndarray.tolist, expected.nonzero()), strict=True))
    np.testing.assert_allclose(touches.probabilities, exact.T[expected.T], rtol=1e-12)


@given(stream=streams(), rule=rules())
def test_touches_are_those_of_float64_for_any_stream(stream, rule):
    stream = stream.to(torch.float32)
    assume(is_clear(stream, rule))
    exact = Stream(stream.anchors.double(), stream.features.double(), stream.labels, stream.scale).probabilities
    zero_shot = ZeroShot(stream.classifier, Samples(stream.features))
    assert pairs(touches_of(zero_shot, rule)) == pairs(Touches.of(exact, rule))


@pytest.mark.parametrize("rule", [RELEASED_RULE, PAPER_RULE], ids=["released", "paper"])
def test_without_numba_batches_take_the_chunk_engine(monkeypatch, rule):
    monkeypatch.setattr("pta.engines.gpu.processors.numba_is_installed", lambda: False)
    monkeypatch.setitem(sys.modules, "pta.engines.pta.numba_loops", None)  # importing it would fail
    stream = clip_like_stream(5, classes=20, dim=24, count=300).to(torch.float32)
    assert_like_the_oracle(stream, rule, stream.probabilities, [slice(None)], [advance])


def test_without_triton_a_gpu_is_not_asked_what_it_can(monkeypatch):
    monkeypatch.setattr("pta.engines.gpu.processors.find_spec", lambda name: None)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: pytest.fail("asked"))
    assert not triton_runs_on.__wrapped__(torch.device("cuda"))
