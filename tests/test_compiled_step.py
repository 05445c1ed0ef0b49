"""The compiled step for one sample: the rule of the oracle and of the other engines, or nothing at all."""

import sys
from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from oracle import TOLERANCES, assert_agrees, oracle_pta
from streams import PAPER_RULE, RELEASED_RULE, clip_like_stream, is_clear, rules, samples_on_either_side_of, streams

from pta import PTA, Samples, ZeroShotClassifier, create_adapter
from pta.engines.pta.rule import Rule
from pta.engines.pta.step import CompiledStep
from pta.errors import InvalidSamples
from pta.methods import Adapter

numba = pytest.importorskip("numba")
DTYPES = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)


@pytest.fixture
def taken(monkeypatch):
    """For each call of the compiled step whether it took the sample."""
    answers, step = [], CompiledStep.__call__

    def recorded(compiled, samples):
        logits = step(compiled, samples)
        answers.append(logits is not None)
        return logits

    monkeypatch.setattr(CompiledStep, "__call__", recorded)
    return answers


def pta_of(stream, rule=RELEASED_RULE, bias=0.0):
    names = [f"class {number}" for number in range(len(stream.anchors))]
    return PTA(ZeroShotClassifier(stream.anchors, names, stream.scale, bias), **asdict(rule))


def step_one_by_one(step, features):
    return torch.cat([step(feature) for feature in features.split(1)])


def plainly(adapter):
    """The step without compiled code."""
    return lambda samples: Adapter.step(adapter, samples)


def assert_same_state(adapter, expected):
    tolerance = TOLERANCES[adapter.anchored.dtype] / 100
    for name, tensor in adapter.state().items():
        if name != "resting":  # whether an anchor has arrived is a matter of rounding
            torch.testing.assert_close(tensor, expected.state()[name], atol=tolerance, rtol=1e-9, msg=name)


# -- the rule ---------------------------------------------------------------------------------------------------------


@given(stream=streams(), rule=rules())
@DTYPES
def test_the_compiled_step_follows_the_oracle_for_every_rule(dtype, stream, rule):
    stream = stream.to(dtype)
    assume(is_clear(stream, rule))
    expected, P, R = oracle_pta(stream.anchors, stream.features, scale=stream.scale, fusion="logits", **asdict(rule))
    adapter, tolerance = pta_of(stream, rule), TOLERANCES[dtype]
    assert_agrees(step_one_by_one(adapter.step, stream.features), expected, tolerance)
    np.testing.assert_allclose(adapter.knowledge, P, atol=tolerance / 100, rtol=0)
    np.testing.assert_allclose(adapter.anchored, R, atol=tolerance / 100, rtol=0)


@given(stream=streams(), rule=rules(), compiled=st.lists(st.booleans(), min_size=80, max_size=80))
@DTYPES
def test_compiled_and_other_steps_take_over_from_each_other(dtype, stream, rule, compiled):
    stream = stream.to(dtype)
    mixed, plain = pta_of(stream, rule), pta_of(stream, rule)
    for feature, is_compiled in zip(stream.features.split(1), compiled, strict=False):
        logits = (mixed.step if is_compiled else plainly(mixed))(feature)
        torch.testing.assert_close(logits, plainly(plain)(feature), atol=TOLERANCES[dtype], rtol=0)
    assert_same_state(mixed, plain)


@pytest.mark.parametrize("order", ["update-first", "predict-first"])
@pytest.mark.parametrize("rule", [RELEASED_RULE, PAPER_RULE], ids=["released", "paper"])
@DTYPES
def test_all_samples_are_compiled_also_with_a_bias(taken, dtype, rule, order):
    stream = clip_like_stream(1, classes=10, dim=24, count=300, scale=30.0).to(dtype)
    rule = Rule(**asdict(rule) | {"order": order})
    compiled, plain = pta_of(stream, rule, bias=-3.0), pta_of(stream, rule, bias=-3.0)
    logits = step_one_by_one(compiled.step, stream.features)
    assert taken == [True] * 300
    expected = step_one_by_one(plainly(plain), stream.features)
    torch.testing.assert_close(logits, expected, atol=TOLERANCES[dtype], rtol=0)
    assert_same_state(compiled, plain)


