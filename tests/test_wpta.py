"""WPTA: its defaults, batches across refreshes, shards that add, streams that degenerate, states that were edited."""

import pickle
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import clip_like_stream, cuts, streams
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.functional import normalize

import pta
from pta import WPTA, Samples, ZeroShotClassifier
from pta.engines.whitened.product import product
from pta.engines.whitened.within_class import inverse_by_halves, inverse_by_products, scatter_within_classes, squares_in
from pta.errors import StateMismatch
from pta.reference import wpta as reference
from pta.reference.balance import balance_gate_loop, gated
from pta.reference.calibration import temperatures_loop
from pta.reference.local_prior import local_prior_loop
from pta.reference.wpta import wpta_loop

COUNT = 300
LONG = clip_like_stream(1, classes=9, dim=12, count=COUNT, scale=40.0)
UNEQUAL = clip_like_stream(3, classes=9, dim=12, count=COUNT, present=0.1)  # one class alone: the gate closes
SORTED = clip_like_stream(2, classes=9, dim=12, count=COUNT, scale=40.0, in_order=True)  # the prior is at work
BARE = partial(WPTA, calibration="fixed")  # scores as the rule gives them, which are compared with its loop
PLAIN = partial(BARE, prior="none")
LEARNED = ("total", "gram", "sums", "weights")


def loop(stream, features, prior="none", **parameters):
    wide = (one.double().numpy() for one in (stream.anchors, features))
    return torch.from_numpy(wpta_loop(*wide, scale=stream.scale, prior=prior, calibration="fixed", **parameters))


def stepped(adapter, features, parts):
    return torch.cat([adapter.step(features[part]) for part in parts])


# -- the defaults -----------------------------------------------------------------------------------------------------


def loop_with_defaults(stream, features):
    """The rule with prior and gate, divided by temperatures, which are those of zero-shot where the gate is closed."""
    given = {"anchors": stream.anchors.numpy(), "features": features.numpy(), "scale": stream.scale}
    z = stream.scale * given["features"] @ given["anchors"].T  # without the prior
    scores = wpta_loop(**given, gate="none", calibration="fixed")
    gates, tau = balance_gate_loop(z), temperatures_loop(scores, z)
    answers = gated(scores, z + reference.local_prior_loop(z), gates, 1 / 1.4)
    return answers / (gates * tau + (1 - gates) * 1.4)[:, None]


@pytest.mark.parametrize("stream", [LONG, UNEQUAL, SORTED], ids=["shuffled", "one class", "sorted"])
@settings(max_examples=repeated(15))
@given(parts=cuts(COUNT, max_cuts=12))
def test_any_batches_give_what_the_loops_of_rule_prior_gate_and_calibration_give_together(stream, parts):
    logits = stepped(WPTA(stream.classifier), stream.features, parts)
    np.testing.assert_allclose(logits.numpy(), loop_with_defaults(stream, stream.features), atol=1e-8, rtol=0)


@pytest.mark.parametrize("size", [1, 7, 128, COUNT])
def test_single_samples_and_batches_give_what_these_loops_give(size):
    stream = clip_like_stream(4, classes=5, dim=10, count=COUNT, in_order=True, duplicates=0.2)
    adapter = WPTA(stream.classifier)
    logits = torch.cat([adapter.step(batch) for batch in stream.features.split(size)])
    np.testing.assert_allclose(logits.numpy(), loop_with_defaults(stream, stream.features), atol=1e-8, rtol=0)
    assert torch.equal(adapter.probabilities(logits), logits.softmax(dim=1))


@pytest.mark.parametrize("stream", [LONG, UNEQUAL, SORTED], ids=["shuffled", "one class", "sorted"])
@pytest.mark.parametrize("learned", [0, 1, 8, 127, 128, 200])
def test_frozen_answers_are_those_of_the_loops_without_the_prior_of_the_sample(monkeypatch, stream, learned):
    def without_the_last(zero_shot_logits):
        return np.vstack([local_prior_loop(zero_shot_logits)[:-1], np.zeros_like(zero_shot_logits[:1])])

    monkeypatch.setattr(reference, "local_prior_loop", without_the_last)
    adapter, before, rest = WPTA(stream.classifier), stream.features[:learned], stream.features[-4:]
    if learned:
        adapter.step(before)
    expected = [loop_with_defaults(stream, torch.cat([before, sample]))[-1] for sample in rest.split(1)]
    np.testing.assert_allclose(adapter.predict(rest).numpy(), expected, atol=1e-8, rtol=0)


