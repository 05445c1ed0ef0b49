"""A stream in blocks is the stream: P, R, logits and labels, for every rule, however it is cut and delivered."""

import os
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracle import TOLERANCES, oracle_pta
from streams import clip_like_stream, rules, streams

from pta import PTA, Samples, compose
from pta.cluster import (
    Block,
    BlockSummary,
    boundary,
    contraction,
    cut,
    error_bounds,
    mismatches,
    repair_block,
    replay_block,
    run_blocks,
    scan,
    start_of,
    summarise_block,
)
from pta.cluster.blocks import loop
from pta.cluster.blocks.replay import at_state
from pta.cluster.blocks.tasks import ThisProcess
from pta.data.features import load_features
from pta.engines.pta.touches import Touches
from pta.errors import InvalidParameter, InvalidSamples, PtaError, StateMismatch
from pta.methods.registry import create_adapter
from pta.methods.wpta import WPTA

FOLDER = os.environ.get("PTA_REAL_FEATURES")
ROUNDING = {torch.float32: 1e-3, torch.float64: TOLERANCES[torch.float64]}  # of logits of size 100
OF_ONE_PROCESS = {torch.float32: 5e-4, torch.float64: TOLERANCES[torch.float64]}  # whose float32 is rounded otherwise
OF_CLIP = 2e-4  # the same in float32, on features of CLIP
EPSILON = 1e-6
SLOW = st.floats(0.0, 0.95)
SUMMED = partial(WPTA, prior="none", calibration="fixed")  # what it learns is sums, and all that it keeps
NO_TOUCH = 1.0


