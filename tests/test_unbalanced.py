"""Unbalanced streams: one class nearly always, most classes never, a power law; and drawn look-alike classes."""

import csv
import json
from itertools import groupby

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from streams import feature_file

from pta import Samples, ZeroShotClassifier, list_adapters
from pta.data.features import FeatureFile, drawn
from pta.data.orders import absent, bursts, rare, zipf
from pta.errors import InvalidParameter, InvalidSamples
from pta.measure.evaluate import MethodSummary, evaluate
from pta.measure.stream import Stream
from pta.methods import create_adapter, needs_model, needs_of_samples

SEEDS = st.integers(0, 2**32)
LABELS = st.lists(st.integers(0, 6), min_size=2, max_size=60).filter(lambda some: len(set(some)) > 1).map(np.array)
SHARES = st.floats(0.01, 0.99)
FEW = np.arange(30) % 5  # five classes of six samples


def repeating(labels, share, exponent, seed, length):
    """One of each order in which samples come again."""
    return {
        "rare": rare(labels, share, seed, length=length),
        "bursts": bursts(labels, seed, length=length),
        "zipf": zipf(labels, exponent, seed, length=length),
    }


# -- laws -------------------------------------------------------------------------------------------------------------


@given(LABELS, SHARES, st.floats(0, 3), SEEDS, st.integers(1, 300))
def test_equal_seeds_give_equal_orders_of_the_length_asked_for(labels, share, exponent, seed, length):
    once, again = (repeating(labels, share, exponent, seed, length) for _ in range(2))
    for kind, order in once.items():
        assert order.dtype == np.int64
        assert len(order) == length
        assert order.tolist() == again[kind].tolist()
    assert absent(labels, share, seed, classes=7).tolist() == absent(labels, share, seed, classes=7).tolist()


def test_another_seed_is_another_order_and_another_common_class():
    common = {"rare": set(), "bursts": set(), "zipf": set()}
    for seed in range(40):
        for kind, order in repeating(FEW, 0.9, 3.0, seed, 400).items():
            common[kind].add(int(np.bincount(FEW[order]).argmax()))
    assert common == {kind: set(range(5)) for kind in common}
    assert absent(FEW, 0.4, 1, classes=5).tolist() != absent(FEW, 0.4, 2, classes=5).tolist()


@given(LABELS, SHARES, st.floats(0, 3), SEEDS, st.integers(1, 300))
def test_a_sample_comes_again_only_after_all_others_of_its_class(labels, share, exponent, seed, length):
    for order in repeating(labels, share, exponent, seed, length).values():
        for label in set(labels.tolist()):
            own, came = set(np.flatnonzero(labels == label).tolist()), order[labels[order] == label].tolist()
            first = came[: len(own)]
            assert len(set(first)) == len(first)
            assert set(first) <= own
            assert came == [first[at % len(own)] for at in range(len(came))]


@pytest.mark.parametrize("share", [0.5, 0.7, 0.95])
def test_the_common_class_of_a_rare_stream_has_its_share_and_the_others_equal_parts_of_the_rest(share):
    length = 40_000
    counts = np.sort(np.bincount(FEW[rare(FEW, share, 3, length=length)], minlength=5))[::-1] / length
    assert counts[0] == pytest.approx(share, abs=0.015)
    assert counts[1:] == pytest.approx(np.full(4, (1 - share) / 4), abs=0.015)


@given(LABELS, SEEDS, st.integers(1, 600))
def test_bursts_interrupt_long_stretches_of_one_class(labels, seed, length):
    runs = [(label, len(list(run))) for label, run in groupby(labels[bursts(labels, seed, length=length)])]
    common = runs[0][0]
    assert all(label == common for label, _ in runs[::2])
    assert all(label != common for label, _ in runs[1::2])
    *whole, last = (count for _, count in runs)
    assert all(20 <= count < 60 for count in whole[::2])
    assert all(2 <= count < 6 for count in whole[1::2])
    assert last < (60 if len(runs) % 2 else 6)


def test_stretches_and_bursts_have_all_lengths_and_bursts_all_other_classes():
    runs = [(label, len(list(run))) for label, run in groupby(FEW[bursts(FEW, 1, length=60_000)])][:-1]
    assert {count for _, count in runs[::2]} == set(range(20, 60))
    assert {count for _, count in runs[1::2]} == set(range(2, 6))
    assert len({label for label, _ in runs[1::2]}) == 4


@given(LABELS, SHARES, SEEDS, st.integers(7, 20))
def test_of_the_classes_that_occur_every_sample_comes_once_and_no_other(labels, share, seed, classes):
    order = absent(labels, share, seed, classes=classes)
    present = set(labels[order].tolist())
    assert sorted(order.tolist()) == np.flatnonzero(np.isin(labels, list(present))).tolist()
    assert len(present) == min(len(set(labels.tolist())), max(2, int(classes * share + 1e-6)))


