"""Valid input: an object or a small file of every kind, made when it is first asked for."""

import io
import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import torch
from miniatures import build
from openai_checkpoints import random_state, write_openai_archive
from PIL import Image
from safetensors.torch import save_file

from fuzzing.files import tar_of
from pta import Adapter, Classifier, Samples, Segment, ZeroShotClassifier, create_adapter, list_adapters
from pta.data.features import FeatureFile
from pta.door.points.h5 import StoredClouds, write_h5
from pta.evaluation.evaluate import evaluate
from pta.evaluation.result_store import ResultStore
from pta.methods.toy_model import SIZE, ToyModel
from pta.models import Encoder, load_encoder

NAMES = ("cat", "dog", "newt", "owl", "sea_lion")
COUNT, VIEWS, DIM = 24, 12, 8
_RNG = np.random.default_rng(7)
LABELS = _RNG.integers(len(NAMES), size=COUNT)
ANCHORS = _RNG.standard_normal((len(NAMES), DIM)).astype(np.float32)
FEATURES = (ANCHORS[LABELS] + _RNG.standard_normal((COUNT, DIM))).astype(np.float32)
FEATURES /= np.linalg.norm(FEATURES, axis=1, keepdims=True)
VIEW_FEATURES = (FEATURES[:, None] + 0.3 * _RNG.standard_normal((COUNT, VIEWS, DIM))).astype(np.float32)
VIEW_FEATURES[:, 0] = FEATURES
PATCH_FEATURES = VIEW_FEATURES.repeat(2, axis=1)
PIXELS = _RNG.integers(256, size=(COUNT, 3, SIZE, SIZE), dtype=np.uint8)
PICTURE = _RNG.integers(256, size=(9, 7, 3), dtype=np.uint8)
CLOTHES = ("coat", "bag", "sneaker")
PICTURES = ("png", "jpeg", "gif", "webp", "bmp", "tiff", "ppm")
SOURCES = ("dtd", "fgvc_aircraft", "imagenet_a", "imagenet_v2", "imagenet_c/fog/5")


@cache
def classifier() -> ZeroShotClassifier:
    return ZeroShotClassifier(ANCHORS, NAMES, 20.0, prompts=[[f"a {name}."] for name in NAMES])


@cache
def samples() -> Samples:
    raw = torch.from_numpy(PIXELS).float() / 255
    views, patches = map(torch.from_numpy, (VIEW_FEATURES, PATCH_FEATURES))
    return Samples.of(FEATURES, views=views, raw=raw, patches=patches, generated=views[:, :3])


@cache
def toy() -> ToyModel:
    return ToyModel(DIM, torch.float32)


@cache
def learned(method: str) -> Adapter:
    """An adapter that has learned something; take a clone of it."""
    given = {"tca": {"slots": 2}, "clip": {"prior": "local", "calibration": "matched"}}.get(method, {})
    adapter = create_adapter(method, classifier(), model=toy(), source=samples(), **given)
    adapter.step(samples()[:12])
    return adapter


@cache
def segment() -> Segment:
    adapter: Any = create_adapter("pta", classifier())
    return adapter.summarise(samples()[12:20])


@cache
def encoder() -> Encoder:
    return load_encoder("embedded")


def live() -> Classifier:
    return Classifier(encoder(), CLOTHES, cache=None)


@cache
def data() -> FeatureFile:
    return FeatureFile("made", samples(), classifier(), LABELS.astype(np.int64))


@cache
def records() -> tuple[Any, ...]:
    """Of two methods on two orders."""
    return tuple(one.record() for one in evaluate(data(), {"clip": {}, "pta": {}}, [1, 2]))


def picture(kind: str = "PNG", **options: Any) -> bytes:
    """A small picture of a kind that Pillow writes."""
    written = io.BytesIO()
    Image.fromarray(PICTURE).save(written, kind, **options)
    return written.getvalue()


FRAMES = picture("JPEG") + picture("PNG") + b"\r\n" + picture("JPEG", progressive=True)


CLOUD = np.random.default_rng(1).standard_normal((520, 3)).astype(np.float32)
_CORNERS = "0 0 0", "1 0 0", "0 1 0", "0 0 1"
_PLY = b"ply\nformat binary_little_endian 1.0\nelement vertex 4\nproperty float x\nproperty float y\nproperty float z\n"
_PLY += b"element face 1\nproperty list uchar int vertex_indices\nend_header\n"
CLOUDS = {
    "cloud.xyz": "\n".join(" ".join(map(str, row)) for row in CLOUD[:16].tolist()).encode(),
    "cloud.off": "\n".join(["OFF", "4 2 0", *_CORNERS, "3 0 1 2", "4 0 1 2 3"]).encode(),
    "cloud.obj": "\n".join([*(f"v {corner}" for corner in _CORNERS), "f 1/1 2 3 4", "f -1 -2 -3"]).encode(),
    "cloud.ply": _PLY
    + np.array(["0", "0", "0", "1", "0", "0", "0", "1", "0", "0", "0", "1"], "<f4").tobytes()
    + b"\x03"
    + np.arange(3, dtype="<i4").tobytes(),
}

