"""What was learned, looked at, merged, given a class and exported: in Python and by `pta state`."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from photos import FASHION, write_classes, write_photos
from rich.console import Console

import pta
from pta.cli.state import state_table
from pta.data.features import load_features
from pta.door.claims import sole_writer
from pta.door.files import load_tensors
from pta.errors import InvalidParameter, PtaError, StateMismatch
from pta.methods import Adapter, adapter_class, create_adapter, list_adapters, load_adapter
from pta.methods.classes import add_class, anchor_from, class_prototypes, class_table
from pta.methods.merging import merge
from pta.run.classifier import Classifier

NEWT = 2  # a class of the pets


@pytest.fixture
def animals(pets):
    return load_features(pets)


def learned(animals, method="pta", samples=slice(0, 200), **parameters):
    adapter = pta.create_adapter(method, animals.classifier, **parameters)
    adapter.step(animals.samples[samples])
    return adapter


def three_classes(animals):
    """The classifier without newts."""
    rest = [0, 1, 3]
    names = [animals.classifier.class_names[number] for number in rest]
    return pta.ZeroShotClassifier(animals.classifier.anchors[rest], names)


# -- in Python --------------------------------------------------------------------------------------------------------


def test_a_table_says_what_each_class_has_learned_and_how_far_it_is_from_its_text(animals):
    adapter = learned(animals, "wpta", prior="none")
    for row, total, weight, text in zip(
        class_table(adapter), adapter.sums, adapter.weights, animals.classifier.anchors, strict=True
    ):
        assert row.learned
        assert row.samples == pytest.approx(float(weight))
        assert row.cosine == pytest.approx(float(torch.cosine_similarity(total, text.double(), dim=0)), abs=1e-6)
    new = class_table(pta.create_adapter("wpta", animals.classifier))
    assert [(row.learned, row.samples, row.cosine) for row in new] == [(False, 0.0, None)] * 4


@pytest.mark.parametrize("renormalise", [True, False])
def test_a_class_that_learned_nothing_is_told_from_one_that_did(animals, renormalise):
    adapter = pta.create_adapter("pta", animals.classifier, renormalise=renormalise)
    adapter.step(animals.classifier.anchors[:2].repeat(10, 1))
    rows = class_table(adapter)
    assert [row.learned for row in rows] == adapter.touched.tolist() == [True, True, False, False]
    assert [row.samples for row in rows] == [None] * 4
    assert [row.cosine for row in rows[2:]] == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(
    "method", sorted(set(list_adapters()) - {"histpt", "tca", "tpt", "difftpt", "difftpt-augmented"})
)
def test_what_methods_declare_per_class_exists(animals, method):
    one_text = {"prompts": "one"} if method == "etta" else {}
    adapter = pta.create_adapter(method, animals.classifier, source=len(animals.samples), **one_text)
    for declared, shape in ((adapter.prototypes_in, (4, 16)), (adapter.counts_in, (4,))):
        assert not declared or adapter.state()[declared].shape == shape
    assert not any(row.learned for row in class_table(adapter))


def test_the_document_says_to_which_methods_a_class_can_be_added():
    page = (Path(__file__).parents[1] / "docs" / "states.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    said = {name: says for names, says in rows for name in re.findall(r"`([\w-]+)`", names)}
    for name in list_adapters():
        reason = adapter_class(name).fixed_classes
        if reason != Adapter.fixed_classes:  # it has a state per class
            assert said[name] == f"no: {reason}" if reason else said[name].startswith(("yes", "if"))


def test_an_added_class_is_recognised_and_the_others_answer_as_before(animals):
    before = pta.create_adapter("pta", three_classes(animals))
    before.step(animals.samples[:150])
    after = add_class(before, "newt", animals.classifier.anchors[NEWT])
    assert after.classifier.class_names == ("cat", "dog", "owl", "newt")
    samples = animals.samples[150:]
    torch.testing.assert_close(after.predict(samples)[:, :3], before.predict(samples), rtol=1e-5, atol=1e-3)
    assert int(after.predict(animals.classifier.anchors[[NEWT]]).argmax()) == 3
    after.step(samples)
    assert class_table(after)[3].learned
    assert before.position == 150


def test_a_class_is_not_added_where_it_makes_no_sense(animals):
    adapter, anchor = pta.create_adapter("pta", three_classes(animals)), animals.classifier.anchors[NEWT]
    for name, given, mistake, complaint in (
        ("cat", anchor, InvalidParameter, "there is a class 'cat' already"),
        ("newt", anchor[:5], InvalidParameter, "must have 16 numbers"),
        ("newt", 0 * anchor, InvalidParameter, "anchor 3"),
    ):
        with pytest.raises(mistake, match=complaint):
            add_class(adapter, name, given)
    for method, reason in (("tda", "negative cache"), ("bca", "a distribution over the classes"), ("oga", "entropy")):
        with pytest.raises(StateMismatch, match=f"to a state of {method}: .*{reason}"):
            add_class(pta.create_adapter(method, three_classes(animals)), "newt", anchor)


def test_an_anchor_of_another_model_is_refused(animals):
    own, all_four = three_classes(animals), animals.classifier
    assert torch.equal(anchor_from(all_four, "newt", own), all_four.anchors[NEWT])
    turned = pta.ZeroShotClassifier(all_four.anchors.flip(1), all_four.class_names)
    with pytest.raises(StateMismatch, match=r"another text feature for '(cat|dog|owl)'"):
        anchor_from(turned, "newt", own)
    with pytest.raises(InvalidParameter, match="did you mean 'newt'"):
        anchor_from(all_four, "newts", own)
    with pytest.raises(StateMismatch, match="no class of the state is among the text features"):
        anchor_from(pta.ZeroShotClassifier(all_four.anchors[:2], ["newt", "toad"]), "newt", own)


def test_a_state_and_the_segments_after_it_are_the_state_after_all_samples(animals):
    state, whole = learned(animals, samples=slice(0, 100)), learned(animals, samples=slice(0, 300))
    parts = [state.summarise(animals.samples[100:180]), state.summarise(animals.samples[180:300])]
    for given in ([state, *parts], [state, merge(parts).part]):
        merged = merge(given)
        assert merged.exact
        assert merged.part.position == 300
        torch.testing.assert_close(merged.part.anchored, whole.anchored, atol=1e-4, rtol=1e-4)
    assert state.position == 100


def test_states_of_wpta_add_up_exactly_where_their_streams_learn_apart(animals):
    slices = [slice(0, 100), slice(100, 180), slice(180, 300)]
    apart = [learned(animals, "wpta", part, prior="none") for part in slices]
    merged, whole = merge(apart), learned(animals, "wpta", slice(0, 300), prior="none")
    assert merged.exact
    for name in ("total", "gram", "sums", "weights", "seen"):
        torch.testing.assert_close(getattr(merged.part, name), getattr(whole, name))
    with_prior = merge([learned(animals, "wpta", part) for part in slices])
    assert not with_prior.exact
    assert "the prior is that of the last state" in with_prior.note
    assert torch.equal(with_prior.part.local_fast, learned(animals, "wpta", slices[2]).local_fast)


def test_what_cannot_be_merged_is_refused_with_the_reason(animals):
    state, wpta = learned(animals), learned(animals, "wpta")
    segment = state.summarise(animals.samples[:50])
    other = pta.create_adapter("pta", three_classes(animals))
    for parts, complaint in (
        ([state, state], "how much its stream has forgotten"),
        ([learned(animals, "tda")] * 2, "states of tda cannot be merged"),
        ([segment, state], "a state comes before the segments"),
        ([state, segment, state], "states and segments are mixed"),
        ([wpta, segment], "applied to a state of pta, not of wpta"),
        ([other, segment], "another classifier"),
        ([learned(animals, h=5.0), segment], "was summarised with"),
        ([wpta, learned(animals, "tda")], "a state of wpta and one of tda cannot be merged"),
        ([wpta, learned(animals, "wpta", depth=2)], "different parameters"),
        ([wpta, pta.create_adapter("wpta", three_classes(animals))], "another classifier"),
        ([state], "two or more"),
    ):
        with pytest.raises(PtaError, match=complaint):
            merge(parts)


def test_exported_prototypes_are_anchors_of_a_classifier(animals):
    adapter = pta.create_adapter("wpta", animals.classifier)
    assert torch.equal(class_prototypes(adapter), animals.classifier.anchors)
    adapter.step(animals.samples)
    prototypes = class_prototypes(adapter)
    again = pta.ZeroShotClassifier(prototypes, animals.classifier.class_names)
    torch.testing.assert_close(again.anchors, torch.nn.functional.normalize(adapter.sums, dim=1))
    with pytest.raises(StateMismatch, match="tda keeps no prototype per class"):
        class_prototypes(learned(animals, "tda"))


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def state(pta, tmp_path, animals):
    """What `pta state` prints; the states pta.safetensors, three.safetensors and wpta-0.safetensors, -1 are there."""
    learned(animals).save(tmp_path / "pta.safetensors")
    three = create_adapter("pta", three_classes(animals))
    three.step(animals.samples[:100])
    three.save(tmp_path / "three.safetensors", stream={"mine": 1})
    for number, part in enumerate((slice(0, 100), slice(100, 200))):
        learned(animals, "wpta", part).save(tmp_path / f"wpta-{number}.safetensors")

    def run(*arguments):
        done = pta("state", *arguments)
        assert done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture
def refused(pta, state, tmp_path):
    """The line of a command that is refused and changes no file."""

    def run(*arguments):
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        done = pta("state", *arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        return done.stderr

    return run


def test_no_name_is_cut_in_80_columns(animals):
    names = ["cat", "dog", "newt" * 50, "owl"]
    adapter = create_adapter("wpta", pta.ZeroShotClassifier(animals.classifier.anchors, names))
    adapter.step(animals.samples)
    console = Console(width=80, file=io.StringIO())
    console.print(state_table(adapter, class_table(adapter)))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "".join(line.split("│")[1].strip() for line in lines if line[0] == "│") == "".join(names)


def test_show_gives_a_table_and_json(state, animals):
    shown = state("show", "wpta-0.safetensors").stdout
    assert shown.startswith("wpta: 100 samples, 4 of 4 classes updated\n")
    assert all(name in shown for name in animals.classifier.class_names)
    record = json.loads(state("show", "wpta-0.safetensors", "--json", "-").stdout)
    rows = class_table(learned(animals, "wpta", slice(0, 100)))
    assert record["method"] == "wpta"
    assert record["position"] == 100
    assert [row["name"] for row in record["classes"]] == [row.name for row in rows]
    assert [row["cosine"] for row in record["classes"]] == pytest.approx([row.cosine for row in rows])


def test_a_class_is_added_in_place_from_a_feature_file_and_the_stream_stays(state, tmp_path, pets, animals):
    before = load_adapter(tmp_path / "three.safetensors")
    told = state("add-class", "three.safetensors", "newt", "--features", pets).stderr
    assert "three.safetensors has 4 classes; list newt last" in told
    after = load_adapter(tmp_path / "three.safetensors")
    assert after.classifier.class_names == ("cat", "dog", "owl", "newt")
    assert torch.equal(after.anchored[:3], before.anchored)
    torch.testing.assert_close(after.anchored[3], animals.classifier.anchors[NEWT])
    assert load_tensors(tmp_path / "three.safetensors", kind="state")[1]["stream"] == {"mine": 1}


def test_a_class_is_added_by_the_model_and_pictures_go_on_with_it(pta, tmp_path):
    write_photos(tmp_path / "photos", 30)
    write_classes(tmp_path / "classes.txt")
    names = list(FASHION.class_names)
    stream = ("predict", "photos", "--model", "embedded", "--state", "few.safetensors")
    assert pta(*stream, "--classes", ",".join(names[:-1])).returncode == 0
    added = ("state", "add-class", "few.safetensors", names[-1], "--model", "embedded")
    refused = pta(*added, "--templates", "a drawing of {}, which is not what was learned with")
    assert "another text feature for" in refused.stderr
    assert pta(*added).returncode == 0
    done = pta(*stream, "--classes", "classes.txt")
    assert done.returncode == 0, done.stderr
    assert names[-1] in {json.loads(line)["label"] for line in done.stdout.splitlines()}


def test_a_class_is_added_by_the_model_of_the_environment_unless_features_are_given(pta, pets, tmp_path, monkeypatch):
    monkeypatch.setenv("PTA_MODEL", "embedded")
    Classifier("embedded", ["coat", "bag"], cache=None).save(tmp_path / "two.safetensors")
    assert pta("state", "add-class", "two.safetensors", "dress").returncode == 0
    assert load_adapter(tmp_path / "two.safetensors").classifier.class_names == ("coat", "bag", "dress")
    other = pta("state", "add-class", "two.safetensors", "newt", "--features", pets)
    assert "the text feature has 16 dimensions" in other.stderr
    monkeypatch.delenv("PTA_MODEL")
    assert "give --features FILE or --model MODEL" in pta("state", "add-class", "two.safetensors", "sandal").stderr


def test_states_and_segments_are_merged_and_it_is_said_what_is_exact(state, tmp_path, animals):
    base = load_adapter(tmp_path / "pta.safetensors")
    base.summarise(animals.samples[200:260]).save(tmp_path / "a.safetensors")
    base.summarise(animals.samples[260:300]).save(tmp_path / "b.safetensors")
    state("merge", "a.safetensors", "b.safetensors", "--out", "ab.safetensors")
    said = state("merge", "pta.safetensors", "ab.safetensors", "--out", "all.safetensors").stdout
    assert said == "all.safetensors: exact: the state after stepping through all samples\n"
    whole = learned(animals, samples=slice(0, 300))
    torch.testing.assert_close(
        load_adapter(tmp_path / "all.safetensors").anchored, whole.anchored, atol=1e-4, rtol=1e-4
    )
    said = state("merge", "wpta-0.safetensors", "wpta-1.safetensors", "--out", "sum.safetensors").stdout
    assert "not exact" in said
    assert load_adapter(tmp_path / "sum.safetensors").position == 200


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_prototypes_are_exported_with_their_names(state, tmp_path, animals, ending):
    out = tmp_path / f"prototypes.{ending}"
    state("export", "pta.safetensors", "--out", out)
    if ending == "npz":
        with np.load(out) as file:
            rows, names, scale = file["prototypes"], file["classnames"].tolist(), float(file["scale"])
    else:
        tensors, about = load_tensors(out, kind="prototypes")
        rows, names, scale = tensors["prototypes"].numpy(), about["class_names"], about["scale"]
    np.testing.assert_allclose(rows, learned(animals).anchored.numpy(), atol=1e-6)
    assert (names, scale) == (list(animals.classifier.class_names), 100.0)


def test_mistakes_are_refused_in_one_line_and_change_nothing(refused, pets):
    add = ("add-class", "three.safetensors")
    for arguments, complaint in (
        (["show", "nowhere.safetensors"], "no such state file"),
        (["show", pets], "cannot be read as a state file"),
        ([*add, "newt"], "give --features FILE or --model MODEL"),
        ([*add, "newt", "--features", pets, "--out", "pta.safetensors"], "pta.safetensors exists"),
        ([*add, "toad", "--features", pets], "no text feature for 'toad'"),
        ([*add, "cat", "--features", pets], "there is a class 'cat' already"),
        (["merge", "pta.safetensors", "--out", "x"], "two or more"),
        (["merge", "pta.safetensors", "pta.safetensors", "--out", "x"], "cannot be merged"),
        (
            ["merge", "wpta-0.safetensors", "wpta-1.safetensors", "--out", "wpta-1.safetensors"],
            "exists; --replace overwrites it",
        ),
        (["export", "pta.safetensors", "--out", "x.csv"], "must end in .npz or .safetensors"),
    ):
        assert complaint in refused(*arguments)


def test_a_file_that_another_process_writes_is_left_alone(pta, state, tmp_path, pets):
    with sole_writer(tmp_path / "three.safetensors"):
        done = pta("state", "add-class", "three.safetensors", "newt", "--features", pets)
    assert done.returncode == 2
    assert "another process is writing three.safetensors" in done.stderr
