"""What is counted of a run, against loops that count it slowly, and the record that is kept of it."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from refusals import refusal
from streams import feature_file

from pta.data.features import FeatureFile
from pta.measure import metrics
from pta.measure.evaluate import evaluate
from pta.measure.record import read_bits, write_bits
from pta.measure.stream import Stream

rights = st.integers(1, 60).flatmap(lambda count: arrays(np.bool_, count))
EDGES = [
    *(k / 15 for k in range(16)),
    *(np.nextafter(dtype(k / 15), dtype(1)) for k in range(1, 15) for dtype in (np.float32, np.float64)),
]


@st.composite
def runs(draw):
    """Right answers, what zero-shot got right, labels and confidences of one stream."""
    right = draw(rights)
    count, classes = len(right), draw(st.integers(1, 8))
    confidences = st.one_of(st.floats(0, 1, width=32), st.sampled_from(EDGES))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return (
        right,
        draw(arrays(np.bool_, count)),
        draw(arrays(np.int64, count, elements=st.integers(0, classes - 1))),
        classes,
        np.array(draw(st.lists(confidences, min_size=count, max_size=count)), dtype),
    )


# -- metrics ----------------------------------------------------------------------------------------------------------


def slow_calibration_error(confidences, right):
    """Bin by bin: its share of the samples times the gap between mean confidence and accuracy; bins are ]low, high]."""
    total = 0.0
    for k in range(15):
        low, high = confidences.dtype.type(k / 15), confidences.dtype.type((k + 1) / 15)
        inside = [i for i, c in enumerate(confidences) if low < c <= high or (k == 0 and c == 0)]
        if inside:
            mean = sum(float(confidences[i]) for i in inside) / len(inside)
            good = sum(bool(right[i]) for i in inside) / len(inside)
            total += len(inside) / len(right) * abs(mean - good)
    return 100 * total


@given(runs())
def test_what_is_counted_is_what_loops_count(run):
    right, before, labels, classes, confidences = run
    online, (fixed, broken) = metrics.online_accuracy(right), metrics.changes(right, before)
    good = mended = spoilt = 0
    for position, (now, then) in enumerate(zip(right.tolist(), before.tolist(), strict=True)):
        good, mended, spoilt = good + now, mended + (now and not then), spoilt + (then and not now)
        assert online[position] == pytest.approx(100 * good / (position + 1), abs=1e-12)
        assert (fixed[position], broken[position]) == (mended, spoilt)
    assert metrics.accuracy(right) == online[-1]
    for number, found in enumerate(metrics.class_accuracies(right, labels, classes)):
        own = right[labels == number].tolist()
        assert found == (100 * sum(own) / len(own) if own else None)
    error = metrics.calibration_error(confidences, right)
    assert error == pytest.approx(slow_calibration_error(confidences, right), abs=1e-9)


# -- bits -------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 70).flatmap(lambda count: arrays(np.bool_, count)))
def test_bits_come_back_as_they_were_written(values):
    found = read_bits(write_bits(values), len(values))
    assert found.dtype == np.bool_
    assert found.tolist() == values.tolist()


@pytest.mark.parametrize(
    ("text", "count"),
    [
        *(("kA=", 4), ("k", 4), ("k*==", 4), ("ké==", 4), (None, 4)),  # truncated, or never base64
        *(("kA==", 9), ("", 1), ("kAA=", 8)),  # of fewer samples, of more
        *(("kB==", 4), ("kQ==", 4)),  # what no writer would have written, a right answer beyond the last sample
    ],
)
def test_a_damaged_record_of_right_answers_is_one_clear_line(text, count):
    assert "record of correct predictions" in refusal(read_bits, text, count)


# -- records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [Stream(), Stream(drop_last=True), Stream("separate", lookahead=True)], ids=str)
def test_a_record_says_which_samples_were_seen_and_which_of_them_were_right(stream):
    data = feature_file(150)
    (done,) = evaluate(data, {"pta": {"h": 1.0}}, seeds=[3], stream=stream, batch=64)
    record, run = done.record(), done.run
    seen = read_bits(record["seen"], record["samples"])
    right = read_bits(record["right"], record["samples"])
    assert (record["samples"], record["n"]) == (150, 128 if stream.drop_last else 150)
    assert np.flatnonzero(seen).tolist() == sorted(run.order.tolist())
    predicted = dict(zip(run.order.tolist(), run.predictions.tolist(), strict=True))
    assert right.tolist() == [predicted.get(number) == label for number, label in enumerate(data.labels.tolist())]
    assert record["accuracy"] == 100 * right.sum() / seen.sum()
    zero_shot = data.zero_shot_predictions == data.labels
    assert record["fixed"] == int((right & ~zero_shot & seen).sum())
    assert record["broken"] == int((~right & zero_shot & seen).sum())


def test_the_worst_class_is_the_lowest_of_those_that_occur():
    data = feature_file(150)
    data = FeatureFile("made", data.samples, data.classifier, np.minimum(data.labels, 3))  # none of the last class
    (done,) = evaluate(data, {"clip": {}}, seeds=[1])
    record = done.record()
    assert record["class_accuracies"][4] is None
    worst = min(range(4), key=lambda number: record["class_accuracies"][number])
    assert record["worst_class"] == {"name": f"class {worst}", "accuracy": record["class_accuracies"][worst]}


@pytest.mark.parametrize(
    ("count", "first", "points"), [(1, 1, 1), (99, 99, 1), (100, 100, 1), (150, 100, 51), (1000, 100, 200)]
)
def test_the_curve_begins_after_the_cold_start_and_each_of_its_few_points_is_that_of_its_place(count, first, points):
    (done,) = evaluate(feature_file(count), {"pta": {}}, seeds=[1])
    record, right = done.record(), done.run.correct
    curve = record["online"]
    places = curve["samples"]
    assert (places[0], places[-1], len(places)) == (first, count, points)
    assert places == sorted(set(places))
    assert curve["accuracy"] == pytest.approx([100 * right[:place].mean() for place in places], abs=5e-4)
    assert curve["zero_shot"][-1] == pytest.approx(record["zero_shot_accuracy"], abs=5e-4)
    assert (curve["fixed"][-1], curve["broken"][-1]) == (record["fixed"], record["broken"])


def test_without_labels_nothing_is_counted():
    (done,) = evaluate(feature_file(150, labelled=False), {"pta": {}}, seeds=[1])
    record = done.record()
    assert record["accuracy"] is record["zero_shot_accuracy"] is None
    counted = "calibration_error raw_calibration_error class_accuracies worst_class fixed broken online seen right"
    assert not set(counted.split()) & set(record)
    assert json.loads(json.dumps(record, allow_nan=False)) == record