def test_a_share_of_the_listed_classes_occurs_and_a_length_cuts_the_stream():
    labels = np.arange(600) % 100
    whole = absent(labels, 0.29, 1, classes=100)
    assert len(set(labels[whole].tolist())) == 29
    assert absent(labels, 0.29, 1, classes=100, length=50).tolist() == whole[:50].tolist()
    assert absent(labels, 0.29, 1, classes=100, length=5000).tolist() == whole.tolist()
    assert len(set(labels[absent(labels, 0.29, 1, classes=1000)].tolist())) == 100  # fewer have samples than may occur


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])
def test_frequencies_of_a_zipf_stream_follow_the_power_law(exponent):
    labels, length = np.arange(160) % 8, 80_000
    found = np.sort(np.bincount(labels[zipf(labels, exponent, 4, length=length)], minlength=8))[::-1] / length
    expected = 1 / np.arange(1, 9) ** exponent
    assert found == pytest.approx(expected / expected.sum(), abs=0.01)
    assert len(zipf(labels, exponent, 4)) == 160  # as many as there are, unless a length is given


@pytest.mark.parametrize("make", [lambda: rare([1, 1], 0.9, 1), lambda: bursts([1, 1], 1)])
def test_one_class_alone_makes_no_rare_others(make):
    with pytest.raises(InvalidParameter, match="needs samples of 2 classes or more, but only one class has any"):
        make()


# -- look-alike classes -----------------------------------------------------------------------------------------------


@given(st.integers(2, 5), SEEDS)
def test_drawn_classes_are_one_and_those_nearest_to_its_text(count, seed):
    data = feature_file()
    part = drawn(data, count, seed)
    first, *others = (data.classifier.class_names.index(name) for name in part.classifier.class_names)
    cosines = data.classifier.anchors.double() @ data.classifier.anchors[first].double()
    nearest = [number for number in cosines.argsort(descending=True).tolist() if number != first]
    assert others == nearest[: count - 1]
    torch.testing.assert_close(part.classifier.anchors, data.classifier.anchors[[first, *others]], rtol=0, atol=0)
    assert (part.classifier.scale, part.name, part.dataset) == (data.classifier.scale, data.name, data.dataset)


@given(st.integers(2, 5), SEEDS)
def test_a_part_has_all_samples_of_its_classes_and_knows_their_numbers(count, seed):
    data = feature_file()
    part = drawn(data, count, seed)
    wanted = np.flatnonzero(np.isin(data.labels, part.part.classes))
    assert part.part.whole is data
    assert part.part.samples.tolist() == wanted.tolist()
    assert part.part.classes[part.labels].tolist() == data.labels[wanted].tolist()
    assert torch.equal(part.samples.features, data.samples.features[wanted])


def test_another_seed_draws_other_classes_and_a_class_without_samples_is_never_drawn():
    data = feature_file()
    assert len({drawn(data, 2, seed).classifier.class_names[0] for seed in range(40)}) == 5
    data = FeatureFile("made", data.samples, data.classifier, np.minimum(data.labels, 3))
    assert {name for seed in range(40) for name in drawn(data, 4, seed).classifier.class_names} == {
        f"class {number}" for number in range(4)
    }


def test_a_part_keeps_paths_prompts_and_views():
    rng = np.random.default_rng(1)
    samples = Samples.of(rng.standard_normal((6, 4)), views=rng.standard_normal((6, 3, 4)))
    prompts = [[f"a photo of {name}"] for name in "abc"]
    classifier = ZeroShotClassifier(rng.standard_normal((3, 4)), list("abc"), prompts=prompts)
    data = FeatureFile("made", samples, classifier, np.array([0, 1, 2, 0, 1, 2]), paths=tuple("uvwxyz"))
    part = drawn(data, 2, 1)
    assert part.paths == tuple("uvwxyz"[number] for number in part.part.samples)
    assert part.classifier.prompts == tuple((f"a photo of {name}",) for name in part.classifier.class_names)
    assert torch.equal(part.samples.views, samples.views[part.part.samples])


@pytest.mark.parametrize("count", [0, 1, 6, 10**30, 2.0, None])
def test_only_two_or_more_of_the_classes_can_be_drawn(count):
    with pytest.raises(InvalidParameter, match=r"classes_drawn must be|of these two or more can be drawn"):
        drawn(feature_file(), count, 1)


def test_without_labels_nothing_is_drawn():
    with pytest.raises(InvalidSamples, match="made has no labels, without which no classes can be drawn"):
        next(evaluate(feature_file(labelled=False), {"clip": {}}, [1], stream=Stream(classes_drawn=2)))


# -- evaluations ------------------------------------------------------------------------------------------------------

