"""`pta verify`: measured beside published, and never a pass without a measurement."""

import json
from dataclasses import replace

import pytest
import torch
from clouds import write_clouds
from miniatures import build
from random_ulip import random_ulip, write_ulip

from pta.data import open_samples
from pta.data.catalogue import find_entry
from pta.data.features import load_features
from pta.data.prompts import build_classifier, load_templates
from pta.errors import InvalidParameter
from pta.measure.reproduce.declaration import load_experiment
from pta.measure.reproduce.plan import place
from pta.measure.reproduce.profile import load_profile
from pta.models import EmbeddedEncoder, load_encoder
from pta.run.verify import find_reference, verify

TEN = (
    *("oxford_flowers", "dtd", "oxford_pets", "stanford_cars", "ucf101"),
    *("caltech101", "food101", "sun397", "fgvc_aircraft", "eurosat"),
)


@pytest.mark.parametrize(
    ("architecture", "templates", "mean"),
    [("ViT-B/16", "vanilla", 63.60), ("ViT-B/16", "clip", 65.64), ("ViT-B/16", "dpe", 67.77), ("RN50", "clip", 59.21)],
)
def test_published_rows_have_their_published_mean(architecture, templates, mean):
    accuracies = find_reference(architecture, templates).accuracies
    assert sum(accuracies[name] for name in TEN) / 10 == pytest.approx(mean, abs=0.006)


def test_what_is_there_is_measured_and_what_is_not_is_said(tmp_path):
    build("dtd", tmp_path)
    encoder = EmbeddedEncoder.load().ready()
    given = (encoder, find_reference("RN50", "clip"), tmp_path, tmp_path)
    there, absent = verify(*given, ["dtd", "eurosat"])
    assert there.published == 42.2
    assert there.images > 0
    assert there.difference == pytest.approx(there.measured - 42.2)
    assert (absent.measured, absent.difference) == (None, None)
    assert "eurosat" in absent.note
    encoder.image_features = None  # a second time nothing is encoded
    assert list(verify(*given, ["dtd"])) == [there]


def test_the_published_values_of_ulip_are_those_of_the_paper_s_table():
    plan = place(load_experiment("table3"), load_profile("paper"))
    printed = {}
    for row in plan.experiment.rows:
        if row.label == "ULIP":
            values = plan.printed[row.name]
            for at, column in enumerate(plan.columns):
                printed |= {job.dataset: values[column.label] for job in plan.jobs.get((row.name, at), ())}
    assert find_reference("ULIP (PointBERT)", "clip").accuracies == printed


def test_clouds_are_measured_as_images_are(tmp_path, monkeypatch):
    clouds = replace(open_samples(write_clouds(tmp_path / "shapes.h5")), prompts="point_clouds")
    monkeypatch.setattr("pta.run.verify.open_samples", lambda dataset, root: clouds)
    encoder = load_encoder(f"ulip:{write_ulip(tmp_path, random_ulip())}")
    reference = find_reference(encoder.architecture, "clip")
    (found,) = verify(encoder, reference, tmp_path, tmp_path, ["modelnet_c/rotate/2"])
    assert (found.published, found.images) == (55.27, 9)
    expected = build_classifier(encoder, clouds.class_names, load_templates("ulip64"))
    (file,) = tmp_path.glob("modelnet_c-rotate-2-*.safetensors")
    torch.testing.assert_close(load_features(file).classifier.anchors, expected.anchors)


def test_a_row_that_was_made_with_descriptions_is_measured_with_descriptions(tmp_path):
    build("dtd", tmp_path)
    names, encoder = find_entry("dtd").class_names, EmbeddedEncoder.load().ready()
    sentences = {name: [f"Something {name}."] for name in names}

    def verdict(**descriptions):
        (found,) = verify(encoder, find_reference("ViT-B/16", "dpe"), tmp_path, tmp_path, ["dtd"], **descriptions)
        return found

    with pytest.raises(InvalidParameter, match="needs --descriptions FOLDER"):
        verdict()
    assert "dtd.json" in verdict(descriptions=tmp_path).note
    (tmp_path / "dtd.json").write_text(json.dumps(sentences))
    found = verdict(descriptions=tmp_path)
    assert found.difference == pytest.approx(found.measured - 53.25)
    expected = build_classifier(encoder, names, ("{} texture.",), descriptions=sentences)
    (file,) = tmp_path.glob("dtd-*.safetensors")
    torch.testing.assert_close(load_features(file).classifier.anchors, expected.anchors)


def test_the_command_tells_the_same_from_the_different_by_its_exit_code(pta, tmp_path):
    build("dtd", tmp_path / "data")
    fixed = ("--data", "data", "--architecture", "RN50", "--dataset", "dtd")
    differs = pta("verify", "embedded", *fixed, "--tolerance", 0)
    assert differs.returncode == 1, differs.stderr
    assert "differs" in differs.stdout
    same = pta("verify", "embedded", *fixed, "--tolerance", 100, "--json", "-")
    assert same.returncode == 0
    (record,) = json.loads(same.stdout)
    assert record["dataset"] == "dtd"
    assert record["difference"] == pytest.approx(record["measured"] - 42.2)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--data", "nowhere"), "--data nowhere: no such folder"),
        (("--data", "data"), "no published accuracies of embedded with templates clip; there are ViT"),
        (("--data", ".", "--architecture", "RN50"), "could be measured"),
        (("--data", ".", "--architecture", "RN50", "--dataset", "dtdd"), "did you mean 'dtd'?"),
    ],
)
def test_nothing_to_compare_is_the_users_mistake(pta, tmp_path, arguments, complaint):
    build("dtd", tmp_path / "data")
    done = pta("verify", "embedded", *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