@settings(max_examples=repeated(20))
@given(stream=streams(max_count=200))
def test_matched_and_fixed_calibration_give_the_same_labels_and_learn_the_same(stream):
    matched, fixed = WPTA(stream.classifier), BARE(stream.classifier)
    for answer in ("step", "predict"):
        one, other = (getattr(adapter, answer)(stream.features) for adapter in (matched, fixed))
        assert torch.equal(one.argmax(dim=1), other.argmax(dim=1))
    for name, tensor in fixed.state().items():
        assert torch.equal(matched.state()[name], tensor)


# -- batches and refreshes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2])
@settings(max_examples=repeated(15))
@given(parts=cuts(COUNT, max_cuts=12))
def test_batches_are_cut_at_every_refresh(depth, parts):
    logits = stepped(BARE(LONG.classifier, depth=depth), LONG.features, parts)
    torch.testing.assert_close(logits, loop(LONG, LONG.features, "local", depth=depth), atol=1e-9, rtol=0)


def test_refreshes_are_due_after_powers_of_two_and_then_at_equal_distances():
    adapter = WPTA(LONG.classifier)
    found = [adapter.refreshes.next(0)]
    while found[-1] < 500:
        found.append(adapter.refreshes.next(found[-1]))
    assert found == [1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512]
    assert WPTA(LONG.classifier, refresh_every=5).refreshes.next(4) == 5
    assert adapter.refreshes.within(7) == [1, 2, 4]


@pytest.mark.parametrize("depth", [1, 2])
def test_single_precision_is_within_two_thousandths_along_a_stream_of_clip_like_features(depth):
    stream = clip_like_stream(3, classes=60, dim=64, count=700).to(torch.float32)
    logits = stepped(BARE(stream.classifier, depth=depth), stream.features, [slice(0, 333), slice(333, 700)])
    torch.testing.assert_close(logits.double(), loop(stream, stream.features, "local", depth=depth), atol=2e-3, rtol=0)


