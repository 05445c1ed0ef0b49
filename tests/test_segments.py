"""Segments: stretches of stream that are summarised apart, put together, applied, and left out again."""

import math
import re
from dataclasses import asdict, replace
from functools import partial, reduce

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from oracle import oracle_pta
from refusals import unless_refused
from streams import Stream, clip_like_stream, cuts, is_clear, rules, streams
from torch.nn.functional import normalize

from pta import PTA, Segment, ZeroShotClassifier, compose, load_adapter
from pta.door.files import load_tensors, save_tensors
from pta.engines.pta.touches import Touches
from pta.engines.segments import application as segment_application
from pta.engines.segments.affine import AffineMap
from pta.errors import StateMismatch, UnreadableFile

KNOWLEDGE = {torch.float32: 3e-6, torch.float64: 1e-12}  # float32 rounds at every touch
ANCHORED = {torch.float32: 2e-5, torch.float64: 2e-6}  # where `apply` says exact, which it does from 1e-6 on
DTYPES = pytest.mark.parametrize("dtype", KNOWLEDGE, ids=str)


def segment_rules(**fixed):
    """Rules of every kind, with anchors that forget slowly and thresholds that nothing reaches."""
    w = st.just(0.0) | st.floats(1e-4, 0.95)
    smallest = st.sampled_from([0.1, 0.3, 0.0, 0.999])
    return st.builds(lambda rule, **given: replace(rule, **given), rules(**fixed), w=w, min_probability=smallest)


