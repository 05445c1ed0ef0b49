"""Labels that a person gives: a labelled stream is its loop, in any batches, segments and copies, and nothing leaks."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from streams import clip_like_stream, cuts

import pta
from pta.cluster import cut, run_blocks
from pta.core.labels import NONE, UNKNOWN
from pta.errors import InvalidParameter, InvalidSamples
from pta.methods import adapter_class, list_adapters
from pta.reference.pta import pta_loop
from pta.reference.tda import tda_loop
from pta.reference.wpta import wpta_loop

COUNT, CLASSES = 300, 9
STREAMS = {
    "shuffled": clip_like_stream(1, classes=CLASSES, dim=12, count=COUNT, scale=40.0),
    "sorted": clip_like_stream(2, classes=CLASSES, dim=12, count=COUNT, scale=40.0, in_order=True),
}
LOOPS = {"pta": pta_loop, "wpta": wpta_loop, "tda": tda_loop}
VARIANTS = [
    ("pta", {}),
    ("pta", {"label_weight": 5.0}),
    ("pta", {"label_weight": 0.01, "order": "predict-first"}),
    ("pta", {"variant": "paper"}),
    ("pta", {"anchor": "fixed", "weight": "raw"}),
    ("wpta", {}),
    ("wpta", {"label_weight": 0.3, "depth": 2}),
    ("wpta", {"prior": "none", "gate": "none", "calibration": "fixed"}),
    ("tda", {}),
    ("tda", {"order": "predict-first", "positive_slots": 1}),
]
PAPER = {"min_probability": 0.0, "fusion": "probabilities", "renormalise": False}


def labels_of(share, seed=0):
    """Labels of some samples, half of them wrong."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(CLASSES, size=COUNT)
    return np.where(rng.random(COUNT) < share, drawn, UNKNOWN)


def adapter_for(method, stream, parameters):
    return pta.create_adapter(method, stream.classifier, **parameters)


def loop(method, stream, parameters, labels):
    own = {name: value for name, value in parameters.items() if name != "variant"}
    own = PAPER | own if "variant" in parameters else own
    wide = stream.anchors.double().numpy(), stream.features.double().numpy()
    return torch.from_numpy(LOOPS[method](*wide, scale=stream.scale, labels=labels, **own))


def close(one, other, stream):
    torch.testing.assert_close(one.double(), other, rtol=0, atol=1e-9 * stream.scale)


@pytest.mark.parametrize("order", STREAMS)
@pytest.mark.parametrize(("method", "parameters"), VARIANTS, ids=str)
@pytest.mark.parametrize("size", [1, 7, 256])
def test_a_labelled_stream_is_its_loop(method, parameters, size, order):
    stream, labels = STREAMS[order], labels_of(0.2)
    adapter = adapter_for(method, stream, parameters)
    parts = [slice(start, start + size) for start in range(0, COUNT, size)]
    answers = torch.cat([adapter.step(stream.features[part], labels[part]) for part in parts])
    close(answers, loop(method, stream, parameters, labels), stream)
    unlabelled = loop(method, stream, parameters, None)
    assert (answers - unlabelled).abs().max() > 1e-3  # labels make a difference
    first = int(np.flatnonzero(labels != UNKNOWN)[0])
    close(answers[: first + 1], unlabelled[: first + 1], stream)  # none before it has come, nor for its own answer


