"""The balance gate: a stage behind a method, closed where few classes have most of the samples."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import clip_like_stream, cuts, streams

import pta
from pta import WPTA, ZeroShotClassifier
from pta.cluster import cut, run_blocks
from pta.data.orders import rare
from pta.errors import InvalidParameter, StateMismatch
from pta.methods import adapter_class
from pta.methods.classes import add_class
from pta.methods.merging import merge
from pta.methods.registry import from_bytes
from pta.reference.balance import balance_gate_loop, gated, openness
from pta.reference.pta import pta_loop
from pta.reference.tda import tda_loop
from pta.reference.wpta import wpta_loop
from pta.run.gpu.recordable import is_recordable

GATED = partial(WPTA, gate="balance", calibration="fixed")
ONLINE = [name for name in pta.list_adapters() if adapter_class(name).scope == "sample"]


def z_of(stream):
    return (stream.scale * stream.features @ stream.anchors.T).numpy()


def mostly_one_class(stream, count=300):
    """The features of a stream with 95 % of one class by zero-shot, which calls them so."""
    order = rare(z_of(stream).argmax(axis=1), 0.95, seed=1, length=count)
    return stream.features[torch.from_numpy(order)]


def in_parts(adapter, features, parts):
    return torch.cat([adapter.step(features[part]) for part in parts])


# -- the rule ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [1, 2, 10, 1000])
def test_certain_samples_in_equal_numbers_leave_the_gate_open(classes):
    s = np.tile(np.eye(classes), (max(2, 200 // classes), 1))
    assert openness(s, classes) > 0.9999


@pytest.mark.parametrize("classes", [2, 5, 20, 100])
def test_certain_samples_of_one_class_close_it(classes):
    s = np.tile(np.eye(classes)[:1], (64, 1))
    assert openness(s, classes) < 1e-4


def test_one_class_of_ninety_five_per_cent_closes_it_whatever_zero_shot_is_sure_of():
    for sure in (0.6, 0.8, 1.0):
        common = np.array([sure, 1 - sure])
        s = np.concatenate([np.tile(common, (95, 1)), np.tile(common[::-1], (5, 1))])
        assert openness(s, 2) < 0.01


def test_most_listed_classes_absent_close_it_if_zero_shot_is_unsure_and_less_so_if_it_is_sure():
    for sure, bound in ((0.4, 0.01), (0.6, 0.01)):
        s = np.full((400, 50), (1 - sure) / 49)
        s[np.arange(400), np.arange(400) % 10] = sure
        assert openness(s, 50) < bound
    certain = np.eye(50)[np.arange(400) % 25]
    assert openness(certain, 50) > 0.999


def test_zero_shot_that_knows_nothing_leaves_it_open():
    assert openness(np.full((100, 7), 1 / 7), 7) > 0.999


def test_a_worked_example():
    s = np.array([[0.9, 0.1], [0.9, 0.1], [0.8, 0.2], [0.5, 0.5]])
    squares = 0.82 + 0.82 + 0.68 + 0.5  # Σ‖s‖²
    total = 3.1**2 + 0.9**2  # ‖Σs‖²
    excess = (2 * (total - squares) + 10) / (12 + 10) - 1
    sure = squares / 4
    expected = 1 / (1 + (excess * (1 - sure) / 0.2) ** 8 + (excess / (2 * sure - 1) / 0.12) ** 8)
    np.testing.assert_allclose(openness(s, 2), expected, rtol=1e-12)


# -- the loop ---------------------------------------------------------------------------------------------------------


@settings(max_examples=repeated(40))
@given(st.data())
def test_any_stream_in_any_batches_gets_the_gate_of_the_loop(data):
    stream = data.draw(streams(max_count=200))
    adapter, z = pta.create_adapter("tda", stream.classifier, gate="balance"), z_of(stream)
    logits = in_parts(adapter, stream.features, data.draw(cuts(len(stream.features))))
    plain = tda_loop(stream.anchors.numpy(), stream.features.numpy(), scale=stream.scale)
    expected = gated(plain, z, balance_gate_loop(z), adapter.logit_factor)
    np.testing.assert_allclose(logits.numpy(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "parameters", [{}, {"calibration": "fixed"}, {"prior": "none"}, {"depth": 2}, {"refresh_every": 20}]
)
def test_wpta_with_the_gate_equals_its_loop_on_a_stream_that_closes_it(parameters):
    stream = clip_like_stream(count=300, classes=6, dim=16, seed=3)
    features = mostly_one_class(stream)
    adapter = WPTA(stream.classifier, **parameters)
    found = in_parts(adapter, features, [slice(0, 1), slice(1, 150), slice(150, 300)]).numpy()
    expected = wpta_loop(stream.anchors.numpy(), features.numpy(), scale=stream.scale, **parameters)
    np.testing.assert_allclose(found, expected, atol=1e-7, rtol=0)
    assert float(adapter.gate_open) < 0.01


def test_pta_with_the_gate_learns_what_pta_learns_and_answers_between_it_and_zero_shot():
    stream = clip_like_stream(count=300, classes=6, dim=16, seed=3)
    features = mostly_one_class(stream)
    plain, gate = pta.PTA(stream.classifier), pta.PTA(stream.classifier, gate="balance")
    gate.step(features)
    expected = pta_loop(stream.anchors.numpy(), features.numpy(), scale=stream.scale)
    np.testing.assert_allclose(plain.step(features).numpy(), expected, atol=1e-6, rtol=0)
    for name, tensor in plain.state().items():
        torch.testing.assert_close(gate.state()[name], tensor, atol=1e-12, rtol=0)
    z = stream.classifier.logits(features)
    torch.testing.assert_close(gate.predict(features), 2 * z, atol=1e-3, rtol=0)
    assert torch.equal(gate.probabilities(gate.predict(features)).argmax(1), z.argmax(1))


def test_the_gate_is_on_for_wpta_alone_and_combined_leaves_it_to_its_base():
    defaults = {name: adapter_class(name).declared["gate"].default for name in ONLINE if name != "combined"}
    assert {name for name, default in defaults.items() if default == "balance"} == {"wpta"}
    assert "gate" not in adapter_class("combined").declared
    classifier = ZeroShotClassifier(np.eye(3), list("abc"))
    combined = pta.create_adapter("combined", classifier, base="wpta")
    assert {"base.gate_total", "base.gate_open"} <= combined.state().keys()


def test_methods_that_answer_a_whole_batch_or_stream_refuse_it():
    classifier = ZeroShotClassifier(np.eye(3), list("abc"))
    for method in set(pta.list_adapters()) - set(ONLINE):
        with pytest.raises(InvalidParameter, match='use gate="none"'):
            pta.create_adapter(method, classifier, gate="balance")


def test_the_laws_hold_with_the_gate():
    for method in ("pta", "tda", "sca"):
        assert "batch_equals_loop" in pta.check_adapter(partial(pta.create_adapter, method, gate="balance"))


def test_a_step_with_the_gate_can_be_recorded():
    stream = clip_like_stream(count=10, classes=5, dim=16, seed=0)
    assert is_recordable(pta.create_adapter("clip", stream.classifier, gate="balance"))


# -- sums, states and classes -----------------------------------------------------------------------------------------


def test_shards_add_up_to_the_stream_with_the_gate_on():
    stream = clip_like_stream(count=300, classes=6, dim=16, seed=4)
    features = mostly_one_class(stream)
    whole, joined = (GATED(stream.classifier, prior="none") for _ in range(2))
    whole.step(features)
    whole.refresh_state()  # as `apply` does
    for part in features.split(70):
        joined.apply(joined.summarise(part))
    for name, tensor in whole.state().items():
        torch.testing.assert_close(joined.state()[name], tensor, atol=1e-9, rtol=1e-9)
    parts = [GATED(stream.classifier, prior="none") for _ in range(2)]
    for adapter, part in zip(parts, features.split(150), strict=True):
        adapter.step(part)
    merged = merge(parts)
    assert merged.exact
    torch.testing.assert_close(merged.part.gate_open, whole.gate_open, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("size", [50, 64, 300])
def test_blocks_on_many_machines_have_the_gate_of_the_stream(size):
    stream = clip_like_stream(count=300, classes=6, dim=16, seed=4)
    features = mostly_one_class(stream)
    adapter = GATED(stream.classifier, prior="none", refresh_every=64)
    stepped = adapter.clone()
    logits = stepped.step(features)
    run = run_blocks(adapter, cut(range(300), features, size))
    assert torch.equal(torch.cat([answers.labels for answers in run.answers]), logits.argmax(dim=1))
    assert float(stepped.gate_open) < 0.01
    for name in ("gate_total", "gate_squares", "gate_open"):
        torch.testing.assert_close(run.end[name], stepped.state()[name], atol=1e-9, rtol=1e-6)


def test_sums_with_and_without_the_gate_are_not_mixed():
    classifier = ZeroShotClassifier(np.eye(3), list("abc"))
    sums = WPTA(classifier, gate="none").summarise(np.eye(3))
    with pytest.raises(StateMismatch, match="other parameters"):
        GATED(classifier).apply(sums)


def test_a_segment_of_pta_is_refused_with_the_gate():
    with pytest.raises(InvalidParameter, match='use gate="none"'):
        pta.PTA(ZeroShotClassifier(np.eye(3), list("abc")), gate="balance").summarise(np.eye(3))


def test_a_state_that_was_saved_without_a_gate_goes_on_without_one(tmp_path):
    stream = clip_like_stream(count=200, classes=6, dim=16, seed=5)
    features, path = mostly_one_class(stream, 200), tmp_path / "old.safetensors"
    old = WPTA(stream.classifier, gate="none")
    old.step(features[:150])
    old.save(path)
    assert b'"gate"' not in path.read_bytes()  # so that earlier versions read it
    loaded = pta.load_adapter(path)
    assert loaded.parameters["gate"] == "none"
    assert torch.equal(loaded.step(features[150:]), old.step(features[150:]))
    combined = pta.create_adapter("combined", stream.classifier, base="wpta", base_parameters={"gate": "none"})
    combined.step(features[:150])
    again = from_bytes(combined.to_bytes())
    assert again.parameters["base_parameters"]["gate"] == "none"


def test_a_state_with_the_gate_goes_on_where_it_was(tmp_path):
    stream = clip_like_stream(count=300, classes=6, dim=16, seed=6)
    features, path = mostly_one_class(stream), tmp_path / "state.safetensors"
    adapter = WPTA(stream.classifier)
    adapter.step(features[:150])
    adapter.save(path)
    loaded = pta.load_adapter(path)
    assert torch.equal(loaded.step(features[150:]), adapter.step(features[150:]))


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("gate_total", lambda total: total * 0),
        ("gate_total", lambda total: total + 1e9),
        ("gate_squares", lambda squares: squares * 0),
        ("gate_squares", lambda squares: squares + 1000),
        ("gate_total", lambda total: total * float("nan")),
        ("gate_open", lambda open_by: open_by + 2),
    ],
)
def test_sums_that_no_samples_have_are_refused(name, edit):
    stream = clip_like_stream(count=200, classes=6, dim=16, seed=6)
    for adapter in (GATED(stream.classifier), pta.create_adapter("combined", stream.classifier, base="wpta")):
        adapter.step(stream.features)
        own = name if name in adapter.state() else f"base.{name}"
        snapshot = adapter.snapshot()
        damaged = {**snapshot.tensors, own: edit(snapshot.tensors[own])}
        with pytest.raises(StateMismatch, match="damaged"):
            adapter.restore(replace(snapshot, tensors=damaged))


def test_an_added_class_has_not_come_yet_and_the_gate_stays_closed():
    stream = clip_like_stream(count=300, classes=6, dim=16, seed=6)
    adapter = GATED(stream.classifier)
    adapter.step(mostly_one_class(stream))
    grown = add_class(adapter, "new", np.eye(16)[0])
    assert grown.gate_total.tolist() == [*adapter.gate_total.tolist(), 0.0]
    assert float(grown.gate_open) < 0.01


def test_resetting_a_class_keeps_the_gate_and_resetting_all_opens_it():
    stream = clip_like_stream(count=300, classes=6, dim=16, seed=6)
    adapter = GATED(stream.classifier)
    adapter.step(mostly_one_class(stream))
    closed = float(adapter.gate_open)
    adapter.reset(classes=[0, 1])
    assert float(adapter.gate_open) == closed
    adapter.reset()
    assert float(adapter.gate_open) == 1.0


# -- what it is for ---------------------------------------------------------------------------------------------------


def test_a_frozen_adapter_answers_behind_its_gate():
    stream = clip_like_stream(count=400, classes=6, dim=16, seed=7)
    features = mostly_one_class(stream, 400)
    adapter = GATED(stream.classifier, prior="none")
    adapter.step(features[:200])
    z = stream.classifier.logits(features[200:])
    torch.testing.assert_close(adapter.predict(features[200:]), 1.4 * z, atol=1e-3, rtol=0)


@pytest.mark.parametrize("method", ["wpta", "pta"])
def test_matched_calibration_changes_no_label_and_gives_zero_shots_probabilities_where_the_gate_is_closed(method):
    stream = clip_like_stream(count=400, classes=6, dim=16, seed=7)
    features = mostly_one_class(stream, 400)
    fixed, matched = (
        pta.create_adapter(method, stream.classifier, prior="none", gate="balance", calibration=one)
        for one in ("fixed", "matched")
    )
    plain = pta.create_adapter(method, stream.classifier, prior="none", gate="none", calibration="matched")
    logits, raw = matched.step(features), plain.step(features)
    assert torch.equal(logits.argmax(1), fixed.step(features).argmax(1))
    torch.testing.assert_close(
        matched.state()["calibration_gaps"], plain.state()["calibration_gaps"], atol=1e-9, rtol=0
    )
    torch.testing.assert_close(logits[:2], raw[:2], atol=1e-6, rtol=0)  # before the gate knows anything
    z = stream.classifier.logits(features)
    torch.testing.assert_close(matched.probabilities(logits)[-50:], z.softmax(1)[-50:], atol=1e-3, rtol=0)
