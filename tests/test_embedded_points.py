"""The embedded dual encoder of clouds, with its packaged weights."""

import csv
import json
import re
import runpy
from dataclasses import asdict
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from refusals import refusal
from torch.nn.functional import normalize

from pta.data.packaged_clouds import (
    FURNITURE_CLASSES,
    SHAPE_CLASSES,
    load_furniture_test,
    load_procedural_test,
)
from pta.data.prompts import build_classifier
from pta.door.files import save_tensors
from pta.models import load_encoder
from pta.models.clouds.cloud_encoder import k_means
from pta.models.packaged.embedded_points import POINT_TEMPLATES, EmbeddedPointsConfig, EmbeddedPointsEncoder

TRAINING = Path(__file__).parents[1] / "training"


@pytest.fixture(scope="module")
def random_encoder():
    torch.manual_seed(3)
    return EmbeddedPointsEncoder().eval().requires_grad_(False)


@pytest.fixture(scope="module")
def clouds():
    return torch.from_numpy(load_procedural_test().clouds[:6])


def tokens_by_hand(encoder, cloud):
    """The tower in float64 NumPy, pair by pair: of each point and neighbour, then the largest."""
    w = {name: value.double().numpy() for name, value in encoder.state_dict().items()}

    def norm(name, x):
        scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    def leaky(x):
        return np.where(x > 0, x, 0.2 * x)

    cloud = cloud.double().numpy()
    order = ((cloud[:, None] - cloud) ** 2).sum(-1).argsort(axis=1, kind="stable")
    x, found = cloud, []
    for k, stride in enumerate(encoder.config.strides):
        own, other = w[f"points.layers.{k}.own.weight"], w[f"points.layers.{k}.other.weight"]
        near = order[:, ::stride][:, : encoder.config.neighbours]
        pairs = (x @ own.T + w[f"points.layers.{k}.own.bias"])[:, None] + x[near] @ other.T
        x = norm(f"points.layers.{k}.norm", leaky(pairs).max(axis=1))
        found.append(x)
    return norm("points.norm", leaky(np.concatenate(found, -1) @ w["points.mix.weight"].T + w["points.mix.bias"]))


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def test_features_and_local_features_are_those_of_a_plain_forward(random_encoder, clouds):
    projection = random_encoder.point_projection.weight.double().numpy()
    for cloud in clouds[:2, :300]:
        tokens = tokens_by_hand(random_encoder, cloud)
        whole = unit(np.concatenate([tokens.mean(0), tokens.max(0)]) @ projection.T)
        np.testing.assert_allclose(random_encoder.encode(cloud[None])[0], whole, atol=1e-4)
        centres = k_means(torch.from_numpy(tokens)[None], 3)[0].numpy()
        local = unit(np.concatenate([np.tile(tokens.mean(0), (3, 1)), centres], axis=1) @ projection.T)
        np.testing.assert_allclose(random_encoder.encode_tokens(cloud[None])[0], local, atol=1e-3)


def test_a_batch_equals_one_by_one_and_the_order_of_points_does_not_matter(random_encoder, clouds):
    together = random_encoder.encode(clouds.repeat(3, 1, 1))
    torch.testing.assert_close(
        together[:6], torch.cat([random_encoder.encode(one[None]) for one in clouds]), atol=1e-5, rtol=0
    )
    shuffled = clouds[:, torch.randperm(1024, generator=torch.Generator().manual_seed(1))]
    torch.testing.assert_close(random_encoder.encode(shuffled), together[:6], atol=1e-4, rtol=0)


def test_clouds_of_any_size_from_the_number_of_neighbours_on_are_read(random_encoder, clouds):
    assert [random_encoder.encode(clouds[:1, :size]).shape for size in (16, 50, 1024)] == [(1, 128)] * 3
    assert "needs at least 16" in refusal(random_encoder.encode, clouds[:, :15])


