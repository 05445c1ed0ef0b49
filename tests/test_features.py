"""Feature files: both formats, and every way they can be wrong."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pta.datasets.features import load_features
from pta.errors import InvalidClassifier, InvalidSamples, PtaError, UnreadableFile


def content(**changes):
    rng = np.random.default_rng(1)
    arrays = {
        "image_features": rng.standard_normal((6, 4)).astype(np.float16),
        "text_features": rng.standard_normal((3, 4)).astype(np.float32),
        "labels": np.array([0, 1, 2, 0, 1, 2]),
        "classnames": np.array(["cat", "dog", "newt"]),
    } | changes
    return {key: value for key, value in arrays.items() if value is not None}


@pytest.fixture
def write(tmp_path):
    def write(**changes):
        np.savez(tmp_path / "pets.npz", **content(**changes))
        return tmp_path / "pets.npz"

    return write


def test_both_formats_hold_the_same_data(write, tmp_path):
    arrays = content()
    names = json.dumps(arrays.pop("classnames").tolist())
    tensors = {key: torch.from_numpy(value) for key, value in arrays.items()}
    save_file(tensors, tmp_path / "pets.safetensors", metadata={"classnames": names})
    one, other = load_features(write()), load_features(tmp_path / "pets.safetensors")
    assert one.name == other.name == "pets"
    assert one.classifier.fingerprint == other.classifier.fingerprint
    assert one.classifier.class_names == ("cat", "dog", "newt")
    assert torch.equal(one.samples.features, other.samples.features)
    assert one.labels.tolist() == other.labels.tolist() == [0, 1, 2, 0, 1, 2]


def test_labels_are_optional_and_the_scale_is_100_unless_the_file_says_otherwise(write):
    without = load_features(write(labels=None))
    assert without.labels is None
    assert without.classifier.scale == 100.0
    assert load_features(write(scale=np.float32(12.5))).classifier.scale == 12.5


@pytest.mark.parametrize(
    ("changes", "kind", "complaint"),
    [
        ({"image_features": None}, UnreadableFile, "no image_features;.*this one has classnames"),
        ({"classnames": None, "text_features": None}, UnreadableFile, "no text_features and no classnames"),
        ({"text_features": np.ones((3, 5))}, InvalidSamples, "4 dimensions but text_features 5"),
        ({"image_features": np.full((6, 4), np.nan)}, InvalidSamples, "row 0 .* not finite"),
        ({"image_features": np.zeros((6, 4))}, InvalidSamples, "row 0 .* zero"),
        ({"image_features": np.ones((0, 4)), "labels": None}, InvalidSamples, "no samples"),
        ({"labels": np.array([0, 1, 2, 0, 1, 3])}, InvalidSamples, "label 3 is out of range"),
        ({"labels": np.array([0, 1, 2, 0, 1, -1])}, InvalidSamples, "label -1 is out of range"),
        ({"labels": np.array([0, 1])}, InvalidSamples, "one for each of the 6"),
        ({"labels": np.ones(6)}, InvalidSamples, "whole numbers"),
        ({"classnames": np.array(["cat", "dog"])}, InvalidClassifier, "3 anchors but 2"),
        ({"text_features": np.ones((1, 4)), "classnames": np.array(["cat"])}, InvalidClassifier, "at least two"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_the_reason(write, changes, kind, complaint):
    with pytest.raises(kind, match=rf"pets\.npz: .*{complaint}|pets\.npz: {complaint}"):
        load_features(write(**changes))


@pytest.mark.parametrize("changed", ["image_features", "text_features", "labels", "view_features", "pixels"])
def test_the_fingerprint_follows_every_array(write, changed):
    optional = {"view_features": np.ones((6, 2, 4)), "pixels": np.ones((6, 1, 2, 2), np.uint8)}
    first = load_features(write(**optional))
    arrays = dict(np.load(write(**optional)))
    other = arrays[changed].copy()
    other.flat[0] = 2 if changed != "labels" else (other.flat[0] + 1) % 3
    assert load_features(write(**{**optional, changed: other})).fingerprint != first.fingerprint
    if changed in optional:
        assert load_features(write(**{**optional, changed: None})).fingerprint != first.fingerprint


def test_an_array_of_python_objects_is_never_unpickled(write):
    with pytest.raises(UnreadableFile, match="Python objects"):
        load_features(write(classnames=np.array(["cat", "dog", "newt"], dtype=object)))


@pytest.mark.parametrize("kept", [0, 10, 200])
def test_a_truncated_file_is_refused(write, kept):
    path = write()
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UnreadableFile, match="cannot be read"):
        load_features(path)


def test_missing_files_and_other_endings_are_refused(tmp_path):
    with pytest.raises(UnreadableFile, match="no such feature file"):
        load_features(tmp_path / "nothing.npz")
    (tmp_path / "table.csv").write_text("a,b")
    with pytest.raises(UnreadableFile, match=r"ends in \.npz or \.safetensors"):
        load_features(tmp_path / "table.csv")


def test_a_file_that_unpacks_to_too_much_is_refused_unread(write, monkeypatch):
    path = write()
    monkeypatch.setattr("pta.memory.available_memory", lambda: 100)
    with pytest.raises(UnreadableFile, match=r"pets.npz unpacks to .* GiB of memory can be used"):
        load_features(path)