def test_single_precision_is_within_two_thousandths_where_images_hardly_differ():
    stream = clip_like_stream(3, classes=20, dim=128, count=300)
    noise = normalize(torch.randn(300, 128, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    still = replace(stream, features=normalize(stream.features[:1] + 0.012 * noise)).to(torch.float32)
    logits = stepped(PLAIN(still.classifier), still.features, [slice(0, 50), slice(50, 300)])
    torch.testing.assert_close(logits.double(), loop(still, still.features), atol=2e-3, rtol=0)


def test_single_precision_is_within_two_thousandths_where_products_are_large():
    stream = clip_like_stream(3, classes=220, dim=400, count=COUNT).to(torch.float32)
    wide = stream.to(torch.float64)
    expected = BARE(wide.classifier).step(wide.features)
    for sizes in ([COUNT], [1] * 5 + [123, 128, COUNT - 256]):
        adapter = BARE(stream.classifier)
        logits = torch.cat([adapter.step(batch) for batch in stream.features.split(sizes)])
        torch.testing.assert_close(logits.double(), expected, atol=2e-3, rtol=0)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("learned", [0, 1, 7, 8, 127, 128, 200])
def test_predict_gives_what_a_clone_without_prior_would_give_that_learns_the_sample(depth, learned):
    adapter, without = WPTA(LONG.classifier, depth=depth), WPTA(LONG.classifier, depth=depth, prior="none")
    if learned:
        adapter.step(LONG.features[:learned])
    without._put({name: adapter.state()[name] for name in without.state()})
    rest = LONG.features[-5:]
    each = torch.cat([without.clone().step(sample) for sample in rest.split(1)])
    torch.testing.assert_close(adapter.predict(rest), each, atol=1e-9, rtol=0)


def test_a_bias_is_added_once():
    names = LONG.classifier.class_names
    biased = BARE(ZeroShotClassifier(LONG.anchors, names, LONG.scale, bias=-3.0)).step(LONG.features)
    torch.testing.assert_close(biased, BARE(LONG.classifier).step(LONG.features) - 3.0, atol=1e-9, rtol=0)
    torch.testing.assert_close(biased, loop(LONG, LONG.features, "local", bias=-3.0), atol=1e-9, rtol=0)


# -- shards -----------------------------------------------------------------------------------------------------------


@settings(max_examples=repeated(15))
@given(parts=cuts(COUNT), order=st.randoms(use_true_random=False))
def test_sums_of_shards_add_up_to_those_of_the_stream_in_any_order(parts, order):
    single = LONG.to(torch.float32)
    whole, joined = PLAIN(single.classifier), PLAIN(single.classifier)
    whole.step(single.features)
    whole.refresh_state()
    shards = [joined.summarise(single.features[part]) for part in parts]
    order.shuffle(shards)
    for shard in shards[1:]:
        joined.apply(shard)
    joined.apply(shards[0])
    assert joined.position == COUNT
    for name in LEARNED:
        torch.testing.assert_close(joined.state()[name], whole.state()[name], atol=1e-11, rtol=1e-12)
    probe = single.features[:20]
    torch.testing.assert_close(joined.predict(probe), whole.predict(probe), atol=1e-4, rtol=0)


def test_what_another_adapter_has_learned_can_be_added_and_sums_add_before():
    first, second, third = (PLAIN(LONG.classifier) for _ in range(3))
    for adapter, part in zip((first, second, third), LONG.features.split(100), strict=True):
        adapter.step(part)
    both = second.learned + third.learned
    first.apply(both)
    whole = PLAIN(LONG.classifier)
    whole.step(LONG.features)
    whole.refresh_state()
    assert both.count == 200
    torch.testing.assert_close(first.predict(LONG.features), whole.predict(LONG.features), atol=1e-9, rtol=0)


def test_what_a_new_adapter_has_learned_adds_nothing():
    adapter = PLAIN(LONG.classifier)
    adapter.apply(PLAIN(LONG.classifier).learned)
    torch.testing.assert_close(adapter.step(LONG.features), PLAIN(LONG.classifier).step(LONG.features))


def test_sums_of_another_classifier_rule_or_kind_are_refused_and_change_nothing():
    adapter, other = PLAIN(LONG.classifier), clip_like_stream(2, classes=9, dim=12, count=5)
    adapter.step(LONG.features[:50])
    before = adapter.snapshot()
    good = adapter.summarise(LONG.features[:3])
    huge = replace(good, tensors={**good.tensors, "sums": good.tensors["sums"] + 1.0})
    for wrong in (
        None,
        PLAIN(other.classifier).summarise(other.features),
        PLAIN(LONG.classifier, depth=2).summarise(LONG.features[:3]),
        PLAIN(LONG.classifier, min_probability=0.5).summarise(LONG.features[:3]),
        huge,
    ):
        with pytest.raises(StateMismatch):
            adapter.apply(wrong)
        assert all(torch.equal(adapter.state()[name], one) for name, one in before.tensors.items())
    adapter.apply(WPTA(LONG.classifier).summarise(LONG.features[:3]))  # with prior and matched calibration
    assert adapter.position == 53


# -- streams that degenerate ------------------------------------------------------------------------------------------


def test_one_image_again_and_again_is_scored_as_the_loop_scores_it():
    repeated = LONG.to(torch.float32).features[:1].expand(COUNT, -1)
    adapter = PLAIN(LONG.to(torch.float32).classifier)
    logits = stepped(adapter, repeated, [slice(0, 130), slice(130, COUNT)])
    torch.testing.assert_close(logits.double(), loop(LONG.to(torch.float32), repeated), atol=2e-3, rtol=0)
    assert torch.equal(adapter.metric, torch.eye(12))  # they do not spread


def test_a_sample_at_the_centre_gets_its_zero_shot_answer():
    anchors = normalize(torch.tensor([[3.0, 1.0, 0.0], [3.0, -1.0, 0.0]], dtype=torch.float64))
    classifier = ZeroShotClassifier(anchors, ["a", "b"], scale=20.0)
    centre = Samples(anchors.mean(dim=0)[None])
    torch.testing.assert_close(PLAIN(classifier).step(centre), classifier.logits(centre.features), atol=1e-4, rtol=0)


@settings(max_examples=repeated(60))
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3]), st.booleans(), st.booleans())
def test_prototypes_may_vanish(seed, text_weight, equal_anchors, single):
    """Samples cancel each other: scores stay within what a cosine can add, and the state can be gone on with."""
    random = torch.Generator().manual_seed(seed)
    poles = normalize(torch.randn(5, 3, generator=random, dtype=torch.float64))
    anchors = poles[:1].expand(4, -1) if equal_anchors else poles[:4]
    classifier = ZeroShotClassifier(anchors.float() if single else anchors, list("abcd"), scale=10.0)
    adapter = PLAIN(classifier, text_weight=text_weight, refresh_every=50, min_probability=1e-6)
    for size in (1, 5, 20, 3, 40):
        rows = torch.randint(10, (size,), generator=random)
        samples = Samples(torch.cat([poles, -poles])[rows].to(classifier.anchors))
        added = adapter.step(samples) - classifier.logits(samples.features)
        assert added.abs().max() <= 0.4 * 10.0 + 1e-3
        adapter.restore(adapter.snapshot())