@st.composite
def cancelling_streams(draw):
    """Features and their opposites, which touch the same classes because the scale is small."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dim, count = draw(st.integers(2, 6)), draw(st.integers(2, 200))
    anchors, few = (normalize(torch.from_numpy(random.normal(size=(rows, dim)))) for rows in (3, 2))
    signs = random.choice([-1.0, 1.0], size=count, p=[0.5, 0.5])
    signs = np.sort(signs) if draw(st.booleans(), label="sorted") else signs
    features = few[random.integers(len(few), size=count)] * torch.from_numpy(signs)[:, None]
    return Stream(anchors, features, torch.zeros(count, dtype=torch.int64), 0.3)


def compose_in_some_order(segments, data):
    """One segment of all, by composing neighbours in a drawn order."""
    segments = list(segments)
    while len(segments) > 1:
        i = data.draw(st.integers(0, len(segments) - 2), label="compose with the next")
        segments[i : i + 2] = [compose(segments[i], segments[i + 1])]
    return segments[0]


def assert_unchanged(adapter, before):
    for name, tensor in adapter.state().items():
        assert torch.equal(tensor, before[name]), name


class Split:
    """A drawn stream whose beginning was stepped through and whose rest is summarised in a few segments."""

    def __init__(self, data, dtype, drawn_streams, drawn_rules):
        self.stream = data.draw(drawn_streams).to(dtype)
        self.rule = data.draw(drawn_rules)
        assume(is_clear(self.stream, self.rule))
        features = self.stream.features
        start = data.draw(st.integers(0, len(features) - 1), label="start")
        self.beginning, rest = features[:start], features[start:]
        self.pieces = [rest[piece] for piece in data.draw(cuts(len(rest)))]
        self.segments = list(map(self.adapter().summarise, self.pieces))

    def adapter(self):
        """A fresh one."""
        return PTA(self.stream.classifier, **asdict(self.rule))

    def started(self):
        """One that has stepped through the beginning."""
        adapter = self.adapter()
        if len(self.beginning):
            adapter.step(self.beginning)
        return adapter


# -- what a segment gives ---------------------------------------------------------------------------------------------


@DTYPES
@given(st.data())
def test_segments_are_the_stream_however_they_are_composed_and_without_one_that_is_left_out(dtype, data):
    split = Split(data, dtype, streams(max_count=120), segment_rules())
    later = split.stream.features[:10]
    if data.draw(st.booleans(), label="leave one out"):
        unwanted = data.draw(st.integers(0, len(split.pieces) - 1), label="unwanted")
        del split.pieces[unwanted], split.segments[unwanted]
    if split.segments and data.draw(st.booleans(), label="compose"):
        split.segments = [compose_in_some_order(split.segments, data)]
    adapter = split.started()
    exact = [adapter.apply(segment) for segment in split.segments]
    features = torch.cat([split.beginning, *split.pieces])
    stepped = split.adapter()
    if len(features):
        stepped.step(features)
    torch.testing.assert_close(adapter.knowledge, stepped.knowledge, atol=KNOWLEDGE[dtype], rtol=0)
    assert torch.equal(adapter.touched, stepped.touched)
    assert adapter.seen == len(features)
    if all(exact):
        torch.testing.assert_close(adapter.step(later), stepped.step(later), atol=100 * ANCHORED[dtype], rtol=0)
        torch.testing.assert_close(adapter.anchored, stepped.anchored, atol=ANCHORED[dtype], rtol=0)


@given(st.data())
def test_features_that_cancel_are_exact_or_reported(data):
    split = Split(data, torch.float64, cancelling_streams(), segment_rules(min_probability=0.1, renormalise=True))
    adapter = split.started()
    exact = adapter.apply(compose_in_some_order(split.segments, data))
    features = torch.cat([split.beginning, *split.pieces])
    _, P, R = oracle_pta(split.stream.anchors, features, scale=0.3, fusion="logits", **asdict(split.rule))
    np.testing.assert_allclose(adapter.knowledge, P, atol=1e-12, rtol=0)
    if exact:
        np.testing.assert_allclose(adapter.anchored, R, atol=2e-6, rtol=0)


@given(st.data())
def test_without_renormalising_or_with_a_fixed_anchor_a_segment_is_always_exact(data):
    rule = segment_rules(renormalise=False) | segment_rules(anchor="fixed")
    split = Split(data, torch.float64, streams(max_count=120), rule)
    adapter, stepped = split.started(), split.started()
    assert adapter.apply(compose_in_some_order(split.segments, data))
    stepped.step(torch.cat(split.pieces))
    torch.testing.assert_close(adapter.anchored, stepped.anchored, atol=1e-12, rtol=0)
    torch.testing.assert_close(adapter.length, stepped.length, atol=1e-300, rtol=1e-10)


@pytest.mark.parametrize(
    ("switches", "tail"),
    [
        ({}, 41),
        ({"h": 1000.0, "w": 0.001}, 170),
        ({"w": 0.3}, 1024),
        ({"w": 0.0}, 1),
        ({"w": 1.0}, 1024),
        ({"min_probability": 0.0}, 1024),
        ({"weight": "raw"}, 7),
        ({"anchor": "fixed"}, 1),
        ({"renormalise": False}, 1),
    ],
    ids=str,
)
def test_a_segment_keeps_as_many_samples_as_the_anchor_remembers(switches, tail, stream):
    adapter = PTA(stream.classifier, **switches)
    assert adapter.rule.tail == tail
    features = stream.features.repeat(-(-tail // 40) + 1, 1)
    segment = adapter.summarise(features)
    assert (len(segment.tail), segment.count) == (tail, len(features))


# -- exact, and not ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [{}, {"h": 1000.0, "w": 0.001}, {"h": 5.0, "w": 0.3}, {"w": 0.0}], ids=str)
def test_ordinary_segments_are_exact_in_freshly_touched_classes(rule):
    stream = clip_like_stream(1, classes=30, dim=24, count=2400, in_order=True).to(torch.float32)
    stepped, applied = (PTA(stream.classifier, **rule) for _ in range(2))
    stepped.step(stream.features)
    segment = reduce(compose, map(applied.summarise, stream.features.split(700)))
    assert applied.apply(segment)
    torch.testing.assert_close(applied.anchored, stepped.anchored, atol=2e-6, rtol=0)


@pytest.mark.parametrize(("w", "in_order"), [(0.3, False), (0.3, True), (0.9, False), (0.9, True)])
def test_slow_anchors_are_exact_or_reported(w, in_order):
    stream = clip_like_stream(3, classes=20, dim=24, count=3000, in_order=in_order).to(torch.float32)
    stepped, applied = (PTA(stream.classifier, h=1000.0, w=w) for _ in range(2))
    stepped.step(stream.features)
    exact = applied.apply(applied.summarise(stream.features))
    assert exact == (w == 0.3)
    difference = (applied.predict(stream.features) - stepped.predict(stream.features)).abs().max()
    assert difference < 1e-3 if exact else difference > 1e-2


@pytest.mark.parametrize("w", [0.9, 0.999])
def test_an_anchor_that_is_under_way_for_thousands_of_refreshes_is_where_the_stream_takes_it(w):
    axes = torch.eye(3, dtype=torch.float64)
    features = torch.cat([normalize(axes[:1] + axes[2:]), axes[1:2].repeat(1500, 1)])  # the first touches class 0 alone
    stepped, applied = (PTA(ZeroShotClassifier(axes[:2], ["cat", "dog"]), w=w) for _ in range(2))
    stepped.step(features)
    applied.step(features[:1])
    applied.apply(applied.summarise(features[1:]))
    torch.testing.assert_close(applied.anchored[0], stepped.anchored[0], atol=1e-10, rtol=0)


def test_an_anchor_that_the_replay_cannot_settle_is_reported():
    """R follows the first samples and is stuck there when their opposites come; a replay alone would not know."""
    axes = torch.eye(3, dtype=torch.float64)
    classifier = ZeroShotClassifier(axes[1:], ["cat", "dog"])
    features = torch.cat([axes[:1].repeat(2000, 1), -axes[:1].repeat(1500, 1)])
    adapter = PTA(classifier, w=0.9)
    assert not adapter.apply(adapter.summarise(features))
    _, P, R = oracle_pta(classifier.anchors, features, scale=100.0, fusion="logits", **asdict(adapter.rule))
    np.testing.assert_allclose(adapter.knowledge, P, atol=1e-12, rtol=0)
    assert np.abs(adapter.anchored.numpy() - R).max() > 1


def test_a_prototype_that_nearly_cancels_is_reported():
    stream = clip_like_stream(1, classes=5, dim=8, count=200).to(torch.float64)
    features = torch.stack([stream.features, -stream.features], dim=1).flatten(0, 1)
    adapter = PTA(ZeroShotClassifier(stream.anchors, list("abcde"), scale=0.01))
    assert not adapter.apply(adapter.summarise(features))


@pytest.mark.parametrize("pattern", [[1.0, -1.0], [1.0, -1.0, -1.0, 1.0], [1.0, 1.0, -1.0, -1.0]])
@pytest.mark.parametrize("h", [1e9, 1e6])
@pytest.mark.parametrize("switch", [{}, {"anchor": "fixed"}, {"renormalise": False}], ids=str)
def test_a_prototype_that_cancels_to_rounding_is_reported(pattern, h, switch):
    """Its direction is that of the rounding, which a segment does not share with the stream."""
    features = torch.tensor([pattern], dtype=torch.float64).repeat(50, 1).reshape(-1, 1)
    classifier = ZeroShotClassifier(torch.ones(3, 1, dtype=torch.float64), list("abc"))
    rule = {"h": h, "w": 0.0, "min_probability": 0.0, "order": "predict-first", **switch}
    stepped, applied = (PTA(classifier, **rule) for _ in range(2))
    stepped.step(features)
    exact = applied.apply(applied.summarise(features))
    assert float(stepped.knowledge.abs().max()) > 1e-12 or not exact
    assert not exact or torch.equal(applied.anchored, stepped.anchored)


@given(st.data())
def test_slow_streams_that_cancel_are_exact_or_reported(data):
    """Each sample moves P by so little that features and their opposites leave only rounding."""
    rule = segment_rules(min_probability=0.0, renormalise=True, anchor="recursive")
    slow = st.builds(lambda one, h: replace(one, h=h), rule, st.sampled_from([1e4, 1e7, 1e9]))
    split = Split(data, torch.float64, cancelling_streams(), slow)
    adapter, stepped = split.started(), split.started()
    exact = adapter.apply(compose_in_some_order(split.segments, data))
    stepped.step(torch.cat(split.pieces))
    if exact:
        torch.testing.assert_close(adapter.anchored, stepped.anchored, atol=2e-6, rtol=0)


def test_half_precision_is_exact_for_segments_that_are_all_tail():
    stream = clip_like_stream(1, classes=10, dim=24, count=120).to(torch.float32)
    stepped, applied = (PTA(stream.classifier, state_dtype="float16") for _ in range(2))
    for part in stream.features.split(40):
        stepped.step(part)
        assert applied.apply(applied.summarise(part))
    torch.testing.assert_close(applied.anchored, stepped.anchored, atol=1e-3, rtol=0)
    assert not applied.apply(applied.summarise(stream.features))


# -- keeping, moving and refusing -------------------------------------------------------------------------------------


@pytest.fixture
def stream():
    return clip_like_stream(2, classes=8, dim=16, count=40).to(torch.float32)


@pytest.fixture
def adapter(stream):
    """One in the middle of a stream."""
    adapter = PTA(stream.classifier, h=2.0, w=0.05)
    adapter.step(stream.features[:20])
    return adapter


@pytest.fixture
def segment(adapter, stream):
    segment = adapter.summarise(stream.features)
    assert segment.head.count > 0
    return segment


def reloaded(segment, folder):
    segment.save(folder / "segment")
    return Segment.load(folder / "segment")


def assert_same(a, b, tolerance=1e-6):
    close = {"atol": tolerance, "rtol": tolerance}
    for name in ("classes", "log_decay", "offset", "spread"):
        torch.testing.assert_close(getattr(a.head, name), getattr(b.head, name), **close)
    assert (a.head.anchored is None) == (b.head.anchored is None)
    if a.head.anchored:
        for name in ("from_knowledge", "offset"):
            torch.testing.assert_close(getattr(a.head.anchored, name), getattr(b.head.anchored, name), **close)
    assert torch.equal(a.tail, b.tail)
    for name in ("samples", "classes", "probabilities"):
        np.testing.assert_allclose(getattr(a.touches, name), getattr(b.touches, name), **close)
    assert (a.count, a.rule, a.shape, a.classifier) == (b.count, b.rule, b.shape, b.classifier)


def test_summarising_changes_nothing_and_a_segment_depends_on_nothing_learned_before_or_after(adapter, stream, segment):
    before = adapter.snapshot().tensors
    adapter.summarise(stream.features)
    assert_unchanged(adapter, before)
    compose(segment, segment)
    adapter.apply(segment)
    assert_same(segment, adapter.summarise(stream.features))


def test_a_segment_holds_touched_classes_only_and_no_memory_of_others(stream):
    features = stream.features.clone()
    segment = PTA(stream.classifier, anchor="fixed", min_probability=0.9).summarise(features)
    assert len(segment.head.classes) < 8
    kept = segment.tail.clone()
    features.zero_()
    assert torch.equal(segment.tail, kept)
    assert segment.tail.untyped_storage().nbytes() == segment.tail.numel() * 4


@DTYPES
@pytest.mark.parametrize("switches", [{"anchor": "fixed"}, {"renormalise": False}, {"h": 1.0}], ids=str)
def test_a_saved_segment_comes_back_bit_for_bit(dtype, switches, stream, tmp_path):
    stream = stream.to(dtype)
    segment = PTA(stream.classifier, **switches).summarise(stream.features)
    segment.save(tmp_path / "segment")
    loaded = Segment.load(tmp_path / "segment")
    assert_same(loaded, segment, tolerance=0)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "segment").read_bytes()


def test_a_failure_while_a_segment_is_applied_changes_nothing(adapter, segment, monkeypatch):
    def learns_and_fails(prototypes, *_):
        prototypes.knowledge.add_(1)
        raise MemoryError

    before = adapter.snapshot().tensors
    monkeypatch.setattr(segment_application, "advance", learns_and_fails)
    with pytest.raises(MemoryError):
        adapter.apply(segment)
    assert_unchanged(adapter, before)


@pytest.mark.parametrize("factor", [1e38, 3.0, 1.01])
def test_a_segment_that_was_written_to_is_refused_before_anything_changes(adapter, segment, factor, tmp_path):
    before = adapter.snapshot().tensors
    segment.head.offset.div_(segment.head.offset.norm(dim=1, keepdim=True)).mul_(factor)
    with pytest.raises(StateMismatch, match="the state after the segment: knowledge must be"):
        adapter.apply(segment)
    assert_unchanged(adapter, before)
    with pytest.raises(StateMismatch, match="longer than any sum of its features"):
        reloaded(segment, tmp_path)


def test_a_segment_that_would_count_too_far_is_refused_before_anything_changes(adapter, segment):
    adapter.seen.fill_(2**53 - 5)
    before = adapter.snapshot().tensors
    with pytest.raises(StateMismatch, match="seen must be"):
        adapter.apply(segment)
    assert_unchanged(adapter, before)


@pytest.mark.parametrize("part", ["shape", "classifier"])
@pytest.mark.parametrize("value", [None, 5, "x", (), [[1.0]]])
def test_what_is_no_part_of_a_segment_is_refused(segment, part, value, tmp_path):
    if part != "classifier" or not isinstance(value, str):
        with pytest.raises(StateMismatch):
            reloaded(replace(segment, **{part: value}), tmp_path)


@pytest.mark.parametrize(("left", "exact"), [(0.9e-6, True), (1.05e-6, False)])
def test_exact_means_that_a_millionth_is_left_of_where_an_anchor_began(left, exact, stream, monkeypatch):
    monkeypatch.setattr(segment_application, "_distance_left", lambda *_: (np.array([left]), np.zeros(1)))
    adapter = PTA(stream.classifier)
    assert adapter.apply(adapter.summarise(stream.features.repeat(2, 1))) == exact


def test_the_spread_of_a_class_is_of_the_features_that_touched_it():
    rule, axes = PTA(ZeroShotClassifier(torch.eye(3), list("abc"))).rule, torch.eye(3)
    spread = AffineMap.of(axes[[0, 1, 2, 2]], Touches.of(axes[[0, 1, 1, 2]], rule), rule).spread
    np.testing.assert_allclose(spread, [0.0, math.acos(0.5**0.5), 0.0], atol=0.03)


def test_a_shape_no_prototypes_can_have_is_refused(segment, tmp_path):
    for shape in ((2**31 + 1, 16), (8, 2**31 + 1), (0, 16), (8, 16, 1)):
        with pytest.raises(StateMismatch, match="shape must be"):
            reloaded(replace(segment, shape=shape), tmp_path)


def test_a_segment_may_have_one_sample_before_its_tail(stream):
    adapter, stepped = (PTA(stream.classifier, renormalise=False) for _ in range(2))
    segment = adapter.summarise(stream.features[:2])
    assert (segment.head.count, len(segment.head.classes) > 0, len(segment.tail)) == (1, True, 1)
    assert adapter.apply(segment)
    stepped.step(stream.features[:2])
    torch.testing.assert_close(adapter.anchored, stepped.anchored, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("state_dtype", "float64"),
        ("h", 50.0),
        ("w", 0.1),
        ("min_probability", 0.2),
        ("anchor", "fixed"),
        ("order", "predict-first"),
        ("weight", "raw"),
        ("renormalise", False),
        ("anchors", torch.eye(16)[:8]),
        ("class_names", list("ABCDEFGH")),
        ("scale", 50.0),
        ("bias", -1.0),
    ],
)
def test_a_segment_of_something_else_is_refused_and_nothing_changes(name, value, adapter, segment, stream):
    parts = ("anchors", "class_names", "scale", "bias", "prompt_features")
    classifier = {own: getattr(stream.classifier, own) for own in parts}
    rule = {"h": 2.0, "w": 0.05}
    (classifier if name in classifier else rule)[name] = value
    complaint = "another classifier" if name in classifier else str(value)
    other = PTA(ZeroShotClassifier(**classifier), **rule).summarise(stream.features)
    before = adapter.snapshot().tensors
    for use in (adapter.apply, partial(compose, segment)):
        with pytest.raises(StateMismatch, match=complaint):
            use(other)
    assert_unchanged(adapter, before)


@pytest.mark.parametrize("kept", [0, 7, 100, -1])
def test_a_truncated_segment_file_is_refused(kept, segment, tmp_path):
    path = tmp_path / "segment"
    segment.save(path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UnreadableFile, match="truncated"):
        Segment.load(path)


def test_a_missing_file_and_a_state_file_are_no_segment_and_a_segment_file_is_no_state(adapter, segment, tmp_path):
    adapter.save(tmp_path / "state")
    segment.save(tmp_path / "segment")
    with pytest.raises(UnreadableFile, match="not a segment file"):
        Segment.load(tmp_path / "state")
    with pytest.raises(UnreadableFile, match="not a state file"):
        load_adapter(tmp_path / "segment", adapter.classifier)
    with pytest.raises(UnreadableFile, match="nowhere"):
        Segment.load(tmp_path / "nowhere")


def times(*factors):
    return [lambda t, factor=factor: t * factor for factor in factors]


def plus(*terms):
    return [lambda t, term=term: t + term for term in terms]


GONE = object()
DAMAGE = {  # for each entry of the description or tensor of the file: values, or functions of the right one
    "version": [1],
    "count": [None, -5, 12, 2**70, 10**30, "40", 1.5],
    "shape": [[8], [3, 16], [8, 15], 8, [10**30, 16]],
    "rule": [{}, [1], {"h": -1}],
    "classifier": [None],
    "rule.w": [0.5, 2.0],  # the first has a longer tail
    "rule.h": [[20]],
    "rule.extra": [2.0],
    "extra": [lambda _: torch.ones(1)],
    "head.offset": [lambda t: t[:, 1:], lambda t: t[1:], torch.Tensor.double, *times(torch.nan, 1e30, 3)],
    "head.log_decay": [lambda t: t[1:], torch.Tensor.float, *times(-1, 1e-3, torch.inf), *plus(1e308, -1e308)],
    "head.spread": plus(4),
    "head.classes": [lambda t: t.flip(0), torch.Tensor.int, torch.sum, *times(0), *plus(8, -8)],
    "tail": [GONE, torch.Tensor.half, lambda t: t[0], lambda t: t[:0], torch.sum, *times(0, 1.01, 1e30, torch.inf)],
    "touches.samples": [GONE, lambda t: t[1:], *times(0), *plus(10**6, -(10**6))],
    "touches.classes": [lambda t: t.flip(0), *plus(8)],
    "touches.probabilities": [torch.Tensor.float, torch.Tensor.bfloat16, *times(0, torch.nan), *plus(100)],
}


@pytest.mark.parametrize(("name", "change"), [(name, change) for name, changes in DAMAGE.items() for change in changes])
def test_a_damaged_segment_file_is_refused_in_one_line(name, change, segment, tmp_path):
    path = tmp_path / "segment"
    segment.save(path)
    tensors, about = load_tensors(path, kind="segment")
    if change is GONE:
        del tensors[name]
    elif callable(change):
        tensors[name] = change(tensors.get(name))
    else:
        (about["rule"] if name.startswith("rule.") else about)[name.removeprefix("rule.")] = change
    save_tensors(path, tensors, about)
    with pytest.raises(StateMismatch) as refused:
        Segment.load(path)
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)
    assert not re.search(r"unexpected keyword|unsupported operand|not iterable|has no len|object", str(refused.value))


JSON = st.sampled_from([None, True, -1, 0, 3, 10**30, 0.5, math.nan, "", "x", [], [8, 16], [[]], {}, {"h": 1}])
NUMBERS = st.sampled_from([0.0, 1.0, -1.0, 0.5, 1.002, 7.0, 1e30, 1e308, -1e308, math.nan, math.inf, 2.0**62])


@st.composite
def mutations(draw, tensors, about):
    """Tensors and description of a segment, one of them changed."""
    tensors, about = dict(tensors), about | {"rule": dict(about["rule"])}
    if draw(st.booleans()):
        changed = draw(st.sampled_from([about, about["rule"]]))
        changed[draw(st.sampled_from(sorted(changed)))] = draw(JSON)
        return tensors, about
    name, value = draw(st.sampled_from(sorted(tensors))), draw(NUMBERS)
    tensor = tensors[name].double()
    row = draw(st.integers(0, max(0, len(tensor) - 1)))
    one = tensor.index_fill(0, torch.tensor([row]), value) if len(tensor) else tensor
    changed = draw(
        st.sampled_from([one, tensor * value, tensor + value, tensor.flip(0), tensor.roll(1, 0), tensor[:row]])
    )
    tensors[name] = changed.to(draw(st.sampled_from([tensors[name].dtype] * 9 + [torch.float16])))
    return tensors, about


@pytest.mark.parametrize("switches", [{}, {"renormalise": False}, {"anchor": "fixed"}], ids=str)
def test_an_edited_segment_is_refused_or_leads_to_a_state_within_its_bounds(switches, tmp_path):
    stream = clip_like_stream(2, classes=8, dim=16, count=60).to(torch.float32)
    adapter = PTA(stream.classifier, **switches)
    adapter.step(stream.features[:20])
    before, path = adapter.snapshot(), tmp_path / "segment"
    adapter.summarise(stream.features).save(path)
    whole = load_tensors(path, kind="segment")

    @given(mutations(*whole))
    def refused_or_applied(edited):
        save_tensors(path, *edited)
        segment = unless_refused(lambda: Segment.load(path))
        if segment is None or unless_refused(lambda: adapter.apply(segment)) is None:
            assert_unchanged(adapter, before.tensors)
        else:
            assert adapter.predict(stream.features[:5]).isfinite().all()
            adapter.restore(adapter.snapshot())
            adapter.restore(before)

    refused_or_applied()