UNBALANCED = [
    Stream("rare"),
    Stream("rare", share=0.8, length=120),
    Stream("bursts", length=130),
    Stream("absent", share=0.5),
    Stream("absent", share=0.5, length=10),
    Stream("zipf"),
    Stream("zipf", exponent=0.0, length=200),
]
STREAMS = [*UNBALANCED, *(Stream(kind, classes_drawn=3) for kind in ("iid", "separate", "poisoned", "rare", "zipf"))]


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: str(stream.record(16)))
def test_a_record_counts_the_answers_of_an_unbalanced_stream(stream):
    data = feature_file()
    (found,) = evaluate(data, {"pta": {}}, seeds=[2], stream=stream, batch=16)
    part = stream.part(data, 2)
    order = stream.order(part, 2, 16)
    record, right = found.record(), found.run.predictions == part.labels[order]
    assert found.run.order.tolist() == order.tolist()
    assert record["n"] == len(order) == stream.samples_seen(part, 2, 16)
    assert record["accuracy"] == pytest.approx(100 * right.mean())
    assert found.zero_shot_accuracy == pytest.approx(100 * (part.zero_shot_predictions == part.labels)[order].mean())
    by_class = [100 * right[part.labels[order] == label].mean() for label in np.unique(part.labels[order])]
    assert [value for value in record["class_accuracies"] if value is not None] == pytest.approx(by_class)
    assert record["mean_per_class"] == pytest.approx(np.mean(by_class))
    assert record["worst_class"]["accuracy"] == pytest.approx(min(by_class))
    assert MethodSummary.of([record]).mean_per_class == record["mean_per_class"]
    assert json.loads(json.dumps(record, allow_nan=False)) == record


@pytest.mark.parametrize("stream", [*UNBALANCED, Stream("rare", classes_drawn=2)], ids=lambda one: str(one.record(16)))
def test_every_method_runs_over_samples_that_come_again(stream):
    data = feature_file()
    methods = {
        name: {}
        for name in list_adapters()
        if needs_of_samples(name, {}) <= data.samples.provides and not needs_model(name, {})
    }
    assert len(methods) > 10
    for found in evaluate(data, methods, seeds=[1], stream=stream, batch=16):
        adapter = create_adapter(found.run.method, found.data.classifier, source=len(found.run.order))
        assert found.run.parameters == adapter.parameters  # also those that follow from the length
        assert len(found.run.predictions) == len(found.run.order)


def test_an_incomplete_last_batch_is_left_out_of_the_streams_own_length():
    stream = Stream("rare", length=50, drop_last=True)
    (found,) = evaluate(feature_file(), {"pta": {}}, seeds=[1], stream=stream, batch=16)
    assert found.record()["n"] == 48
    with pytest.raises(InvalidParameter, match="the stream of made has 50 samples, less than one batch of 64"):
        next(evaluate(feature_file(), {"pta": {}}, seeds=[1], stream=stream, batch=64))


def test_each_kind_has_its_own_defaults():
    shown = {"batch": 256, "drop_last": False, "lookahead": False}
    assert Stream("rare").record(256) == {"kind": "rare", "share": 0.95, "length": 400, **shown}
    assert Stream("bursts").record(256) == {"kind": "bursts", "length": 400, **shown}
    assert Stream("absent").record(256) == {"kind": "absent", "share": 0.1, "length": "all", **shown}
    assert Stream("zipf").record(256) == {"kind": "zipf", "exponent": 1.0, "length": "all", **shown}
    assert Stream(classes_drawn=3).record(256) == {"kind": "iid", "classes_drawn": 3, **shown}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"kind": "iid", "share": 0.5}, "share is a parameter of the streams rare, absent, but the stream is iid"),
        ({"kind": "rare", "exponent": 1.0}, "exponent is a parameter of the stream zipf, but the stream is rare"),
        ({"kind": "poisoned", "length": 9}, "length is a parameter of the streams rare, bursts, absent, zipf"),
        ({"kind": "rare", "share": 1.0}, "share must be a number above 0 and below 1, not 1.0"),
        ({"kind": "absent", "share": 0.0}, "share must be a number above 0 and below 1, not 0.0"),
        ({"kind": "absent", "share": float("nan")}, "share must be a number above 0 and below 1"),
        ({"kind": "zipf", "exponent": -0.1}, "exponent must be a number from 0 to 100"),
        ({"kind": "bursts", "length": 0}, "length must be a whole number from 1"),
    ],
)
def test_a_parameter_that_makes_no_stream_is_refused(given, complaint):
    with pytest.raises(InvalidParameter, match=complaint):
        Stream(**given)


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def evaluated(pta, pets, tmp_path):
    """The records of `pta eval` with these options, and what it prints."""

    def evaluated(*options, name="records.json"):
        done = pta("eval", "--features", pets, *options, "--json", tmp_path / name, "--replace")
        assert done.returncode == 0, done.stderr
        return json.loads((tmp_path / name).read_text()), done

    return evaluated


