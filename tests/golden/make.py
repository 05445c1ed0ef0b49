"""Make the golden files: `python tests/golden/make.py`. Tests do not run it; they read what it wrote once.

All samples are synthetic: random numbers, and the packaged model's features of random images.
"""

import json
import shutil
import signal
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
    METHODS,
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

import pta
from pta.serve import Client

CLASSES = ("bag", "boot", "coat", "dress", "shirt", "trouser")
DIM, COUNT, LEARNED, SUMMARISED = 16, 120, 40, 60


def command(*arguments, folder=GOLDEN):
    """Run `pta` in a folder."""
    called = [sys.executable, "-m", "pta", *map(str, arguments)]
    return subprocess.run(called, cwd=folder, check=True, capture_output=True, text=True).stdout


def make_features():
    """Features around their text, all shifted in one direction; and those of the packaged model, by `pta extract`."""
    random = np.random.default_rng(31)
    text = random.standard_normal((len(CLASSES), DIM)).astype(np.float32)
    text /= np.linalg.norm(text, axis=1, keepdims=True)
    labels = random.integers(len(CLASSES), size=COUNT)
    images = text[labels] + 0.3 * random.standard_normal(DIM) + 0.25 * random.standard_normal((COUNT, DIM))
    images = (images / np.linalg.norm(images, axis=1, keepdims=True)).astype(np.float16)
    np.savez_compressed(
        GOLDEN / "features.npz",
        image_features=images,
        text_features=text,
        labels=labels,
        classnames=np.array(CLASSES),
        scale=np.float64(20.0),
    )
    with tempfile.TemporaryDirectory() as folder:
        for number in range(12):
            path = Path(folder) / "drawn" / CLASSES[number % 3] / f"{number:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            small = Image.fromarray(random.integers(0, 256, (4, 4, 3), np.uint8))
            small.resize((40, 36), Image.Resampling.BICUBIC).save(path)
        extracted = GOLDEN / "features.safetensors"
        extracted.unlink(missing_ok=True)
        command("extract", "drawn", "--model", "embedded", "--views", 2, "--out", extracted, folder=folder)


def make_states(expected):
    """States after 40 samples, and segments of the 60 that follow."""
    made = stream()
    samples = pta.Samples.of(made["image_features"])
    classifier = pta.ZeroShotClassifier(made["text_features"], list(CLASSES), scale=20.0)
    probes = pta.Samples.of(stream_probes())
    for method in METHODS:
        adapter = pta.create_adapter(method, classifier)
        for start in range(0, LEARNED, 5):
            adapter.step(samples[start : start + 5])
        adapter.save(GOLDEN / f"{method}.safetensors")
        next_step = adapter.clone().step(samples[LEARNED : LEARNED + SUMMARISED])
        expected[method] = {
            "position": adapter.position,
            "parameters": dict(adapter.parameters),
            "state": digests({name: tensor.numpy() for name, tensor in adapter.state().items()}),
            "file": digests(content_of(GOLDEN / f"{method}.safetensors")),
            "predict": adapter.predict(probes).tolist(),
            "step": next_step[-8:].tolist(),
        }
    for name, parameters in SEGMENTS.items():
        adapter = pta.create_adapter("pta", classifier, **parameters)
        segment = adapter.summarise(samples[LEARNED : LEARNED + SUMMARISED])
        segment.save(GOLDEN / f"{name}.safetensors")
        exact = adapter.apply(segment)
        expected[name] = {
            "count": segment.count,
            "file": digests(content_of(GOLDEN / f"{name}.safetensors")),
            "exact": exact,
            "position": adapter.position,
            "predict": adapter.predict(probes).tolist(),
        }


@contextmanager
def serving(folder):
    """`pta serve` on the feature file, ended by SIGTERM, so that it writes its snapshots."""
    called = [sys.executable, "-m", "pta", "serve", "--features-only", GOLDEN / "features.npz"]
    called += ["--data", folder, "--port", "0"]
    process = subprocess.Popen([*map(str, called)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        address = process.stdout.readline().split()[0]
        with Client(address, (folder / "token").read_text().strip()) as client:
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()


def make_data_folder(expected):
    """Three streams with every kind of row; a snapshot in the middle and one at the end."""
    folder = GOLDEN / "served"
    shutil.rmtree(folder, ignore_errors=True)
    rows = stream()["image_features"].astype(np.float32)
    with serving(folder) as client:
        client.create("garden")
        for number in range(6):
            client.infer(rows[2 * number : 2 * number + 2], source="door", id=f"first {number}", learn=True)
        for number in range(10):
            source = "street" if number % 3 == 0 else "kitchen"
            client.infer(rows[20 + number], stream="garden", source=source, id=f"garden {number}", learn=True)
    with serving(folder) as client:
        for number in range(6, 10):
            client.infer(rows[2 * number : 2 * number + 2], source="door", id=f"second {number}", learn=True)
        client.operate("default", "rewind", sequence=16)
        client.infer(rows[40:43], id="after the rewind", learn=True)
        client.operate("garden", "unlearn", source="street")
        client.infer(rows[43:45], stream="garden", source="kitchen", id="later", learn=True)
        client.operate("garden", "reset", classes=["boot"])
        client.operate("garden", "undo")
        client.create("copy")
        client.operate("copy", "import", content=client.export_state("default"))
        client.infer(rows[45:47], stream="copy", id="copied", learn=True)
        client.operate("copy", "freeze")
        seen = served(client)
        again = client.infer(rows[43:45], stream="garden", source="kitchen", id="later", learn=True)
    (folder / "token").unlink()
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
    """Results of a sweep."""
    shutil.rmtree(GOLDEN / "store", ignore_errors=True)
    records = command("sweep", "--features", "features.npz", *STORE_SWEEP, "--results", "store", "--json", "-")
    shutil.rmtree(GOLDEN / "store" / "claims")
    expected["store"] = {
        "rows": database_rows(GOLDEN / "store" / "results.sqlite"),
        "records": {record["made"]["key"]: part_of(record) for record in json.loads(records)},
    }


def part_of(record):
    """What does not differ from run to run."""
    return {name: record[name] for name in ("method", "params", "seed", "n", "accuracy", "class_accuracies", "labels")}


def make_expected_features(expected):
    """What `pta eval` says of the feature files."""
    for name in ("features.npz", "features.safetensors"):
        records = json.loads(command("eval", "--features", name, "--method", "clip", "--json", "-"))
        arrays = stream() if name.endswith("npz") else content_of(GOLDEN / name)
        kept = {array: digest(arrays[array]) for array in ("image_features", "text_features", "labels")}
        expected[name] = {"arrays": kept, "record": part_of(records[0])}


def main():
    torch.set_num_threads(1)
    expected = {}
    make_features()
    make_expected_features(expected)
    make_states(expected)
    make_data_folder(expected)
    make_store(expected)
    (GOLDEN / "expected.json").write_text(json.dumps(expected, indent=1, default=list) + "\n")


if __name__ == "__main__":
    main()