def test_a_file_carries_the_configuration_it_is_read_with(tmp_path):
    small = EmbeddedPointsConfig(widths=(8, 16), strides=(1, 3), token_width=24, text_depth=1, dim=32)
    EmbeddedPointsEncoder(small).write(tmp_path / "small.safetensors", seed=1)
    read = EmbeddedPointsEncoder.read(tmp_path / "small.safetensors")
    assert asdict(read.config) == asdict(small) | {"widths": [8, 16], "strides": [1, 3]}
    read.write(tmp_path / "again.safetensors")
    assert EmbeddedPointsEncoder.read(tmp_path / "again.safetensors").fingerprint == read.fingerprint


@pytest.mark.parametrize(
    "changes",
    [
        *({"neighbours": count} for count in (0, -1, 10**9, "16")),
        *({"strides": strides} for strides in ([], [1, 2], [0, 1, 1], [1, 1, 10**9], "124", None)),
        *({"widths": widths} for widths in ([], [64, 64], [64, 64, 10**9], [64, 64, -1], 64)),
        {"token_width": 10**9},
        {"point_dropout": 7.0},
        {"text_depth": 10**9},
        {"text_heads": 7},
        {"unknown": 1},
    ],
    ids=str,
)
def test_a_model_file_with_absurd_settings_is_refused_before_memory_is_taken(random_encoder, tmp_path, changes):
    about = {"kind": "embedded encoder of clouds", "config": asdict(random_encoder.config) | changes}
    save_tensors(tmp_path / "model.safetensors", random_encoder.state_dict(), about)
    told = refusal(EmbeddedPointsEncoder.read, tmp_path / "model.safetensors")
    assert "describes no embedded encoder of clouds" in told


def test_the_recommended_templates_were_not_trained_on():
    captions, phrases = (runpy.run_path(str(TRAINING / f"{name}.py")) for name in ("captions", "shape_captions"))
    trained = captions["training_templates"](phrases["OPENINGS"], phrases["ENDINGS"])
    assert "a point cloud of a {}." in trained
    assert trained.isdisjoint({*POINT_TEMPLATES, *phrases["VALIDATION_TEMPLATES"]})
    assert set(POINT_TEMPLATES).isdisjoint(phrases["VALIDATION_TEMPLATES"])
    assert phrases["NOUNS"].keys() == set(SHAPE_CLASSES)


# -- with the packaged weights -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoder():
    return load_encoder("embedded-points")


def answers(encoder, clouds, names):
    prompts = torch.stack([encoder.encode_texts([t.format(name) for t in POINT_TEMPLATES]) for name in names])
    return (encoder.encode(torch.from_numpy(clouds)) @ normalize(prompts.mean(dim=1), dim=1).T).argmax(dim=1).numpy()


def test_the_packaged_model_is_small(encoder):
    assert len((resources.files("pta") / "assets" / EmbeddedPointsEncoder.file).read_bytes()) <= 10**6
    text = sum(weight.numel() for name, weight in encoder.state_dict().items() if name.startswith("text"))
    assert sum(weight.numel() for weight in encoder.state_dict().values()) - text <= 400_000
    assert encoder.dim == 128


def words_of(row):
    """Those of a model's name that do not just say its class."""
    apart = re.sub("([a-z])([A-Z])", r"\1 \2", row["model"]).lower()
    return {word.removesuffix("s") for word in re.findall(r"\d+x\d+|[a-z]{3,}", apart)} - {row["class_name"]}


def test_furniture_is_recognised_from_prompts_never_seen_in_training_look_alikes_of_trained_objects_or_not(encoder):
    test = load_furniture_test()
    right = answers(encoder, test.clouds, FURNITURE_CLASSES) == test.labels
    rows = list(csv.DictReader((resources.files("pta") / "assets" / "furniture.csv").read_text().splitlines()))
    trained = {(row["class_name"], word) for row in rows if row["split"] == "train" for word in words_of(row)}
    of_test = (row for row in rows if row["split"] == "test")
    alike = np.array([any((row["class_name"], word) in trained for word in words_of(row)) for row in of_test])
    assert (len(test), alike.sum()) == (179, 48)  # as training/README.md says
    assert right.mean() >= 0.70
    assert right[~alike].mean() >= 0.70


