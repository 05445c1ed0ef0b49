"""A small valid file of every kind, and what is in them."""

import json
import tarfile
from functools import cache

import numpy as np
import torch
from openai_checkpoints import random_state, write_openai_archive
from photos import encoded, noise
from safetensors.torch import save_file
from streams import prompts_around

from pta import Classifier, Samples, ZeroShotClassifier, create_adapter, list_adapters
from pta.data.features import FeatureFile
from pta.door.points.h5 import StoredClouds, write_h5
from pta.measure.evaluate import evaluate
from pta.measure.result_store import ResultStore
from pta.methods.toys import SIZE, ToyModel
from pta.models import load_encoder

NAMES = ("cat", "dog", "newt", "owl", "sea_lion")
COUNT, DIM = 24, 8
_RNG = np.random.default_rng(7)
LABELS = _RNG.integers(len(NAMES), size=COUNT)
ANCHORS = _RNG.standard_normal((len(NAMES), DIM)).astype(np.float32)
FEATURES = (ANCHORS[LABELS] + _RNG.standard_normal((COUNT, DIM))).astype(np.float32)
FEATURES /= np.linalg.norm(FEATURES, axis=1, keepdims=True)
VIEWS = (FEATURES[:, None] + 0.3 * _RNG.standard_normal((COUNT, 12, DIM))).astype(np.float32)
VIEWS[:, 0] = FEATURES
PIXELS = _RNG.integers(256, size=(COUNT, 3, SIZE, SIZE), dtype=np.uint8)
CLOUD = _RNG.standard_normal((520, 3)).astype(np.float32)
EXPERIMENT = """\
title = "Mine"
baseline = "CLIP"
usual = { seeds = 2 }
figure = { kind = "bars" }
columns = [{ each = "own" }, { label = "mean", mean_of = "all" }]
rows = [
    { label = "CLIP", method = "clip" },
    { label = "PTA", method = "pta", params = { h = 5 }, stream = { kind = "dirichlet" }, printed = [60.5, 60.5] },
]
"""


@cache
def classifier():
    texts = [[f"a {name}."] for name in NAMES]
    around = prompts_around(torch.from_numpy(ANCHORS))
    return ZeroShotClassifier(ANCHORS, NAMES, 20.0, prompts=texts, prompt_features=around)


@cache
def samples():
    views = torch.from_numpy(VIEWS)
    raw = torch.from_numpy(PIXELS).float() / 255
    return Samples.of(FEATURES, views=views, raw=raw, patches=views.repeat(1, 2, 1), generated=views[:, :3])


@cache
def toy():
    return ToyModel(DIM, torch.float32)


@cache
def learned(method):
    """An adapter that has learned something; take a clone of it."""
    given = {"tca": {"slots": 2}, "clip": {"prior": "local", "calibration": "matched"}}.get(method, {})
    adapter = create_adapter(method, classifier(), model=toy(), source=samples(), **given)
    adapter.step(samples()[:12])
    return adapter


@cache
def segment():
    return create_adapter("pta", classifier()).summarise(samples()[12:20])


def _features_npz(path):
    own = {"image_features": FEATURES, "text_features": ANCHORS, "classnames": np.array(NAMES), "labels": LABELS}
    parts = {f"{name}_features": VIEWS for name in ("view", "patch", "generated")}
    np.savez(path, **own, **parts, scale=np.array(20.0), bias=np.array(0.5))


def _features(path):
    arrays = {"image_features": FEATURES, "text_features": ANCHORS, "labels": LABELS, "pixels": PIXELS}
    about = {"kind": "features", "dataset": "made", "images": {"architecture": "x"}, "count": COUNT, "skipped": []}
    metadata = {"classnames": json.dumps(NAMES), "about": json.dumps(about)}
    save_file({name: torch.from_numpy(array) for name, array in arrays.items()}, path, metadata)


def _records(path):
    data = FeatureFile("made", samples(), classifier(), LABELS.astype(np.int64))
    path.write_text(json.dumps([one.record() for one in evaluate(data, {"clip": {}, "pta": {}}, [1, 2])]))


def _shard(path):
    with tarfile.open(path, "w") as archive:
        for name, content in {"0.jpg": picture("jpeg"), "0.cls": b"0", "1.png": picture("png"), "1.cls": b"1"}.items():
            path.with_suffix(".part").write_bytes(content)
            archive.add(path.with_suffix(".part"), name)


def _list(path):
    (path.parent / "1.png").write_bytes(picture("png"))
    path.write_text("path,label\n1.png,cat\n1.png,dog\n")


def _store(path):
    ResultStore(path.parent).put({"method": "pta", "seed": 1}, {"accuracy": 60.0})


def picture(kind):
    return encoded(noise(9, 7), kind.upper())


_CORNERS = ("0 0 0", "1 0 0", "0 1 0", "0 0 1")
_PLY = "ply\nformat binary_little_endian 1.0\nelement vertex 4\nproperty float x\nproperty float y\nproperty float z\n"
_PLY += "element face 1\nproperty list uchar int vertex_indices\nend_header\n"
_CONTENTS = {
    "cloud.xyz": "\n".join(" ".join(map(str, row)) for row in CLOUD[:16].tolist()),
    "cloud.off": "\n".join(["OFF", "4 2 0", *_CORNERS, "3 0 1 2", "4 0 1 2 3"]),
    "cloud.obj": "\n".join([*(f"v {corner}" for corner in _CORNERS), "f 1/1 2 3 4", "f -1 -2 -3"]),
    "cloud.ply": _PLY.encode()
    + np.array(" ".join(_CORNERS).split(), "<f4").tobytes()
    + b"\x03"
    + np.arange(3, dtype="<i4").tobytes(),
    "frames.bin": picture("jpeg") + picture("png") + b"\r\n" + picture("jpeg"),
    "mine.toml": EXPERIMENT,
    "templates.txt": "a photo of a {}.\na sketch of a {}.\n",
    "templates.json": json.dumps(["a photo of a {}.", "a sketch of a {}."]),
    "descriptions.json": json.dumps({name: [f"A {name} is an animal.", "It lives."] for name in NAMES}),
    "names.txt": "\n".join(NAMES) + "\n",
    **{f"picture.{kind}": picture(kind) for kind in ("png", "jpeg", "gif", "tiff")},
}
FILES = {
    "features.npz": _features_npz,
    "features.safetensors": _features,
    "records.json": _records,
    "shard.tar": _shard,
    "list.csv": _list,
    "results.sqlite": _store,
    "clouds.h5": lambda path: write_h5(path, StoredClouds(np.stack([CLOUD, -CLOUD]), np.arange(2))),
    "segment.safetensors": lambda path: segment().save(path),
    "weights.pt": lambda path: torch.save(random_state("ViT"), path),
    "openai.pt": lambda path: write_openai_archive(path, random_state("ViT")),
    "live.safetensors": lambda path: Classifier(load_encoder("embedded"), ("coat", "bag"), cache=None).save(path),
    **{
        name: lambda path, content=content: path.write_bytes(
            content if isinstance(content, bytes) else content.encode()
        )
        for name, content in _CONTENTS.items()
    },
    **{f"state-{name}.safetensors": lambda path, name=name: learned(name).save(path) for name in list_adapters()},
}
"""What writes the valid file of each name."""