@st.composite
def cases(draw):
    """A stream, an adapter at its start, and how many samples a block has."""
    stream = draw(streams(max_count=150)).to(draw(st.sampled_from([torch.float32, torch.float64])))
    rule = draw(rules(w=draw(SLOW)))
    rule = replace(rule, min_probability=draw(st.sampled_from([rule.min_probability, rule.min_probability, NO_TOUCH])))
    fusion = draw(st.sampled_from(["logits", "probabilities"]))
    count = len(stream.features)
    return stream, PTA(stream.classifier, fusion=fusion, **asdict(rule)), draw(st.integers(-(-count // 64), count))


def twin_states(adapter, blocks, touches):
    """The state of a single stream in float64 with these touches, at the start of each block and after the last."""
    twin = PTA(adapter.classifier.to(dtype=torch.float64), **{**adapter.parameters, "state_dtype": "float64"})
    states = [twin.snapshot().tensors]
    for block in blocks:
        samples = Samples.unchecked(block.features.double())
        own = touches.between(block.start, block.start + block.count)
        twin.step_with_touches(samples, twin.classifier.logits(samples.features), own)
        states.append(twin.snapshot().tensors)
    return states


def apart(one, other):
    return torch.linalg.vector_norm(one["anchored"].double() - other["anchored"].double(), dim=1)


@given(cases())
def test_blocks_are_the_stream_within_the_bound(case):
    stream, adapter, size = case
    dtype, blocks = stream.features.dtype, cut(range(len(stream.features)), Samples(stream.features), size)
    run = run_blocks(adapter, blocks, EPSILON)
    switches = asdict(adapter.rule) | {"fusion": adapter.fusion, "scale": stream.scale}
    touches = Touches.joined([adapter.touches(Samples(block.features)) for block in blocks])
    learned_from = np.zeros((len(stream.features), adapter.classifier.classes))
    learned_from[touches.samples, touches.classes] = touches.probabilities
    logits, P, _ = oracle_pta(adapter.classifier.anchors, stream.features, probabilities=learned_from, **switches)
    assert np.abs(run.end["knowledge"].numpy() - P).max() <= EPSILON

    states = [*run.starts, run.end]
    kappas = [contraction(adapter, *work) for work in zip(blocks, run.summaries, run.starts, strict=True)]
    bounds = error_bounds(kappas, [state["touched"] for state in states[1:]], EPSILON)
    rounding = 1e-9 if dtype == torch.float64 else 2e-5
    for state, true, bound in zip(states, twin_states(adapter, blocks, touches), bounds, strict=True):
        assert (apart(state, true) <= bound + rounding).all()
        assert (state["knowledge"].double() - true["knowledge"]).abs().max() <= EPSILON

    alone = adapter.clone().step(Samples(stream.features)).double().numpy()
    doubled = 2 if adapter.fusion == "probabilities" else 1  # two softmaxes move by as much as their largest logit
    for block, start, bound, answers in zip(blocks, run.starts, bounds, run.answers, strict=False):
        rows = slice(block.start, block.start + block.count)
        within = doubled * (ROUNDING[dtype] + stream.scale * float(bound.max()))
        found = at_state(adapter, start).step(Samples(block.features)).double().numpy()
        np.testing.assert_allclose(found, logits[rows], atol=within, rtol=0)
        allowed = doubled * (OF_ONE_PROCESS[dtype] + stream.scale * float(bound.max()))
        np.testing.assert_allclose(found, alone[rows], atol=allowed, rtol=0)
        second, first = np.sort(logits[rows], axis=1)[:, -2:].T
        clear = first - second > 2 * within
        np.testing.assert_array_equal(answers.labels.numpy()[clear], logits[rows].argmax(axis=1)[clear])


@given(cases(), st.data())
def test_segments_compose_in_any_bracketing(case, data):
    stream, adapter, size = case
    blocks = cut(range(len(stream.features)), Samples(stream.features), size)
    parts = [summarise_block(adapter, block).segment for block in blocks]
    while len(parts) > 1:
        at = data.draw(st.integers(0, len(parts) - 2))
        parts[at : at + 2] = [compose(*parts[at : at + 2])]
    adapter.apply(parts[0])
    end = run_blocks(adapter.__class__(stream.classifier, **adapter.parameters), blocks).end
    torch.testing.assert_close(adapter.knowledge, end["knowledge"], atol=EPSILON, rtol=0)


@given(cases(), st.integers(1, 5))
def test_a_scan_in_two_levels_is_the_scan(case, group):
    stream, adapter, size = case
    blocks = cut(range(len(stream.features)), Samples(stream.features), size)
    summaries = [summarise_block(adapter, block) for block in blocks]
    whole = scan(adapter, start_of(adapter), summaries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "GROUP", group)
        work = loop.BlocksInMemory(adapter, blocks)
        end = loop.run_passes(work, ThisProcess(), [0] * len(blocks)).end
    two_levels = [work.get(loop.BEFORE, k) for k in range(len(blocks))]
    torch.testing.assert_close(whole[-1].knowledge.to(end["knowledge"]), end["knowledge"], atol=1e-12, rtol=1e-6)
    for one, other in zip(whole[:-1], two_levels, strict=True):
        assert one.position == other.position
        assert torch.equal(one.touched, other.touched)
        torch.testing.assert_close(one.knowledge, other.knowledge, atol=1e-12, rtol=0)
        if one.unscaled is not None:
            torch.testing.assert_close(one.unscaled, other.unscaled, atol=1e-12, rtol=0)


@pytest.fixture
def stream():
    return clip_like_stream(2, classes=12, dim=24, count=900).to(torch.float32)


@pytest.fixture
def adapter(stream):
    return PTA(stream.classifier)


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def flat(run):
    return [part for answers in run.answers for part in vars(answers).values()] + list(run.end.values())


@pytest.mark.parametrize("epsilon", [1e-6, 0.0])
def test_blocks_and_samples_in_any_order_of_arrival_give_the_same_bits(adapter, stream, epsilon):
    order = torch.randperm(900, generator=torch.Generator().manual_seed(0))
    whole = run_blocks(adapter, cut(range(900), stream.features, 100), epsilon)
    assert same(flat(whole), flat(run_blocks(adapter, cut(order, stream.features[order], 100)[::-1], epsilon)))


def test_a_slow_rule_is_repaired_until_it_is_the_stream_and_said_to_be_sequential(stream):
    adapter = PTA(stream.classifier, h=1000.0, w=0.9)
    blocks = cut(range(900), stream.features, 25)
    run = run_blocks(adapter, blocks)
    stepped = adapter.clone()
    labels = stepped.step(stream.features).argmax(dim=1)
    assert run.rounds > len(blocks) // 2
    assert "sequential by nature" in run.remark
    assert torch.equal(torch.cat([answers.labels for answers in run.answers]), labels)
    torch.testing.assert_close(run.end["anchored"], stepped.anchored, atol=1e-5, rtol=0)


def test_the_usual_rule_repairs_little_and_says_nothing(adapter, stream):
    run = run_blocks(adapter, cut(range(900), stream.features, 300))
    assert run.rounds <= 1
    assert run.remark is None


@pytest.mark.parametrize("summary_keeps_touches", [True, False])
def test_a_repair_brings_a_wrong_start_to_what_the_block_before_ends_with(stream, summary_keeps_touches):
    adapter = PTA(stream.classifier, w=0.5)
    first, then = cut(range(900), stream.features, 450)
    summaries = [summarise_block(adapter, block) for block in (first, then)]
    before = scan(adapter, start_of(adapter), summaries)
    _, end = replay_block(adapter, first, summaries[0], boundary(adapter, before[0], None))
    right = boundary(adapter, before[1], (before[0], summaries[0]))
    wrong = {**right, "anchored": right["anchored"].clone()}
    wrong["anchored"][[2, 5]] = right["anchored"][[7, 8]]
    assert mismatches(end, wrong).tolist() == [2, 5]
    answers, wrong_end = replay_block(adapter, then, summaries[1], wrong)
    summary = summaries[1] if summary_keeps_touches else replace(summaries[1], touches=None)
    repaired = repair_block(adapter, then, summary, wrong, wrong_end, end)
    assert 0 < repaired.rows < 450
    again, _ = replay_block(adapter, then, summary, repaired.start, repaired.rows)
    expected, expected_end = replay_block(adapter, then, summaries[1], right)
    assert torch.equal(answers.starting_with(again).labels, expected.labels)
    torch.testing.assert_close(answers.starting_with(again).probabilities, expected.probabilities, atol=1e-4, rtol=0)
    torch.testing.assert_close(repaired.end["anchored"], expected_end["anchored"], atol=1e-5, rtol=0)


def test_a_block_that_is_repaired_again_and_again_ends_within_half_of_epsilon_of_its_start(stream):
    adapter = PTA(stream.to(torch.float64).classifier, h=100.0, w=0.9)
    adapter.step(stream.features[:300])
    block = cut(range(200), stream.features[300:500].double(), 200)[0]
    summary, first = summarise_block(adapter, block), boundary(adapter, start_of(adapter), None)
    kappa = contraction(adapter, block, summary, first)
    start, path, end = first, first, replay_block(adapter, block, summary, first)[1]
    for _ in range(7):
        before = {**start, "anchored": start["anchored"].clone()}
        before["anchored"][kappa.argmax(), 3] += 0.4 * EPSILON / kappa.max()
        repaired = repair_block(adapter, block, summary, path, end, before)
        start, path, end = repaired.start, repaired.path, repaired.end
        assert not len(mismatches(before, start))
        assert (apart(end, replay_block(adapter, block, summary, start)[1]) <= EPSILON / 2).all()
    back = repair_block(adapter, block, summary, path, end, path)
    assert same(back.start.values(), path.values())
    assert same(back.end.values(), end.values())


@pytest.mark.parametrize("make", [PTA, partial(SUMMED, refresh_every=64)])
def test_a_stream_goes_on_from_a_state_and_skips_what_could_not_be_read(make, stream):
    adapter, failed = make(stream.classifier), [3, 200, 201, 599, *range(300, 330)]
    adapter.step(stream.features[:300])
    stepped, kept = adapter.clone(), [number for number in range(600) if number not in failed]
    expected = stepped.step(stream.features[300:][kept])
    run = run_blocks(adapter, cut(kept, stream.features[300:][kept], 30, failed))
    assert torch.cat([answers.numbers for answers in run.answers]).tolist() == kept
    assert len(run.answers[10].numbers) == 0  # a block that could not be read at all
    assert torch.equal(torch.cat([answers.labels for answers in run.answers]), expected.argmax(dim=1))
    for name, tensor in stepped.state().items():
        if name != "resting":
            torch.testing.assert_close(run.end[name], tensor, atol=1e-4 if name == "squares" else 1e-6, rtol=1e-4)
    at_state(adapter, run.end)


@pytest.mark.parametrize("size", [1, 63, 64, 100, 900])
def test_sums_in_blocks_are_the_stream_wherever_refreshes_fall(stream, size):
    adapter = SUMMED(stream.classifier, refresh_every=64)
    stepped = adapter.clone()
    logits = stepped.step(stream.features[:300])
    run = run_blocks(adapter, cut(range(300), stream.features[:300], size))
    assert torch.equal(torch.cat([answers.labels for answers in run.answers]), logits.argmax(dim=1))
    probabilities = stepped.probabilities(logits).amax(dim=1)
    torch.testing.assert_close(
        torch.cat([answers.probabilities for answers in run.answers]), probabilities, atol=1e-4, rtol=0
    )
    torch.testing.assert_close(run.end["gram"], stepped.gram)


@pytest.mark.parametrize(
    ("name", "parameters", "complaint"),
    [
        ("tda", {}, "tda has no summary"),
        ("combined", {}, "combined has no summary"),
        (
            "wpta",
            {},
            "wpta with prior=local, calibration=matched .* choose prior=none, calibration=fixed, or give --by",
        ),
        ("wpta", {"prior": "none", "calibration": "fixed", "depth": 2}, "choose depth=1"),
        ("pta", {"calibration": "matched"}, "choose calibration=fixed"),
        ("pta", {"prior": "local"}, "choose prior=none"),
        ("pta", {"state_dtype": "float16"}, "choose state_dtype=float32"),
    ],
)
def test_a_method_without_a_summary_is_refused_for_one_stream(stream, name, parameters, complaint):
    adapter = create_adapter(name, stream.classifier, **parameters)
    with pytest.raises(InvalidParameter, match=complaint):
        run_blocks(adapter, cut(range(900), stream.features))


@pytest.mark.parametrize(
    ("numbers", "failed", "complaint"),
    [
        ([0, 1, 3, 4], [], "sample 2 is missing"),
        ([0, 1, 1, 2, 3], [], "sample 1 comes twice"),
        ([0, 1, 2], [2, 3], "sample 2 comes twice"),
        ([0, 1, 2, 7], [], "sample 7 is not in the block of samples 0…3"),
        ([0.0, 1.0, 2.0, 3.0], [], "whole numbers"),
    ],
)
def test_numbers_that_are_missing_or_come_twice_are_refused_by_the_first(numbers, failed, complaint):
    count = 4 if 4 not in numbers else 5
    with pytest.raises(InvalidSamples, match=complaint):
        Block.of(0, count, numbers, torch.eye(8)[: len(numbers)], failed)


def test_blocks_with_a_gap_or_an_overlap_are_refused(adapter, stream):
    blocks = cut(range(900), stream.features, 300)
    with pytest.raises(InvalidSamples, match="sample 300 is missing"):
        run_blocks(adapter, [blocks[0], blocks[2]])
    with pytest.raises(InvalidSamples, match="sample 300 comes twice"):
        run_blocks(adapter, [*blocks, blocks[1]])


def test_features_without_a_direction_are_refused_in_a_block(stream):
    features = stream.features.clone()
    features[5, 0] = torch.nan
    with pytest.raises(InvalidSamples, match="row 5"):
        Block.of(0, 900, range(900), features)
    with pytest.raises(InvalidSamples, match="900 numbers for 899"):
        Block.of(0, 900, range(900), stream.features[1:])


@pytest.mark.parametrize("make", [PTA, partial(SUMMED, refresh_every=64)])
def test_a_summary_comes_back_from_its_bytes(make, stream):
    adapter, block = make(stream.classifier), cut(range(900), stream.features)[0]
    summary = summarise_block(adapter, block)
    content = summary.to_bytes()
    back = BlockSummary.of_bytes(content)
    assert back.to_bytes() == content
    start = boundary(adapter, start_of(adapter), None)
    one, other = (replay_block(adapter, block, each, start)[0] for each in (summary, back))
    assert same(vars(one).values(), vars(other).values())


def test_a_damaged_summary_is_refused(adapter, stream):
    block = cut(range(900), stream.features)[0]
    summary = summarise_block(adapter, block)
    content = summary.to_bytes()
    for damaged in (b"", content[:100], content[:-1], content.replace(b'version\\": 2', b'version\\": 3')):
        with pytest.raises(PtaError):
            BlockSummary.of_bytes(damaged)
    with pytest.raises(StateMismatch, match="summary version 7"):
        BlockSummary.of_bytes(content.replace(b'\\"version\\": 1', b'\\"version\\": 7'))
    touches = summary.touches
    for wrong in (
        replace(touches, probabilities=touches.probabilities * np.nan),
        replace(touches, count=5),
        replace(touches, classes=touches.classes + 12),
    ):
        with pytest.raises(StateMismatch):
            replace(summary, touches=wrong)
    for counts in ({"learned": 899}, {"count": 10}, {"start": -1}, {"start": 0.5}):
        with pytest.raises(StateMismatch):
            replace(summary, **counts)


def test_summaries_of_something_else_are_refused(adapter, stream):
    block, other = cut(range(900), stream.features, 450)
    summary = summarise_block(adapter, block)
    with pytest.raises(StateMismatch, match="not Rule"):
        scan(PTA(stream.classifier, h=5.0), start_of(adapter), [summary])
    with pytest.raises(StateMismatch, match="another block"):
        replay_block(adapter, other, summary, adapter.state())
    sums = SUMMED(stream.classifier)
    different = summarise_block(SUMMED(stream.classifier, ridge=0.5), block)
    with pytest.raises(StateMismatch, match="other parameters"):
        scan(sums, start_of(sums), [different])


@pytest.mark.skipif(not FOLDER, reason="PTA_REAL_FEATURES is not set")
@pytest.mark.parametrize("parameters", [{}, {"h": 1000.0}, {"w": 0.3}, {"variant": "paper"}], ids=str)
def test_real_features_in_blocks_have_the_labels_of_the_stream(parameters):
    file = load_features(Path(FOLDER, "stanford_cars_val.npz"))
    adapter, features = PTA(file.classifier, **parameters), file.samples.features
    blocks = cut(range(len(features)), file.samples, 200)
    run = run_blocks(adapter, blocks)
    logits = adapter.clone().step(file.samples)
    found = [
        at_state(adapter, start).step(Samples(block.features)) for start, block in zip(run.starts, blocks, strict=True)
    ]
    torch.testing.assert_close(torch.cat(found), logits, atol=OF_CLIP, rtol=0)
    best = logits.topk(2, dim=1).values
    clear = best[:, 0] - best[:, 1] > 2 * OF_CLIP
    labels = torch.cat([answers.labels for answers in run.answers])
    assert torch.equal(labels[clear], logits.argmax(dim=1)[clear])
