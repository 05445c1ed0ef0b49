"""Feature files as sources of a cluster: npz, safetensors and a parquet column give the answers of one process."""

import numpy as np
import pytest
import torch

pa = pytest.importorskip("pyarrow")

import pyarrow.parquet as pq
from cluster_runs import contents
from safetensors.torch import save_file
from storages import LaterGone
from test_cluster_ray import in_this_ray, rows_in

from pta.cluster.blocks.loop import ThisProcess
from pta.data.features import load_features
from pta.data.prompts import build_classifier, load_templates
from pta.methods import create_adapter
from pta.models import load_encoder

NAMES = ["bag", "shirt", "boot", "coat"]
SUMMED = {"prior": "none", "calibration": "fixed"}


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Let commands use this process as their only worker."""
    with in_this_ray(monkeypatch, ThisProcess()):
        yield


def expected_of(features, classifier, method="wpta", **parameters):
    logits = create_adapter(method, classifier, **(parameters or SUMMED)).step(features)
    return [classifier.class_names[label] for label in logits.argmax(dim=1)]


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_a_feature_file_gives_the_labels_of_one_stream(pets, pta, tmp_path, ending):
    source = pets
    if ending == "safetensors":
        data, source = np.load(pets), tmp_path / "pets.safetensors"
        tensors = {name: torch.from_numpy(data[name]) for name in ("image_features", "text_features", "labels")}
        save_file(tensors, source, {"classnames": '["cat", "dog", "newt", "owl"]'})
    done = pta("predict", source, "--cluster", "local", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert f"{source}: 300 samples in 4 blocks; 1 of 1 workers can be busy" in done.stderr
    data = load_features(pets)
    assert rows_in(tmp_path / "out")["label"].to_pylist() == expected_of(data.samples.features, data.classifier)
    assert rows_in(tmp_path / "out")["number"].to_pylist() == list(range(300))
    again = pta("predict", source, "--cluster", "local", "--out", "out", "--block", "50")
    assert again.returncode == 2
    assert "another block" in again.stderr


def test_a_parquet_file_of_features_that_is_away_for_a_moment_is_unread(pta, tmp_path, monkeypatch):
    dim = load_encoder("embedded").dim
    (tmp_path / "in").mkdir()
    for name in "ab":
        rows = np.random.default_rng(3).normal(size=(64, dim)).astype("f")
        pq.write_table(pa.table({"features": rows.tolist()}), tmp_path / "in" / f"{name}.parquet")
    call = ("predict", "in", "--classes", ",".join(NAMES), "--model", "embedded", "--cluster", "local")
    whole = pta(*call, "--out", "whole")
    assert whole.returncode == 0, whole.stderr
    mounted = LaterGone(tmp_path / "in" / "a.parquet")
    monkeypatch.setattr("pta.cluster.ray.listing.Listing.write", mounted)
    ended = pta(*call, "--out", "out")
    assert ended.returncode == 1
    assert "64 samples could not be read (" in ended.stderr
    assert ended.stderr.endswith("; run the same command again when it can be read\n")
    monkeypatch.setattr("pta.cluster.ray.listing.Listing.write", mounted._write)
    mounted.away.rename(mounted.path)
    assert len(list((tmp_path / "out" / "work" / "features").glob("0*"))) == 1
    assert pta(*call, "--out", "out").returncode == 0
    assert contents(tmp_path / "out", "parquet") == contents(tmp_path / "whole", "parquet")


@pytest.mark.parametrize("layout", ["list", "fixed", "numbered"])
def test_a_parquet_column_of_features_gives_the_labels_of_one_stream(pta, tmp_path, layout):
    encoder = load_encoder("embedded")
    classifier = build_classifier(encoder, NAMES, load_templates("clip"))
    dice = np.random.default_rng(3)
    rows = (classifier.anchors[dice.integers(4, size=130)].numpy() + dice.normal(0, 0.05, (130, encoder.dim))).astype(
        "f"
    )
    expected = expected_of(torch.from_numpy(rows), classifier)
    order = dice.permutation(130) if layout == "numbered" else np.arange(130)
    flat = pa.array(rows[order].reshape(-1))
    lists = pa.FixedSizeListArray.from_arrays(flat, encoder.dim)
    columns = {"features": lists if layout == "fixed" else pa.array(rows[order].tolist(), pa.list_(pa.float32()))}
    columns |= {"number": order} if layout == "numbered" else {"key": [f"sample {row}" for row in order]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=33)
    given = ("--classes", ",".join(NAMES), "--model", "embedded", "--cluster", "local")
    done = pta("predict", "a.parquet", *given, "--out", "out")
    assert done.returncode == 0, done.stderr
    found = rows_in(tmp_path / "out")
    assert found["label"].to_pylist() == expected
    assert found["number"].to_pylist() == list(range(130))
    if layout != "numbered":
        assert found["key"][7].as_py() == "sample 7"


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([[1.0, 2.0]] * 3, "every row must hold 128 numbers"),
        ([[1.0] * 128, [1.0], None], "every row must hold 128 numbers"),
        ([[float("nan")] * 128] * 2, "column of features"),
    ],
)
def test_a_column_that_cannot_be_features_is_one_line(pta, tmp_path, rows, complaint):
    assert load_encoder("embedded").dim == 128
    pq.write_table(pa.table({"features": pa.array(rows, pa.list_(pa.float32()))}), tmp_path / "a.parquet")
    done = pta(
        "predict", "a.parquet", "--classes", "bag,shirt", "--model", "embedded", "--cluster", "local", "--out", "out"
    )
    assert done.returncode == 2
    assert complaint in done.stderr.splitlines()[-1]


def test_what_a_feature_file_is_not_for_is_one_line(pets, pta, tmp_path):
    pq.write_table(pa.table({"features": [[1.0]]}), tmp_path / "a.parquet")
    common = ("--classes", "bag,shirt", "--model", "embedded", "--cluster", "local", "--out", "out")
    for command, source, complaint in (
        ("extract", pets, "is a feature file"),
        ("extract", "a.parquet", "holds features"),
        ("predict", pets, "leave --classes out"),
        ("predict", "missing.npz", "no such feature file: missing.npz"),
    ):
        done = pta(command, source, *common)
        assert done.returncode == 2
        assert complaint in done.stderr.splitlines()[-1], done.stderr
    assert "--by" in pta("predict", pets, "--by", "folder", *common[2:]).stderr