def test_equal_anchors_give_all_classes_the_same_score():
    classifier = ZeroShotClassifier(torch.ones(3, 7), list("abc"))
    logits = PLAIN(classifier).step(LONG.features[:20, :7])
    torch.testing.assert_close(logits, logits[:, :1].expand(-1, 3), atol=1e-3, rtol=0)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9])
def test_two_classes_and_few_samples_are_scored_as_the_loop_scores_them(count):
    stream = clip_like_stream(5, classes=2, dim=4, count=count)
    logits = PLAIN(stream.classifier).step(stream.features)
    torch.testing.assert_close(logits, loop(stream, stream.features), atol=1e-9, rtol=0)
    assert torch.equal(PLAIN(stream.classifier).metric, torch.eye(4, dtype=torch.float64))


# -- state ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2])
def test_a_forgotten_class_loses_its_sums_and_nothing_else(depth):
    adapter = PLAIN(LONG.classifier, depth=depth)
    adapter.step(LONG.features[:150])
    before = adapter.snapshot().tensors
    adapter.reset(classes=[2])
    for name, tensor in adapter.state().items():
        if name.startswith(("sums", "weights")):
            assert not tensor[2].any()
            assert torch.equal(tensor[[0, 1, 3]], before[name][[0, 1, 3]])
        elif not name.startswith("squares"):
            assert torch.equal(tensor, before[name])
    fresh = PLAIN(LONG.classifier, depth=depth)
    fresh.restore(adapter.snapshot())
    torch.testing.assert_close(fresh.step(LONG.features[150:]), adapter.step(LONG.features[150:]), atol=1e-9, rtol=0)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("position", [8, 100, 128, 256])
