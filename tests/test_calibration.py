"""Calibration without labels: a temperature that is matched as samples come, and changes no label."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from cases import TRANSDUCTIVE
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import clip_like_stream, cuts, streams

import pta
from pta.engines.calibration import GRID, temperatures
from pta.errors import InvalidParameter, StateMismatch
from pta.measure.metrics import calibration_error
from pta.reference.calibration import temperatures_loop, zero_of
from pta.run.gpu.recordable import is_recordable


def matched(method, stream, **parameters):
    return pta.create_adapter(method, stream.classifier, calibration="matched", **parameters)


@pytest.mark.parametrize(
    ("method", "parameters"),
    [("clip", {}), ("pta", {}), ("pta", {"prior": "local"}), ("pta", {"fusion": "probabilities"}), ("tda", {})],
    ids=str,
)
@settings(max_examples=repeated(25))
@given(st.data())
def test_any_stream_in_any_batches_is_divided_by_the_temperatures_of_the_loop(method, parameters, data):
    stream = data.draw(streams(max_count=300))
    raw = pta.create_adapter(method, stream.classifier, **parameters).step(stream.features).numpy()
    adapter = matched(method, stream, **parameters)
    parts = data.draw(cuts(len(stream.features)))
    logits = torch.cat([adapter.step(stream.features[part]) for part in parts])
    z = (stream.scale * stream.features @ stream.anchors.T).numpy()  # without the prior
    np.testing.assert_allclose(logits.numpy(), raw / temperatures_loop(raw, z)[:, None], atol=1e-8, rtol=0)
    assert torch.equal(adapter.probabilities(logits), logits.softmax(dim=1))
    np.testing.assert_array_equal(logits.argmax(dim=1).numpy(), raw.argmax(axis=1))


def test_a_stream_longer_than_the_moving_average_and_than_a_part_gets_the_temperatures_of_the_loop():
    stream = clip_like_stream(1, classes=5, dim=12, count=2500)
    raw = pta.create_adapter("pta", stream.classifier).step(stream.features).numpy()
    z = (stream.scale * stream.features @ stream.anchors.T).numpy()
    logits = matched("pta", stream).step(stream.features).numpy()
    np.testing.assert_allclose(logits, raw / temperatures_loop(raw, z)[:, None], atol=1e-8, rtol=0)


@given(st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=13, max_size=13), st.integers(0, 10**6))
def test_any_gaps_have_the_temperature_of_the_loop(gaps, seen):
    gaps.sort(reverse=True)  # nothing is surer at a higher temperature
    tau = float(temperatures(torch.tensor(gaps, dtype=torch.float64), torch.tensor(seen)))
    assert tau == pytest.approx(2 + (80 + seen * zero_of(dict(zip(GRID, gaps, strict=True)))) / (20 + seen) / 2)
    assert 2.5 <= tau <= 9.5


def test_the_first_sample_is_divided_by_four_and_predict_by_what_the_next_sample_would_be():
    stream = clip_like_stream(2, classes=6, dim=12, count=80)
    adapter = matched("clip", stream)
    z = stream.classifier.logits(stream.features)
    torch.testing.assert_close(adapter.predict(stream.features), z / 4)
    adapter.step(stream.features[:60])
    before = adapter.snapshot().tensors
    stepped = torch.cat([adapter.clone().step(one[None]) for one in stream.features[60:]])
    torch.testing.assert_close(adapter.predict(stream.features[60:]), stepped)
    assert all(torch.equal(tensor, before[name]) for name, tensor in adapter.state().items())


def test_a_method_that_is_too_sure_of_itself_is_brought_nearer_to_its_accuracy():
    stream = clip_like_stream(3, classes=10, dim=24, count=1500, scale=300.0)
    errors = {}
    for calibration in ("fixed", "matched"):
        adapter = pta.create_adapter("pta", stream.classifier, calibration=calibration)
        p, labels = adapter.probabilities(adapter.step(stream.features)).max(dim=1)
        errors[calibration] = calibration_error(p.numpy(), (labels == stream.labels).numpy())
    assert errors["matched"] < errors["fixed"] - 2


def test_single_precision_is_near_double_precision():
    stream = clip_like_stream(4, classes=30, dim=32, count=400)
    wide, narrow = (matched("pta", one).step(one.features) for one in (stream, stream.to(torch.float32)))
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow.double(), wide, atol=2e-3, rtol=0)


@pytest.mark.parametrize("value", [2.0, -2.0, float("nan")])
def test_gaps_that_no_stream_leads_to_are_refused(value):
    stream = clip_like_stream(5, classes=6, dim=12, count=30)
    adapter = matched("pta", stream)
    adapter.step(stream.features)
    snapshot = adapter.snapshot()
    spoilt = snapshot.tensors["calibration_gaps"].clone()
    spoilt[3] = value
    with pytest.raises(StateMismatch, match="calibration_gaps must be"):
        adapter.restore(replace(snapshot, tensors={**snapshot.tensors, "calibration_gaps": spoilt}))


@pytest.mark.parametrize("method", sorted(TRANSDUCTIVE))
def test_methods_that_answer_many_samples_at_once_are_refused_with_the_reason(method):
    stream = clip_like_stream(5, classes=6, dim=12, count=5)
    with pytest.raises(InvalidParameter, match="calibration cannot be matched online"):
        matched(method, stream)


def test_combined_is_calibrated_as_a_whole():
    stream = clip_like_stream(5, classes=6, dim=12, count=5)
    assert matched("combined", stream).other.calibration == "fixed"
    with pytest.raises(InvalidParameter, match="calibration is a parameter of combined itself"):
        pta.create_adapter("combined", stream.classifier, base_parameters={"calibration": "matched"})


def test_segments_are_refused_with_the_reason():
    stream = clip_like_stream(5, classes=6, dim=12, count=5)
    segment = pta.create_adapter("pta", stream.classifier).summarise(stream.features)
    adapter = matched("pta", stream)
    for use in (partial(adapter.summarise, stream.features), partial(adapter.apply, segment)):
        with pytest.raises(InvalidParameter, match='calibration="matched": that depends on every sample before'):
            use()


@pytest.mark.parametrize("batch", [1, 3])
def test_a_calibrated_step_can_be_recorded(batch):
    stream = clip_like_stream(5, classes=6, dim=12, count=5)
    assert is_recordable(matched("clip", stream, prior="local"), batch)


def test_probabilities_are_numbers_where_denormals_are_flushed():
    classifier = pta.ZeroShotClassifier(torch.eye(2, 8), ["a", "b"])
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormal numbers")
    try:
        logits = pta.create_adapter("wpta", classifier).step(torch.eye(3, 8) + 0.1)
    finally:
        torch.set_flush_denormal(False)
    assert bool(logits.isfinite().all())