@pytest.mark.parametrize("method", LOOPS)
@settings(max_examples=repeated(10))
@given(parts=cuts(COUNT, max_cuts=12))
def test_batches_may_be_cut_anywhere(method, parts):
    stream, labels = STREAMS["shuffled"], labels_of(0.3, seed=1)
    adapter, whole = (adapter_for(method, stream, {}) for _ in range(2))
    answers = torch.cat([adapter.step(stream.features[part], labels[part]) for part in parts])
    torch.testing.assert_close(answers, whole.step(stream.features, labels), rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", LOOPS)
def test_a_saved_and_loaded_state_goes_on_with_the_same_bits(method, tmp_path):
    stream, labels = STREAMS["shuffled"], labels_of(0.2)
    adapter = adapter_for(method, stream, {})
    adapter.step(stream.features[:150], labels[:150])
    adapter.save(tmp_path / "state.safetensors")
    loaded = pta.load_adapter(tmp_path / "state.safetensors", stream.classifier)
    rest = stream.features[150:], labels[150:]
    assert torch.equal(loaded.step(*rest), adapter.step(*rest))
    assert all(
        torch.equal(one, other) for one, other in zip(loaded.state().values(), adapter.state().values(), strict=True)
    )


@pytest.mark.parametrize("method", LOOPS)
def test_labels_that_are_all_unknown_change_no_bit(method):
    stream = STREAMS["sorted"]
    plain, told = (adapter_for(method, stream, {}) for _ in range(2))
    assert torch.equal(plain.step(stream.features), told.step(stream.features, [UNKNOWN] * COUNT))
    assert all(
        torch.equal(one, other) for one, other in zip(plain.state().values(), told.state().values(), strict=True)
    )


@pytest.mark.parametrize("method", LOOPS)
def test_the_answer_to_a_labelled_sample_is_the_answer_without_it(method):
    stream = STREAMS["shuffled"]
    plain, told = (adapter_for(method, stream, {}) for _ in range(2))
    for adapter in (plain, told):
        adapter.step(stream.features[:50])
    answers = plain.step(stream.features[50:51]), told.step(stream.features[50:51], [3])
    torch.testing.assert_close(*answers, rtol=0, atol=1e-12)  # of pta one is compiled
    assert plain.position == told.position == 51


@pytest.mark.parametrize("parameters", [{}, {"label_weight": 3.0}, {"variant": "paper"}, {"anchor": "fixed"}], ids=str)
def test_a_segment_of_a_labelled_stretch_is_applied_as_if_it_was_stepped_through(parameters, tmp_path):
    stream, labels = STREAMS["shuffled"], labels_of(0.2)
    stepped, applied = (adapter_for("pta", stream, parameters) for _ in range(2))
    stepped.step(stream.features, labels)
    parts = [slice(*ends) for ends in pairwise((0, 90, 91, 220, COUNT))]
    for number, part in enumerate(parts):
        segment = applied.summarise(stream.features[part], labels[part])
        segment.save(tmp_path / f"{number}.safetensors")
        assert applied.apply(pta.Segment.load(tmp_path / f"{number}.safetensors"))
    for name in ("knowledge", "anchored", "length", "touched", "seen"):
        tensor = stepped.state()[name]
        torch.testing.assert_close(applied.state()[name], tensor, rtol=0, atol=1e-6)


def test_sums_of_labelled_shards_add_up():
    stream, labels = STREAMS["shuffled"], labels_of(0.2)
    parameters = {"prior": "none", "calibration": "fixed", "gate": "none"}
    whole, shards = (adapter_for("wpta", stream, parameters) for _ in range(2))
    whole.step(stream.features, labels)
    for part in (slice(0, 110), slice(110, COUNT)):
        shards.apply(shards.summarise(stream.features[part], labels[part]))
    for name, tensor in whole.learned.tensors.items():
        torch.testing.assert_close(shards.learned.tensors[name], tensor, rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", LOOPS)
def test_a_sample_of_none_of_the_classes_is_answered_and_not_learned(method):
    stream, labels = STREAMS["shuffled"], labels_of(0.2)
    labels[[0, 40, 41, COUNT - 1]] = NONE
    learned = labels != NONE
    told, without = (adapter_for(method, stream, {}) for _ in range(2))
    answers = told.step_or_answer(pta.Samples.of(stream.features), labels)
    rest = without.step(stream.features[learned], labels[learned])
    torch.testing.assert_close(answers[learned], rest, rtol=0, atol=1e-9)
    assert told.position == without.position == learned.sum()
    alone = adapter_for(method, stream, {}).predict(stream.features[:1])
    torch.testing.assert_close(answers[:1], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", sorted(set(list_adapters()) - set(LOOPS)))
def test_other_methods_refuse_labels(method):
    assert not adapter_class(method).takes_labels


def test_a_method_without_labels_says_which_have_them():
    adapter = pta.create_adapter("dota", STREAMS["shuffled"].classifier)
    with pytest.raises(InvalidParameter, match=r"^dota does not learn labels; pta, wpta and tda do$"):
        adapter.step(STREAMS["shuffled"].features[:2], [0, 1])


@pytest.mark.parametrize(
    ("labels", "refusal"),
    [
        ([0, CLASSES], f"label 1 is {CLASSES}, but classes are 0…{CLASSES - 1}, and -1 is unknown"),
        ([-2, 0], "label 0 is -2, but classes are"),
        ([0.0, 1.0], "label 0 must be a class number, or -1 if it is unknown, got 0.0"),
        ([1, True], "label 1 must be a class number, or -1 if it is unknown, got True"),
        ([1, None], "label 1 must be a class number, or -1 if it is unknown, got None"),
        (["cat", 1], "label 0 must be a class number, or -1 if it is unknown, got 'cat'"),
        (torch.tensor([0.0, 1.0]), "labels must be whole numbers, got torch.float32"),
        (np.array([True, False]), "labels must be whole numbers, got torch.bool"),
        (np.array([2**64 - 1, 0], np.uint64), "label 0 is 18446744073709551615, but classes are"),
        ([0], r"there must be one label per sample, 2, got shape \(1,\)"),
        (3, r"there must be one label per sample, 2, got shape \(\)"),
        ([[0], [1]], "label 0 must be a class number"),
        ("ab", "labels cannot be read as numbers"),
        (np.ma.array([5, 5], mask=[1, 1]), "labels are a masked array"),
    ],
    ids=str,
)
@pytest.mark.parametrize("method", LOOPS)
def test_bad_labels_are_refused_in_one_line_and_change_nothing(method, labels, refusal):
    stream = STREAMS["shuffled"]
    adapter = adapter_for(method, stream, {})
    before = adapter.to_bytes()
    with pytest.raises(InvalidSamples, match=refusal):
        adapter.step(stream.features[:2], labels)
    assert adapter.to_bytes() == before


def test_raw_weights_are_at_most_one():
    with pytest.raises(InvalidParameter, match="label_weight is at most 1"):
        pta.create_adapter("pta", STREAMS["shuffled"].classifier, weight="raw", label_weight=2.0)


@pytest.mark.parametrize("size", [37, 100, COUNT])
@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("pta", {}),
        ("pta", {"w": 0.9}),  # R forgets so slowly that blocks are repaired
        ("pta", {"w": 0.9, "min_probability": 0.0}),  # so many touches that they are found again
        ("pta", {"anchor": "fixed", "label_weight": 4.0}),
        ("pta", {"renormalise": False}),
        ("wpta", {"prior": "none", "calibration": "fixed"}),
    ],
    ids=str,
)
def test_a_labelled_stream_in_blocks_is_the_stream(method, parameters, size):
    stream, labels = STREAMS["shuffled"], labels_of(0.2)
    labels[[0, 36, 37, 38, 99, 250]] = NONE
    adapter, without = (adapter_for(method, stream, parameters) for _ in range(2))
    told = {number: int(labels[number]) for number in range(COUNT) if labels[number] != UNKNOWN}
    kept = [number for number in range(COUNT) if number != 120]  # which could not be read, and has no label
    logits = without.step_or_answer(pta.Samples.of(stream.features[kept]), labels[kept])
    run = run_blocks(adapter, cut(kept, stream.features[kept], size, failed=[120], labels=told))
    assert torch.cat([answers.numbers for answers in run.answers]).tolist() == kept
    assert torch.equal(torch.cat([answers.labels for answers in run.answers]), logits.argmax(dim=1))
    chances = without.probabilities(logits).amax(dim=1)
    torch.testing.assert_close(
        torch.cat([answers.probabilities for answers in run.answers]), chances, rtol=0, atol=1e-4
    )
    for name in ("knowledge", "anchored", "sums", "weights", "gram", "seen"):
        if name in run.end:
            torch.testing.assert_close(run.end[name], without.state()[name], rtol=0, atol=2e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("method", LOOPS)
def test_a_labelled_stream_on_a_gpu_is_that_on_the_host(method):
    stream, labels = STREAMS["shuffled"].to(torch.float32), labels_of(0.2)
    host, device = adapter_for(method, stream, {}), adapter_for(method, stream, {}).to("cuda")
    answers = torch.cat(
        [device.step(stream.features[at : at + 64], labels[at : at + 64]) for at in range(0, COUNT, 64)]
    )
    torch.testing.assert_close(answers.cpu(), host.step(stream.features, labels), rtol=0, atol=2e-3)


@pytest.mark.parametrize(
    ("labels", "refusal"),
    [({0: 1.7}, "whole numbers"), ({0: True}, "whole numbers"), ({500: 1}, "sample 500 has a label, but no features")],
)
def test_labels_of_blocks_are_whole_numbers_of_samples(labels, refusal):
    with pytest.raises(InvalidSamples, match=refusal):
        cut(range(COUNT), STREAMS["shuffled"].features, labels=labels)