def test_a_class_that_is_forgotten_where_a_refresh_is_due_is_not_in_it(depth, position):
    adapter = BARE(LONG.classifier, depth=depth)
    adapter.step(LONG.features[:position])
    adapter.reset(classes=[2, 4])
    expected = loop(LONG, LONG.features, "local", depth=depth, forgotten={position: [2, 4]})[position:]
    torch.testing.assert_close(adapter.step(LONG.features[position:]), expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("forgotten", [[], [2, 4]])
def test_sums_that_are_added_up_to_where_a_refresh_is_due_give_what_the_loop_gives(forgotten):
    adapter = PLAIN(LONG.classifier)
    adapter.step(LONG.features[:100])
    adapter.apply(adapter.summarise(LONG.features[100:128]))
    adapter.reset(classes=forgotten)
    expected = loop(LONG, LONG.features, forgotten={128: forgotten})[128:]
    torch.testing.assert_close(adapter.step(LONG.features[128:]), expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("spread", [[1.0], [30.0, 1.0], [0.0]])
@pytest.mark.parametrize(("precision", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-13)])
def test_products_invert_whatever_lies_between_the_bounds(spread, precision, tolerance):
    random = torch.Generator().manual_seed(0)
    turn, _ = torch.linalg.qr(torch.randn(64, 64, generator=random, dtype=torch.float64))
    shares = torch.tensor([*spread, *[0.0] * (64 - len(spread))], dtype=torch.float64)
    eigenvalues = 1 + 16 * shares / shares.sum().clamp_min(1e-9)  # d/ridge of them together, in few directions
    found = inverse_by_products(((turn * eigenvalues) @ turn.T).to(precision), 17.0)
    torch.testing.assert_close(found.double(), (turn / eigenvalues) @ turn.T, atol=tolerance, rtol=0)
    assert torch.equal(found, found.T)


def test_a_class_is_forgotten_below_another_method_too():
    combined = pta.create_adapter("combined", LONG.classifier, base="wpta")
    alone = combined.other.clone()
    for adapter in (alone, combined):
        adapter.step(LONG.features[:150])
        adapter.reset(classes=iter([2]))
    torch.testing.assert_close(combined.other.squares, alone.squares)


def saved_and_loaded(adapter, folder):
    adapter.save(folder / "state.safetensors")
    return pta.load_adapter(folder / "state.safetensors")


def restored(adapter, _):
    other = WPTA(adapter.classifier, **adapter.parameters)
    other.step(adapter.classifier.anchors)
    other.restore(adapter.snapshot())
    return other


COPIES = {
    "clone": lambda adapter, _: adapter.clone(),
    "pickle": lambda adapter, _: pickle.loads(pickle.dumps(adapter)),
    "snapshot": restored,
    "file": saved_and_loaded,
}


def require_same_bits(copied, adapter, features, sizes):
    for batch in features.split(sizes):
        assert torch.equal(copied.step(batch), adapter.step(batch))
    for name, tensor in adapter.state().items():
        assert torch.equal(copied.state()[name], tensor), name


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "position", [7, 40, 100, *(pytest.param(n, marks=pytest.mark.extensive) for n in (1, 8, 9, 39, 41))]
)
def test_a_copy_goes_on_with_the_same_bits(tmp_path, copy, depth, precision, position):
    """Before, at and after a refresh, by single samples and by batches; nothing that decides is outside the state."""
    stream = LONG.to(precision)
    adapter = WPTA(stream.classifier, depth=depth, refresh_every=40)
    for batch in stream.features[:position].split(13):
        adapter.step(batch)
    copied = COPIES[copy](adapter, tmp_path)
    sizes = [1] * 30 + [7, 64, COUNT - position - 101]
    require_same_bits(copied, adapter, stream.features[position:], sizes)


@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_goes_on_with_the_same_bits_where_products_are_large(tmp_path, copy):
    stream = clip_like_stream(6, classes=150, dim=520, count=COUNT).to(torch.float32)
    adapter = WPTA(stream.classifier)
    adapter.step(stream.features[:100])
    require_same_bits(COPIES[copy](adapter, tmp_path), adapter, stream.features[100:], [1, 7, 20, 128, 44])


@settings(max_examples=10)
@given(parts=cuts(COUNT, max_cuts=8), depth=st.sampled_from([1, 2]), single=st.booleans())
def test_copies_at_every_cut_leave_the_stream_its_bits(parts, depth, single):
    stream = LONG.to(torch.float32 if single else torch.float64)
    adapter = copied = WPTA(stream.classifier, depth=depth, refresh_every=50)
    adapter = adapter.clone()
    for part in parts:
        copied = copied.clone()
        assert torch.equal(copied.step(stream.features[part]), adapter.step(stream.features[part]))


@pytest.mark.parametrize("depth", [1, 2])
def test_a_copy_of_a_state_after_sums_were_added_or_a_class_forgotten_goes_on_with_the_same_bits(depth):
    stream = LONG.to(torch.float32)
    adapter = PLAIN(stream.classifier, depth=depth)
    adapter.step(stream.features[:100])
    for change in (
        lambda: adapter.reset(classes=[2]),
        lambda: adapter.apply(adapter.summarise(stream.features[:20])),
        lambda: adapter.take(adapter.learned, None),
        lambda: adapter.restore(adapter.snapshot()),
    ):
        change()
        require_same_bits(adapter.clone(), adapter, stream.features[200:], [1, 1, 30, 68])


