"""Segments: stretches of stream that are summarised apart, put together, applied, and left out again."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracle import TOLERANCES, assert_agrees
from streams import clip_like_stream, cuts, rules, streams

from pta import PTA, Segment, compose, load_adapter
from pta.errors import StateMismatch, UnreadableFile

EXACTLY = {torch.float32: 1e-5, torch.float64: 1e-12}  # of numbers below one
DTYPES = pytest.mark.parametrize("dtype", EXACTLY, ids=str)


def compose_in_some_order(segments, data):
    """One segment of all, by composing neighbours in a drawn order."""
    segments = list(segments)
    while len(segments) > 1:
        i = data.draw(st.integers(0, len(segments) - 2), label="compose with the next")
        segments[i : i + 2] = [compose(segments[i], segments[i + 1])]
    return segments[0]


def copy_of(adapter):
    return {name: tensor.clone() for name, tensor in adapter.state().items()}


def assert_unchanged(adapter, before):
    for name, tensor in adapter.state().items():
        assert torch.equal(tensor, before[name]), name


class Split:
    """A drawn stream whose beginning was stepped through and whose rest is summarised in a few segments."""

    def __init__(self, data, dtype, **fixed_switches):
        self.stream = data.draw(streams()).to(dtype)
        self.rule = data.draw(rules(**fixed_switches))
        features = self.stream.features
        start = data.draw(st.integers(0, len(features) - 1), label="start")
        self.beginning, self.rest = features[:start], features[start:]
        self.pieces = [self.rest[piece] for piece in data.draw(cuts(len(self.rest)))]
        self.segments = [self.adapter().summarise(piece) for piece in self.pieces]

    def adapter(self, *stretches):
        """An adapter that has stepped through the stretches."""
        adapter = PTA(self.stream.classifier, **asdict(self.rule))
        for stretch in stretches:
            if len(stretch):
                adapter.step(stretch)
        return adapter

    def applied(self, segment):
        """An adapter that has stepped through the beginning and then learnt the segment."""
        adapter = self.adapter(self.beginning)
        adapter.apply(segment)
        return adapter


# -- what a segment is ------------------------------------------------------------------------------------------------


@DTYPES
@given(st.data())
def test_segments_composed_in_any_order_leave_the_knowledge_of_the_stream(dtype, data):
    split = Split(data, dtype)
    stepped = split.adapter(split.beginning, split.rest)
    applied = split.applied(compose_in_some_order(split.segments, data))
    torch.testing.assert_close(applied.knowledge, stepped.knowledge, atol=EXACTLY[dtype], rtol=0)
    assert torch.equal(applied.touched, stepped.touched)
    assert applied.seen == stepped.seen == len(split.stream.features)


@DTYPES
@given(st.data())
def test_segments_applied_one_after_the_other_are_their_composition(dtype, data):
    split = Split(data, dtype)
    together = split.applied(compose_in_some_order(split.segments, data))
    apart = split.adapter(split.beginning)
    for segment in split.segments:
        apart.apply(segment)
    torch.testing.assert_close(apart.knowledge, together.knowledge, atol=EXACTLY[dtype], rtol=0)


@DTYPES
@given(st.data())
def test_compose_is_associative(dtype, data):
    stream, rule = data.draw(streams()).to(dtype), data.draw(rules())
    adapter = PTA(stream.classifier, **asdict(rule))
    a, b, c = (adapter.summarise(stream.features.roll(shift, dims=0)) for shift in range(3))
    left, right = compose(compose(a, b), c), compose(a, compose(b, c))
    torch.testing.assert_close(left.log_decay, right.log_decay, atol=0, rtol=1e-12)
    torch.testing.assert_close(left.offset, right.offset, atol=EXACTLY[dtype], rtol=0)
    assert left.count == right.count == 3 * len(stream.features)


@DTYPES
@given(st.data())
def test_leaving_a_segment_out_is_the_stream_that_never_had_it(dtype, data):
    split = Split(data, dtype)
    unwanted = data.draw(st.integers(0, len(split.pieces) - 1), label="unwanted")
    del split.pieces[unwanted], split.segments[unwanted]
    applied = split.adapter(split.beginning)
    if split.segments:
        applied = split.applied(compose_in_some_order(split.segments, data))
    without = split.adapter(split.beginning, *split.pieces)
    torch.testing.assert_close(applied.knowledge, without.knowledge, atol=EXACTLY[dtype], rtol=0)


# -- what it leaves of the anchored prototypes ------------------------------------------------------------------------


@DTYPES
@given(st.data())
def test_with_a_fixed_anchor_the_stream_goes_on_from_a_segment_as_if_it_had_stepped_through(dtype, data):
    split = Split(data, dtype, anchor="fixed")
    stepped = split.adapter(split.beginning, split.rest)
    applied = split.applied(compose_in_some_order(split.segments, data))
    torch.testing.assert_close(applied.anchored, stepped.anchored, atol=EXACTLY[dtype], rtol=0)
    features = split.stream.features
    assert_agrees(applied.step(features), stepped.step(features).numpy(), TOLERANCES[dtype])


@DTYPES
@given(st.data())
def test_with_a_recursive_anchor_so_do_the_classes_that_the_segment_does_not_touch(dtype, data):
    split = Split(data, dtype, anchor="recursive")
    stepped = split.adapter(split.beginning, split.rest)
    segment = compose_in_some_order(split.segments, data)
    applied = split.applied(segment)
    rows = segment.log_decay == 0
    tolerance = TOLERANCES[dtype] / 100
    torch.testing.assert_close(applied.anchored[rows], stepped.anchored[rows], atol=tolerance, rtol=0)
    features = split.stream.features
    again, as_stepped = applied.step(features)[:, rows], stepped.step(features)[:, rows]
    torch.testing.assert_close(again, as_stepped, atol=TOLERANCES[dtype], rtol=0)


@DTYPES
@pytest.mark.parametrize("renormalise", [True, False])
@pytest.mark.parametrize("w", [0.0, 0.01, 0.3])
@pytest.mark.parametrize("every", [1, 2])
def test_segments_of_one_sample_lack_nothing_even_between_samples_stepped_through(dtype, renormalise, w, every):
    """Such a segment refreshes once, on the very P that the stream had then."""
    stream = clip_like_stream(1, classes=10, dim=24, count=30).to(dtype)
    stepped, applied = (PTA(stream.classifier, w=w, renormalise=renormalise) for _ in range(2))
    for t, sample in enumerate(stream.features.split(1)):
        stepped.step(sample)
        if t % every == 0:
            applied.apply(applied.summarise(sample))
        else:
            applied.step(sample)
        np.testing.assert_allclose(
            applied.anchored, stepped.anchored, atol=TOLERANCES[dtype] / 100, rtol=0, err_msg=f"sample {t}"
        )


@pytest.mark.parametrize("renormalise", [True, False])
def test_what_a_segment_lacks_with_a_recursive_anchor_fades_with_the_stream(renormalise):
    stream = clip_like_stream(1, classes=10, dim=24, count=60)
    stepped, applied = (PTA(stream.classifier, h=1.0, w=0.1, renormalise=renormalise) for _ in range(2))
    stepped.step(stream.features)
    applied.apply(applied.summarise(stream.features))
    differences = [(applied.anchored - stepped.anchored).abs().max().item()]
    for adapter in (stepped, applied):
        adapter.step(stream.features[:10])
    differences.append((applied.anchored - stepped.anchored).abs().max().item())
    assert differences[0] > 1e-6
    assert differences[1] < 1e-4 * differences[0]


# -- keeping, moving and refusing -------------------------------------------------------------------------------------


@pytest.fixture
def stream():
    return clip_like_stream(2, classes=8, dim=16, count=40).to(torch.float32)


@pytest.fixture
def adapter(stream):
    """One in the middle of a stream."""
    adapter = PTA(stream.classifier)
    adapter.step(stream.features[:20])
    return adapter


@pytest.fixture
def segment(adapter, stream):
    return adapter.summarise(stream.features[20:])


def test_summarise_changes_nothing_and_depends_on_nothing_learnt(adapter, stream):
    before = copy_of(adapter)
    segment = adapter.summarise(stream.features)
    assert_unchanged(adapter, before)
    fresh = PTA(stream.classifier).summarise(stream.features)
    assert torch.equal(segment.log_decay, fresh.log_decay)
    assert torch.equal(segment.offset, fresh.offset)


def test_compose_and_apply_leave_their_segments_as_they_were(adapter, stream, segment):
    before = segment.log_decay.clone(), segment.offset.clone()
    compose(segment, segment)
    adapter.apply(segment)
    adapter.step(stream.features)
    assert torch.equal(segment.log_decay, before[0])
    assert torch.equal(segment.offset, before[1])


@DTYPES
def test_a_saved_segment_comes_back_bit_for_bit(dtype, stream, tmp_path):
    stream = stream.to(dtype)
    segment = PTA(stream.classifier, h=50.0, w=0.25, anchor="fixed").summarise(stream.features)
    segment.save(tmp_path / "segment")
    loaded = Segment.load(tmp_path / "segment")
    for name in ("log_decay", "offset"):
        saved, read = getattr(segment, name), getattr(loaded, name)
        assert saved.dtype == read.dtype
        assert torch.equal(saved, read)
    assert (loaded.count, loaded.rule, loaded.classifier) == (40, segment.rule, segment.classifier)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "segment").read_bytes()


@pytest.mark.parametrize(
    "switch",
    [
        {"h": 50.0},
        {"w": 0.1},
        {"min_probability": 0.2},
        {"anchor": "fixed"},
        {"order": "predict-first"},
        {"weight": "raw"},
        {"renormalise": False},
    ],
    ids=str,
)
def test_a_segment_of_another_rule_is_refused_and_nothing_changes(switch, adapter, segment, stream):
    other = PTA(stream.classifier, **switch).summarise(stream.features)
    before = copy_of(adapter)
    with pytest.raises(StateMismatch, match=next(iter(switch))):
        adapter.apply(other)
    with pytest.raises(StateMismatch, match=next(iter(switch))):
        compose(segment, other)
    assert_unchanged(adapter, before)


@pytest.mark.parametrize(
    "change",
    [
        {"anchors": torch.eye(16)[:8]},
        {"class_names": list("ABCDEFGH")},
        {"scale": 50.0},
        {"bias": -1.0},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_segment_of_another_classifier_is_refused_and_nothing_changes(change, adapter, segment, stream):
    same = {name: getattr(stream.classifier, name) for name in ("anchors", "class_names", "scale", "bias")}
    other = PTA(type(stream.classifier)(**same | change)).summarise(stream.features)
    before = copy_of(adapter)
    with pytest.raises(StateMismatch, match="another classifier"):
        adapter.apply(other)
    with pytest.raises(StateMismatch, match="another classifier"):
        compose(segment, other)
    assert_unchanged(adapter, before)


@pytest.mark.parametrize("kept", [0, 7, 100, -1])
def test_a_truncated_segment_file_is_refused(kept, segment, tmp_path):
    path = tmp_path / "segment"
    segment.save(path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UnreadableFile, match="truncated"):
        Segment.load(path)


def test_a_missing_segment_file_is_named(tmp_path):
    with pytest.raises(UnreadableFile, match="nowhere"):
        Segment.load(tmp_path / "nowhere")


def test_a_state_file_is_no_segment_and_a_segment_file_no_state(adapter, segment, tmp_path):
    adapter.save(tmp_path / "state")
    segment.save(tmp_path / "segment")
    with pytest.raises(UnreadableFile, match="not a segment file"):
        Segment.load(tmp_path / "state")
    with pytest.raises(UnreadableFile, match="not a state file"):
        load_adapter(tmp_path / "segment", adapter.classifier)


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: replace(s, offset=s.offset[:, 1:]),
        lambda s: replace(s, log_decay=s.log_decay[1:]),
        lambda s: replace(s, offset=s.offset.where(s.offset != s.offset.max(), torch.nan)),
        lambda s: replace(s, count=None),
    ],
    ids=["narrow offset", "short decay", "NaN", "no count"],
)
def test_a_damaged_segment_never_reaches_the_state(damage, adapter, segment, tmp_path):
    damage(segment).save(tmp_path / "segment")
    before = copy_of(adapter)
    with pytest.raises((StateMismatch, UnreadableFile)):
        adapter.apply(Segment.load(tmp_path / "segment"))
    assert_unchanged(adapter, before)
