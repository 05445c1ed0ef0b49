"""`pta verify`: measured beside published, and never a pass without a measurement."""

import json

import pytest
import torch
from miniatures import build

from pta.datasets.catalogue import find_entry
from pta.datasets.features import load_features
from pta.encoders import EmbeddedEncoder
from pta.errors import InvalidParameter
from pta.inference.verify import find_reference, verify
from pta.prompts import build_classifier

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


def test_an_architecture_that_nobody_published_is_refused_with_the_list():
    with pytest.raises(InvalidParameter, match=r"no published accuracies of SigLIP with templates clip; there are ViT"):
        find_reference("SigLIP", "clip")


def test_what_is_there_is_measured_and_what_is_not_is_said(tmp_path):
    root, features = tmp_path / "data", tmp_path / "features"
    root.mkdir()
    features.mkdir()
    build("dtd", root)
    encoder = EmbeddedEncoder.load().ready()
    reference = find_reference("RN50", "clip")
    there, absent = verify(encoder, reference, root, features, ["dtd", "eurosat"])
    assert there.published == 42.2
    assert there.images > 0
    assert there.difference == pytest.approx(there.measured - 42.2)
    assert (absent.measured, absent.difference) == (None, None)
    assert "eurosat" in absent.note
    encoder.image_features = None  # a second time nothing is encoded
    assert list(verify(encoder, reference, root, features, ["dtd"])) == [there]


def test_a_row_that_was_made_with_descriptions_is_measured_with_descriptions(tmp_path):
    build("dtd", tmp_path)
    names = find_entry("dtd").class_names
    encoder, reference = EmbeddedEncoder.load().ready(), find_reference("ViT-B/16", "dpe")
    with pytest.raises(InvalidParameter, match="needs --descriptions FOLDER"):
        list(verify(encoder, reference, tmp_path, tmp_path, ["dtd"]))
    (verdict,) = verify(encoder, reference, tmp_path, tmp_path, ["dtd"], descriptions=tmp_path)
    assert "dtd.json" in verdict.note
    sentences = {name: [f"Something {name}."] for name in names}
    (tmp_path / "dtd.json").write_text(json.dumps(sentences))
    (verdict,) = verify(encoder, reference, tmp_path, tmp_path, ["dtd"], descriptions=tmp_path)
    expected = build_classifier(encoder, names, ("{} texture.",), descriptions=sentences)
    (file,) = tmp_path.glob("dtd-*.safetensors")
    torch.testing.assert_close(load_features(file).classifier.anchors, expected.anchors)
    assert verdict.difference == pytest.approx(verdict.measured - 53.25)


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
        (("--data", "."), "no published accuracies of embedded"),
        (("--data", ".", "--architecture", "RN50"), "could be measured"),
        (("--data", ".", "--architecture", "RN50", "--dataset", "dtdd"), "did you mean 'dtd'?"),
    ],
)
def test_nothing_to_compare_is_the_users_mistake(pta, arguments, complaint):
    done = pta("verify", "embedded", *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