# -- files ------------------------------------------------------------------------------------------------------------


def file(folder: Path, name: str) -> Path:
    """The valid file or folder of that name, made once in the folder."""
    path = folder / name
    if not path.exists():
        making = folder / f"making-{name}"  # half a file would be found the next time
        shutil.rmtree(making, ignore_errors=True)
        _FILES[name](making)
        making.rename(path)
    return path


def _features_npz(path: Path) -> None:
    arrays = {"image_features": FEATURES, "text_features": ANCHORS, "classnames": np.array(NAMES), "labels": LABELS}
    np.savez(
        path,
        **arrays,
        scale=np.array(20.0),
        bias=np.array(0.5),
        view_features=VIEW_FEATURES,
        patch_features=PATCH_FEATURES,
        generated_features=VIEW_FEATURES,
    )


def _features(path: Path) -> None:
    arrays = {"image_features": FEATURES, "text_features": ANCHORS, "labels": LABELS, "pixels": PIXELS}
    about = {"kind": "features", "dataset": "made", "images": {"architecture": "x"}, "count": COUNT, "skipped": []}
    metadata = {"classnames": json.dumps(NAMES), "about": json.dumps(about)}
    save_file({name: torch.from_numpy(array) for name, array in arrays.items()}, path, metadata)


def _tar(path: Path) -> None:
    pictures = ((f"{number:03d}.{kind.lower()}", picture(kind)) for number, kind in enumerate(("JPEG", "PNG", "JPEG")))
    path.write_bytes(tar_of([*pictures, *((f"{number:03d}.cls", b"%d" % number) for number in range(3))]))


def _classes(path: Path) -> None:
    for name, kind in (("cat", "JPEG"), ("dog", "PNG"), ("owl", "GIF")):
        (path / name).mkdir(parents=True)
        (path / name / f"1.{kind.lower()}").write_bytes(picture(kind))


def _generated(path: Path) -> None:
    for name in ("cat", "dog", "owl"):
        (path / name).mkdir(parents=True)
        for number in range(2):
            (path / name / f"1_{number}.png").write_bytes(picture())


def _list(path: Path) -> None:
    _classes(path)
    (path / "list.csv").write_text("path,label\ncat/1.jpeg,cat\ndog/1.png,dog\nowl/1.gif,owl\n")


def _state_dict(path: Path) -> None:
    state = random_state("ViT")
    torch.save(state, path) if path.suffix == ".pt" else save_file(state, path, {"about": "{}"})


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
DESCRIPTIONS = {name: [f"A {name} is an animal.", "It lives."] for name in NAMES}

_FILES: dict[str, Callable[[Path], Any]] = {
    "features.npz": _features_npz,
    "features.safetensors": _features,
    "segment.safetensors": lambda path: segment().save(path),
    "shard.tar": _tar,
    "clouds.h5": lambda path: write_h5(path, StoredClouds(np.stack([CLOUD, -CLOUD]), np.arange(2))),
    **{name: lambda path, content=content: path.write_bytes(content) for name, content in CLOUDS.items()},
    "classes": _classes,
    "generated": _generated,
    "listed": _list,
    "datasets": lambda path: [build(source, path) for source in SOURCES],
    "store": lambda path: ResultStore(path).put({"method": "pta", "seed": 1}, {"accuracy": 60.0}),
    "hf-clip": lambda path: resolve_name("hf_models:write_hf_clip")(path),
    "hf-siglip": lambda path: resolve_name("hf_models:write_hf_siglip")(path),
    "openai.pt": lambda path: write_openai_archive(path, random_state("ViT")),
    "weights.pt": _state_dict,
    "weights.safetensors": _state_dict,
    "live.safetensors": lambda path: live().save(path),
    "rows.jsonl": lambda path: path.write_text(json.dumps({"path": "1.png", "label": "cat", "entropy": 0.1}) + "\n"),
    "records.json": lambda path: path.write_text(json.dumps(records())),
    "mine.toml": lambda path: path.write_text(EXPERIMENT),
    "templates.txt": lambda path: path.write_text("a photo of a {}.\na sketch of a {}.\n"),
    "templates.json": lambda path: path.write_text(json.dumps(["a photo of a {}.", "a sketch of a {}."])),
    "descriptions.json": lambda path: path.write_text(json.dumps(DESCRIPTIONS)),
    "names.txt": lambda path: path.write_text("\n".join(NAMES) + "\n"),
    "frames.bin": lambda path: path.write_bytes(FRAMES),
    "paths.txt": lambda path: path.write_text("classes/cat/1.jpeg\nclasses/dog/1.png\n"),
    **{f"picture.{kind}": lambda path, kind=kind: path.write_bytes(picture(kind.upper())) for kind in PICTURES},
    **{f"state-{name}.safetensors": lambda path, name=name: learned(name).save(path) for name in list_adapters()},
}