def test_eval_shows_and_records_the_mean_per_class(evaluated, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    records, done = evaluated("--stream", "rare", "--share", "0.9", "--length", "150", "--method", "clip")
    assert "mean per class" in done.stdout
    assert f"{records[0]['mean_per_class']:.2f}" in done.stdout
    assert (records[0]["stream"]["share"], records[0]["n"]) == (0.9, 150)


def test_records_name_the_drawn_classes_and_predictions_the_numbers_of_the_file(evaluated, pets, tmp_path):
    options = ("--classes-drawn", 2, "--seed", 1, "--seed", 2, "--seed", 3, "--method", "pta")
    records, done = evaluated(*options, "--stream", "bursts", "--predictions", tmp_path / "predictions")
    assert "3 seed(s)" in done.stdout
    file = np.load(pets)
    assert len({tuple(record["drawn_classes"]) for record in records}) > 1
    for record in records:
        assert record["stream"]["classes_drawn"] == len(record["drawn_classes"]) == len(record["class_accuracies"]) == 2
        with (tmp_path / "predictions" / f"pta-{record['seed']}.csv").open() as rows:
            for row in csv.DictReader(rows):
                assert int(row["label"]) == file["labels"][int(row["index"])]
                assert row["true_class"] == file["classnames"][int(row["label"])]
                assert row["predicted_class"] == file["classnames"][int(row["prediction"])]
                assert {row["true_class"], row["predicted_class"]} <= set(record["drawn_classes"])


def test_results_of_streams_with_repeated_samples_and_drawn_classes_can_be_compared(evaluated, pta, tmp_path):
    options = ("--stream", "rare", "--classes-drawn", 3, "--seed", 1, "--seed", 2)
    records, _ = evaluated(*options)
    done = pta("compare", tmp_path / "records.json", "--a", "clip", "--b", "pta", "--json", tmp_path / "c.json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads((tmp_path / "c.json").read_text())
    for side, method in (("a", "clip"), ("b", "pta")):
        own = [record["accuracy"] for record in records if record["method"] == method]
        assert found[side]["accuracy"] == pytest.approx(np.mean(own))
    assert found["n"] < 300
    evaluated(*options[2:], name="iid.json")
    paired = pta("compare", tmp_path / "records.json", tmp_path / "iid.json", "--a", "pta", "--b", "pta")
    assert "stream.kind=rare" in paired.stdout
    for other in (("--classes-drawn", 2, *options[4:]), options[4:], ("--classes-drawn", 3, "--seed", 7)):
        evaluated("--stream", "rare", *other, name="other.json")
        refused = pta("compare", tmp_path / "records.json", tmp_path / "other.json", "--a", "pta", "--b", "pta")
        assert refused.returncode == 2
        assert "compare runs with the same --classes-drawn and --seed" in refused.stderr
        (tmp_path / "other.json").unlink()


def test_a_sweep_runs_over_drawn_classes_and_finds_its_results_again(pta, pets, tmp_path):
    options = ("--stream", "zipf", "--classes-drawn", 3, "--seed", 1, "--seed", 2, "--set", "pta.h=5,20")
    for name in ("one.json", "two.json"):
        done = pta("sweep", "--features", pets, *options, "--json", tmp_path / name)
        assert done.returncode == 0, done.stderr
    one, two = (json.loads((tmp_path / name).read_text()) for name in ("one.json", "two.json"))
    assert one == two
    assert {record["stream"]["classes_drawn"] for record in one} == {3}
    assert len({tuple(record["drawn_classes"]) for record in one}) == 2


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--classes-drawn", "5"), "pets has samples of 4 classes; of these two or more can be drawn, not 5"),
        (("--classes-drawn", "1"), "of these two or more can be drawn, not 1"),
        (("--share", "0.5"), "share is a parameter of the streams rare, absent, but the stream is iid"),
        (("--stream", "rare", "--share", "1"), "share must be a number above 0 and below 1, not 1.0"),
        (("--stream", "separate", "--length", "9"), "length is a parameter of the streams"),
        (("--stream", "zipf", "--exponent", "-1"), "exponent must be a number from 0 to 100"),
        (("--stream", "bursts", "--length", "0"), "length must be a whole number from 1"),
        (("--stream", "rare", "--drop-last", "--batch", "500"), "400 samples, less than one batch of 500"),
        (("--stream", "burst"), "did you mean 'bursts'?"),
    ],
)
@pytest.mark.parametrize("command", [("eval",), ("sweep", "--set", "pta.h=5,20")], ids=lambda one: one[0])
def test_a_mistake_is_one_clear_line_and_exit_code_2(pta, pets, command, options, complaint):
    done = pta(*command, "--features", pets, *options)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert complaint in done.stderr