@pytest.mark.parametrize("switches", [{"w": 0.0}, {"w": 0.01, "renormalise": False}], ids=str)
def test_a_class_that_was_hardly_touched_is_followed_like_any_other(switches):
    stream = clip_like_stream(5, classes=3, dim=16, count=60, scale=300.0)
    rule = Rule(**asdict(RELEASED_RULE) | {"min_probability": 0.0, "h": 1e9} | switches)
    compiled, plain = pta_of(stream.to(torch.float32), rule), pta_of(stream, rule)
    logits = step_one_by_one(compiled.step, stream.features.float())
    expected = step_one_by_one(plainly(plain), stream.features)
    torch.testing.assert_close(logits.double(), expected, atol=6e-3, rtol=0)


@pytest.mark.parametrize("renormalise", [True, False])
@DTYPES
def test_a_class_rests_when_its_anchor_has_arrived_until_it_is_touched_again(dtype, renormalise):
    anchors = torch.eye(3, dtype=dtype)
    adapter = PTA(ZeroShotClassifier(anchors, ["a", "b", "c"]), w=0.2, h=1.0, renormalise=renormalise)
    *near_b, near_c = torch.tensor([[0.1, 1.0, 0.3], [0.3, 1.0, 0.1], [0.1, 0.0, 1.0]], dtype=dtype).split(1)
    for feature in near_b:
        adapter.step(feature)
        assert not adapter.resting[1]
        for _ in range(40):
            adapter.step(near_c)
        assert adapter.resting[[0, 1]].all()
        arrived = adapter.knowledge[1] / adapter.knowledge[1].norm()
        within = 3 * adapter.prototypes.arrived_within
        torch.testing.assert_close(adapter.anchored[1], arrived, atol=within, rtol=0)


# -- touches ----------------------------------------------------------------------------------------------------------


def test_next_to_the_threshold_float64_decides(taken):
    stream = clip_like_stream(4, classes=12, dim=48, count=1).to(torch.float32)
    features = samples_on_either_side_of(float(np.float32(0.1)), stream.anchors, each=40)
    exact = (100 * features.double() @ stream.anchors.double().T).softmax(dim=1).float() >= np.float32(0.1)
    for feature, expected in zip(features.split(1), exact, strict=True):
        adapter = pta_of(stream)
        adapter.step(Samples(feature))
        assert torch.equal(adapter.touched, expected)
    assert taken == [True] * 80


# -- what is given and what is kept -----------------------------------------------------------------------------------


REFUSED = {
    "zero": torch.zeros(1, 8),
    "too short": torch.full((1, 8), 1e-7),
    "too long": torch.full((1, 8), 1e19),
    "NaN": torch.full((1, 8), torch.nan),
    "Inf": torch.tensor([[torch.inf, *[0.0] * 7]]),
    "another dimension": torch.ones(1, 9),
    "a vector": torch.ones(8),
    "without numbers": torch.ones(1, 8, device="meta"),
    "sparse": torch.ones(1, 8).to_sparse(),
    "flags": torch.ones(1, 8, dtype=torch.bool),
    "a text": "cat",
}


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED)
def test_what_is_refused_is_refused_as_without_compiled_code_and_changes_nothing(given):
    stream = clip_like_stream(3, classes=4, dim=8, count=20).to(torch.float32)
    adapter = pta_of(stream)
    step_one_by_one(adapter.step, stream.features)
    before = adapter.snapshot().tensors
    with pytest.raises(InvalidSamples) as expected:
        Adapter.step(adapter, given)
    with pytest.raises(InvalidSamples) as refusal:
        adapter.step(given)
    assert str(refusal.value) == str(expected.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in adapter.state().items())