def test_procedural_shapes_are_recognised_from_prompts_never_seen_in_training(encoder):
    test, some = load_procedural_test(), slice(5 * len(SHAPE_CLASSES))
    assert (answers(encoder, test.clouds[some], SHAPE_CLASSES) == test.labels[some]).mean() >= 0.90


def test_features_and_local_features_come_of_one_pass(encoder, monkeypatch):
    given, passes, tokens = torch.from_numpy(load_procedural_test().clouds[:3]), [], encoder._tokens
    expected = encoder.encode(given), encoder.encode_tokens(given)
    monkeypatch.setattr(type(encoder), "_tokens", lambda self, some: passes.append(len(some)) or tokens(some))
    assert all(map(torch.equal, encoder.encode_with_tokens(given), expected))
    assert passes == [3]


def test_a_prompt_tower_reads_what_the_text_tower_reads(encoder):
    tower = encoder.prompt_tower(["chair", "lamp"], start="a scan of a")
    expected = encoder.encode_texts(["a scan of a chair.", "a scan of a lamp."])
    torch.testing.assert_close(tower.read(tower.context[None])[0], expected, atol=1e-5, rtol=0)


def test_a_folder_of_clouds_and_meshes_is_labelled(pta, tmp_path):
    rng = np.random.default_rng(1)
    chair = load_procedural_test().clouds[6]
    header = f"ply\nformat ascii 1.0\nelement vertex {len(chair)}\n" + "".join(f"property float {a}\n" for a in "xyz")
    rows = "".join(f"{x} {y} {z}\n" for x, y, z in chair * 30 + 5)
    (tmp_path / "chair.ply").write_text(f"{header}end_header\n{rows}")
    corners = [(x, y, z) for x in (0, 3) for y in (0, 8) for z in (0, 0.1)]
    faces = ["1 2 4 3", "5 6 8 7", "1 2 6 5", "3 4 8 7", "1 3 7 5", "2 4 8 6"]
    lines = [f"v {x} {y} {z}" for x, y, z in corners] + [f"f {face}" for face in faces]
    (tmp_path / "slab.obj").write_text("\n".join(lines))
    (tmp_path / "names.txt").write_text("chair\ndoor\nbike\nplant\n")
    np.save(tmp_path / "noise.npy", rng.standard_normal((64, 3)).astype(np.float32))
    done = pta(
        "predict",
        tmp_path,
        "--model",
        "embedded-points",
        "--classes",
        tmp_path / "names.txt",
        "--out",
        tmp_path / "rows.jsonl",
    )
    assert done.returncode == 0, done.stderr
    found = {
        row["path"].rpartition("/")[2]: row["label"]
        for row in map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())
    }
    assert found.keys() == {"chair.ply", "slab.obj", "noise.npy"}
    assert (found["chair.ply"], found["slab.obj"]) == ("chair", "door")


def test_a_folder_without_clouds_is_one_clear_line(pta, tmp_path):
    (tmp_path / "picture.png").write_bytes(b"")
    done = pta("predict", tmp_path, "--model", "embedded-points", "--classes", "chair,lamp")
    assert done.returncode == 2
    assert f"no clouds in {tmp_path}" in done.stderr


def test_hierarchical_point_cache_runs_on_its_local_features(encoder):
    import pta

    test = load_furniture_test()
    clouds = torch.from_numpy(test.clouds[::12])
    classifier = build_classifier(encoder, FURNITURE_CLASSES, POINT_TEMPLATES)
    samples = pta.Samples.of(encoder.encode(clouds), patches=encoder.encode_tokens(clouds))
    assert samples.patches.shape == (len(clouds), 3, 128)
    logits = pta.create_adapter("point-cache", classifier).step(samples)
    assert logits.isfinite().all()