def test_a_state_whose_squares_were_rounded_otherwise_is_loaded(tmp_path):
    """Squares and prototypes were once brought up to date in float32 along the whole stream."""
    stream = LONG.to(torch.float32)
    adapter = WPTA(stream.classifier)
    adapter.step(stream.features[:150])
    pieces = adapter.snapshot().tensors
    expected = {"total", "gram", "centre", "sums", "weights", "metric", "squares", "seen"}
    assert {name for name in pieces if not name.startswith(("local_", "gate_", "calibration_"))} == expected
    adapter.squares.mul_(1 + 3e-5 * torch.sin(torch.arange(9.0, dtype=torch.float64)))
    loaded = saved_and_loaded(adapter, tmp_path)
    assert torch.equal(loaded.squares, adapter.squares)
    expected = WPTA(stream.classifier).step(stream.features)[150:]
    torch.testing.assert_close(loaded.step(stream.features[150:]), expected, atol=2e-3, rtol=0)


@pytest.mark.parametrize(
    ("name", "edit", "complaint"),
    [
        ("weights", lambda n: n + 100, "more samples than there were"),
        ("weights", lambda n: n / 2, "longer than their weights"),
        ("sums", lambda sums: -3 * sums, "longer than their weights"),
        ("sums", lambda sums: sums.flip(0), "longer than their weights|more than all"),
        ("total", lambda total: -total, "longer than their weights"),
        ("gram", lambda gram: 2 * gram, "more samples than there were"),
        ("gram", lambda gram: gram / 2, "more than all samples together"),
        ("gram", lambda gram: gram.triu(), "symmetric"),
        ("seen", lambda seen: seen - 40, "more samples than there were"),
        ("squares", lambda squares: squares.flip(0), "not those of the prototypes"),
        ("metric", lambda metric: -metric, "positive semidefinite"),
        ("centre", lambda centre: 5 * centre, "rows at most"),
    ],
)
def test_an_edited_state_is_refused(name, edit, complaint):
    adapter = PLAIN(LONG.classifier)
    adapter.step(LONG.features[:150])
    snapshot = adapter.snapshot()
    edited = replace(snapshot, tensors={**snapshot.tensors, name: edit(snapshot.tensors[name])})
    with pytest.raises(StateMismatch, match=complaint):
        adapter.restore(edited)
    assert all(torch.equal(tensor, snapshot.tensors[one]) for one, tensor in adapter.state().items())


def test_the_state_has_the_size_that_is_documented():
    classes, dim = LONG.anchors.shape
    rule, prior, gate = 2 * dim**2 + 2 * dim + classes * dim + 2 * classes, 3 * classes + 3, classes + 2
    for adapter, expected in ((PLAIN(LONG.classifier), rule + gate), (WPTA(LONG.classifier), rule + prior + gate + 14)):
        kept = sum(tensor.numel() for name, tensor in adapter.state().items() if name != "seen")
        assert kept == expected


def test_sums_stay_possible_for_any_weights():
    """What `_contradiction` asks of sums holds for every stream, also one that was forgotten in part."""
    random = np.random.default_rng(0)
    for scale in (1.0, 10.0, 1000.0):
        features = normalize(torch.from_numpy(random.normal(size=(60, 5))))
        classifier = ZeroShotClassifier(random.normal(size=(4, 5)), list("abcd"), scale)
        adapter = PLAIN(classifier, refresh_every=10)
        for begin, end in pairwise([0, 1, 2, 20, 60]):
            adapter.step(features[begin:end])
            adapter.restore(adapter.snapshot())
            adapter.reset(classes=[end % 4])
            adapter.restore(adapter.snapshot())