KINDS = {
    "longer": lambda f: 7 * f,
    "shorter": lambda f: 1e-3 * f,
    "a mean of views": lambda f: Samples.of(0.9 * f, normalise=False),
    "with a gradient": lambda f: f.clone().requires_grad_(),
    "unchecked, with a gradient": lambda f: Samples.unchecked(f.clone().requires_grad_()),
    "strided": lambda f: torch.stack([f, f], dim=-1)[..., 0],
    "float64": torch.Tensor.double,
    "an array": torch.Tensor.numpy,
    "a list": torch.Tensor.tolist,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_features_of_any_kind_are_learned_as_without_compiled_code(kind):
    stream = clip_like_stream(8, classes=5, dim=16, count=40).to(torch.float32)
    compiled, plain = pta_of(stream), pta_of(stream)
    for feature in stream.features.split(1):
        given, copy = kind(feature), feature.clone()
        torch.testing.assert_close(compiled.step(given), plainly(plain)(given), atol=2e-3, rtol=0)
        assert torch.equal(feature, copy)
    assert_same_state(compiled, plain)


def test_the_step_goes_on_where_the_state_lies_after_it_was_replaced(taken):
    stream = clip_like_stream(9, classes=6, dim=16, count=60).to(torch.float32)
    compiled, plain = pta_of(stream), pta_of(stream)
    for turn, feature in enumerate(stream.features.split(1)):
        if turn == 20:
            compiled.knowledge, compiled.seen = compiled.knowledge.clone(), compiled.seen.clone()
        if turn == 40:
            compiled, plain = compiled.clone(), plain.clone()
            compiled.reset(classes=[1])
            plain.reset(classes=[1])
        torch.testing.assert_close(compiled.step(feature), plainly(plain)(feature), atol=2e-3, rtol=0)
    assert_same_state(compiled, plain)
    assert compiled.position == 60
    assert all(taken)


NOT_COMPILED = {
    "fusion": {"fusion": "probabilities"},
    "precision": {"state_dtype": "float16"},
    "prior": {"prior": "local"},
    "calibration": {"calibration": "matched"},
    "combined": {"base": "clip"},
}


@pytest.mark.parametrize(("reason", "given"), NOT_COMPILED.items(), ids=NOT_COMPILED)
def test_what_is_not_the_rule_alone_is_not_compiled(taken, reason, given):
    stream = clip_like_stream(9, classes=6, dim=16, count=5).to(torch.float32)
    adapter = create_adapter("combined" if reason == "combined" else "pta", stream.classifier, **given)
    step_one_by_one(adapter.step, stream.features)
    assert adapter.position == 5
    assert not taken


def test_without_numba_one_sample_takes_the_other_step(monkeypatch):
    monkeypatch.setattr("pta.engines.pta.step.numba_is_installed", lambda: False)
    monkeypatch.setitem(sys.modules, "pta.engines.pta.numba_loops", None)  # importing it would fail
    stream = clip_like_stream(9, classes=6, dim=16, count=5).to(torch.float32)
    adapter = pta_of(stream)
    step_one_by_one(adapter.step, stream.features)
    assert adapter.position == 5


def test_without_a_folder_of_the_user_alone_every_process_compiles(monkeypatch):
    """As in a container with a read-only file system, for a user who has no home."""
    from pta.door import compiled  # here, because it cannot be imported without numba

    monkeypatch.setattr(compiled, "private_cache", lambda name: None)
    loop = compiled.compiled(nogil=True)(unchanged)
    assert (loop(3), loop.stats.cache_path) == (3, None)


def test_compiled_code_is_kept_in_no_other_folder(monkeypatch, tmp_path):
    from pta.door import compiled

    monkeypatch.setattr(compiled, "private_cache", lambda name: tmp_path / "own")
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path / "shared"))  # NUMBA_CACHE_DIR
    loop = compiled.compiled(nogil=True)(unchanged)
    assert loop(3) == 3
    assert list((tmp_path / "own").rglob("*.nbc"))
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


def test_where_the_own_folder_cannot_be_written_to_nothing_is_kept_beside_the_package(monkeypatch, tmp_path):
    from pta.door import compiled

    (tmp_path / "file").touch()
    monkeypatch.setattr(compiled, "private_cache", lambda name: tmp_path / "file" / "numba")
    loop = compiled.compiled(nogil=True)(unchanged)
    assert (loop(3), loop.stats.cache_path) == (3, None)


def test_where_nothing_is_compiled_loops_run_as_they_are_written(monkeypatch):
    from pta.door import compiled

    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)  # NUMBA_DISABLE_JIT
    assert compiled.compiled(nogil=True)(unchanged) is unchanged


def unchanged(number):
    return number
