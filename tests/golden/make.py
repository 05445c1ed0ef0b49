"""Make the golden files of this version: `python tests/golden/make.py`, in a folder of its name.

Tests do not run it; they read what it wrote once. Files of released versions are never made again. All samples are
synthetic: random numbers, and the packaged model's features of random images.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent))
from golden_files import (
    GOLDEN,
    SEGMENTS,
    STORE_SWEEP,
    content_of,
    database_rows,
    digest,
    digests,
    served,
    stream,
    stream_probes,
)
from http_serving import TOKEN, serving

import pta
from pta.methods import adapter_class
from pta.serve import Client

CLASSES = ("bag", "boot", "coat", "dress", "shirt", "trouser")
LEARNED, SUMMARISED = 40, 60
HERE = GOLDEN / pta.__version__
TWO_FILES = ("--features", "features.npz", "--features", "others.npz")
VARIANTS = {
    "pta-paper": ("pta", {"variant": "paper"}),
    "pta-stages": ("pta", {"prior": "local", "calibration": "matched", "gate": "balance", "offset": "centre"}),
    "pta-half": ("pta", {"state_dtype": "float16"}),
    "wpta-plain": ("wpta", {"prior": "none", "calibration": "fixed", "gate": "none"}),
    "wpta-deep": ("wpta", {"depth": 2}),
    "combined-tda": ("combined", {"base": "tda"}),
    "onzeta": ("onzeta", {"length": 120}),
    "ecalp": ("ecalp", {"max_rows": 20}),
}


def command(*arguments, folder=HERE):
    """Run `pta` in a folder."""
    called = [sys.executable, "-m", "pta", *map(str, arguments)]
    return subprocess.run(called, cwd=folder, check=True, capture_output=True, text=True).stdout


def make_features():
    """Features, views, patches and prompts of random images by the packaged model, and a repository of the hub."""
    random = np.random.default_rng(31)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(12):
            path = Path(folder) / "drawn" / CLASSES[number % 3] / f"{number:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            small = Image.fromarray(random.integers(0, 256, (4, 4, 3), np.uint8))
            small.resize((40, 36), Image.Resampling.BICUBIC).save(path)
        kept = ("--views", 2, "--patches", "--prompts")
        command("extract", "drawn", "--model", "embedded", *kept, "--out", HERE / "features.safetensors", folder=folder)
        classifier = pta.Classifier("embedded", CLASSES[:3], method="pta", cache=None)
        classifier(sorted(map(str, Path(folder).rglob("*.png"))))
        classifier.save_pretrained(HERE / "hub")
    return {"classes": list(classifier.classes), "state": digests(arrays(classifier.adapter))}


def arrays(adapter):
    """The state of an adapter."""
    return {name: tensor.numpy() for name, tensor in adapter.state().items()}


def make_states(expected):
    """States of every method that needs features alone, after 40 samples, and segments of the 60 that follow."""
    made = stream()
    samples, labels = pta.Samples.of(made["image_features"]), made["labels"]
    classifier = pta.ZeroShotClassifier(made["text_features"], list(CLASSES), scale=20.0)
    probes = pta.Samples.of(stream_probes())
    usual = {name: (name, {}) for name in pta.list_adapters() if is_made(name, classifier)}
    for name, (method, parameters) in (usual | VARIANTS).items():
        adapter = pta.create_adapter(method, classifier, **parameters)
        for start in range(0, LEARNED, 5):
            known = labels[start : start + 5] if adapter.takes_labels and start == 20 else None
            adapter.step(samples[start : start + 5], known)
        path = HERE / f"state-{name}.safetensors"
        adapter.save(path)
        next_step = adapter.clone().step(samples[LEARNED : LEARNED + SUMMARISED])
        expected[path.stem] = {
            "position": adapter.position,
            "parameters": dict(adapter.parameters),
            "state": digests(arrays(adapter)),
            "file": digests(content_of(path)),
            "predict": adapter.predict(probes).tolist(),
            "step": next_step[-8:].tolist(),
        }
    for name, parameters in SEGMENTS.items():
        adapter = pta.create_adapter("pta", classifier, **parameters)
        segment = adapter.summarise(samples[LEARNED : LEARNED + SUMMARISED])
        segment.save(HERE / f"{name}.safetensors")
        exact = adapter.apply(segment)
        expected[name] = {
            "count": segment.count,
            "file": digests(content_of(HERE / f"{name}.safetensors")),
            "exact": exact,
            "position": adapter.position,
            "predict": adapter.predict(probes).tolist(),
        }


def is_made(name, classifier):
    """Whether a method keeps something of samples that have features alone."""
    kind = adapter_class(name)
    if kind.needs_with({}) != {"features"} or kind.scope == "stream" or name in VARIANTS or name == "combined":
        return False
    return kind.scope == "sample" and pta.create_adapter(name, classifier).state_bytes > 0


@contextmanager
def client_of(folder):
    """A client of a service that writes a snapshot after every eight samples."""
    with serving(GOLDEN / "features.npz", folder, snapshot_samples=8) as server, Client(server.url, TOKEN) as client:
        yield client


def make_data_folder(expected):
    """Three streams with every kind of row; a snapshot in the middle and one at the end."""
    folder = HERE / "served"
    shutil.rmtree(folder, ignore_errors=True)
    rows = stream()["image_features"].astype(np.float32)
    with client_of(folder) as client:
        client.create("garden")
        for number in range(6):
            client.infer(rows[2 * number : 2 * number + 2], source="door", id=f"first {number}", learn=True)
        for number in range(10):
            source = "street" if number % 3 == 0 else "kitchen"
            client.infer(rows[20 + number], stream="garden", source=source, id=f"garden {number}", learn=True)
    with client_of(folder) as client:
        for number in range(6, 10):
            client.infer(rows[2 * number : 2 * number + 2], source="door", id=f"second {number}", learn=True)
        client.operate("default", "rewind", sequence=16)
        client.infer(rows[40:43], id="after the rewind", learn=True)
        client.operate("garden", "label", labels=[{"sequence": 3, "label": "boot"}, {"sequence": 5, "label": "coat"}])
        client.operate("garden", "unlearn", source="street")
        client.infer(rows[43:45], stream="garden", source="kitchen", id="later", learn=True)
        client.operate("garden", "reset", classes=["boot"])
        client.operate("garden", "undo")
        client.create("copy")
        client.operate("copy", "import", content=client.export_state("default"))
        client.infer(rows[45:47], stream="copy", id="copied", learn=True)
        client.operate("copy", "freeze")
        client.operate("copy", "answers", answers="zero-shot")
        seen = served(client)
        again = client.infer(rows[43:45], stream="garden", source="kitchen", id="later", learn=True)
    for stream_seen in seen.values():
        stream_seen["digests"] = digests(stream_seen["state"])
        stream_seen["state"] = {name: array.tolist() for name, array in stream_seen["state"].items()}
        stream_seen["logits"] = np.asarray(stream_seen["logits"]).tolist()
    expected["served"] = {
        "streams": seen,
        "journal": database_rows(folder / "journal.sqlite"),
        "snapshots": sorted(path.relative_to(folder).as_posix() for path in folder.glob("streams/*/snapshots/*")),
        "repeated": {"labels": list(again.labels), "sequence": again.outputs["sequence"].tolist()},
    }
    for left in ("journal.sqlite-wal", "journal.sqlite-shm"):  # of reading the rows
        (folder / left).unlink(missing_ok=True)


def make_store(expected):
    """Results of a sweep, rows of a leaderboard, and the reference of a monitor."""
    with tempfile.TemporaryDirectory() as name:
        folder, made = Path(name), stream()
        shutil.copy(GOLDEN / "features.npz", folder)
        np.savez(folder / "others.npz", **{**made, "image_features": made["image_features"][::-1]})
        np.savez(
            folder / "twice.npz",
            **{**made, "image_features": np.tile(made["image_features"], (2, 1)), "labels": np.tile(made["labels"], 2)},
        )
        sweep = ("sweep", "--features", "features.npz", *STORE_SWEEP, "--results", "store", "--json", "-")
        records = json.loads(command(*sweep, folder=folder))
        command("eval", *TWO_FILES, "--method", "clip", "--leaderboard", "board.csv", "--seed", 1, folder=folder)
        command("monitor", "reference", "twice.npz", "--out", "reference.safetensors", folder=folder)
        shutil.rmtree(folder / "store" / "claims")
        shutil.copytree(folder / "store", HERE / "store", dirs_exist_ok=True)
        for kept in ("board.csv", "reference.safetensors"):
            shutil.copy(folder / kept, HERE)
    expected["store"] = {
        "rows": database_rows(HERE / "store" / "results.sqlite"),
        "records": {record["made"]["key"]: part_of(record) for record in records},
    }
    expected["reference"] = digests(content_of(HERE / "reference.safetensors"))


def part_of(record):
    """What does not differ from run to run."""
    return {name: record[name] for name in ("method", "params", "seed", "n", "accuracy", "class_accuracies", "labels")}


def make_expected_features(expected):
    """What `pta eval` says of the feature file."""
    name = "features.safetensors"
    records = json.loads(command("eval", "--features", name, "--method", "clip", "--json", "-"))
    arrays = content_of(HERE / name)
    kept = {array: digest(arrays[array]) for array in arrays if array.endswith("features") or array == "labels"}
    expected[name] = {"arrays": kept, "record": part_of(records[0])}


def main():
    torch.set_num_threads(1)
    HERE.mkdir(exist_ok=True)
    expected = {"hub": make_features()}
    make_expected_features(expected)
    make_states(expected)
    make_data_folder(expected)
    make_store(expected)
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1, default=list) + "\n")


if __name__ == "__main__":
    main()