@pytest.mark.parametrize("apart", [0.1, 30.0], ids=["classes close together", "classes far apart"])
def test_the_covariance_for_a_metric_in_single_precision_is_that_in_double_precision(apart):
    rng = torch.Generator().manual_seed(5)
    labels, means = torch.arange(200) % 10, apart * torch.randn(10, 160, generator=rng, dtype=torch.float64)
    x = means[labels] + torch.randn(200, 160, generator=rng, dtype=torch.float64)
    w = torch.nn.functional.one_hot(labels).double()
    sums = torch.tensor(200.0).double(), x.sum(dim=0), x.T @ x, w.T @ x, w.sum(dim=0)
    single, double = (scatter_within_classes(*sums, dtype).tril() for dtype in (torch.float32, torch.float64))
    assert bool(torch.equal(single, double)) == (apart > 1)  # where S is the smaller part, it is computed alike
    assert float((single - double).abs().max()) < 1e-6 * float(double.trace()) / 160


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("dim", [1, 2, 127, 128, 131, 300, 513])
def test_halves_give_the_inverse_of_a_lower_triangle(dim, dtype):
    rng = torch.Generator().manual_seed(dim)
    rows = torch.randn(dim + 5, dim, generator=rng, dtype=torch.float64)
    matrix = torch.eye(dim, dtype=torch.float64) + rows.T @ rows / (4 * rows.square().mean())
    found = inverse_by_halves((matrix.tril() + torch.full_like(matrix, 7).triu(1)).to(dtype))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(found.double(), torch.linalg.inv(matrix), atol=tolerance, rtol=0)
    torch.testing.assert_close(found, found.T, atol=tolerance, rtol=0)


@pytest.mark.parametrize("dim", [1, 127, 128, 300])
def test_products_up_to_the_diagonal_give_the_squares_in_a_metric(dim):
    rng = torch.Generator().manual_seed(dim)
    factor, rows = (torch.randn(count, dim, generator=rng, dtype=torch.float64) for count in (dim, 7))
    metric = factor.T @ factor
    torch.testing.assert_close(squares_in(metric, rows), torch.einsum("ij,jk,ik->i", rows, metric, rows))


@settings(max_examples=repeated(30), deadline=None)
@given(
    shape=st.tuples(*[st.integers(150, 600)] * 3),
    turned=st.tuples(st.booleans(), st.booleans()),
    apart=st.tuples(*[st.integers(0, 70)] * 2),
)
def test_products_in_single_precision_are_those_in_double_precision_and_the_same_each_time(shape, turned, apart):
    """Whether they are large or not, of rows or columns, and of parts of matrices."""
    (rows, inner, columns), rng = shape, torch.Generator().manual_seed(sum(shape))

    def drawn(height, width, turn, beyond):
        whole = torch.randn(*((width, height) if turn else (height, width + beyond)), generator=rng)
        return whole.T if turn else whole[:, beyond:]

    a, b = drawn(rows, inner, turned[0], apart[0]), drawn(inner, columns, turned[1], apart[1])
    found = product(a, b)
    torch.testing.assert_close(found.double(), a.double() @ b.double(), atol=1e-3, rtol=0)
    assert torch.equal(product(a, b), found)


def test_where_there_is_no_onednn_products_are_torchs(monkeypatch):
    a, b = torch.randn(2, 300, 300, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    monkeypatch.setattr(Tensor, "to_mkldnn", None)
    assert torch.equal(product(a, b), a @ b)


def test_large_products_have_the_same_bits_in_inference_mode():
    a, b = torch.randn(2, 400, 400, generator=torch.Generator().manual_seed(0))
    expected = product(a, b)
    with torch.inference_mode():
        assert torch.equal(product(a, b), expected)


def test_products_of_tensors_without_numbers_have_none():
    with FakeTensorMode():
        a, b = torch.ones(300, 400), torch.ones(400, 500)
        found = product(a, b)
    assert isinstance(found, FakeTensor)
    assert found.shape == (300, 500)
    assert found.layout == torch.strided


def test_products_up_to_the_diagonal_give_the_squares_in_a_metric_in_single_precision():
    rng = torch.Generator().manual_seed(0)
    factor, rows = (torch.randn(count, 520, generator=rng, dtype=torch.float64) for count in (520, 200))
    metric = factor.T @ factor / 520
    expected = torch.einsum("ij,jk,ik->i", rows, metric, rows)
    torch.testing.assert_close(squares_in(metric.float(), rows.float()).double(), expected, atol=0, rtol=1e-5)
