"""The golden files: where they are, what is asked of them, and what they gave when they were made."""

import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
from safetensors.numpy import load

GOLDEN = Path(__file__).parent / "golden"
RELEASES = ("", "0.1.0")  # of which there are files; those in the folder itself were written before the first one
METHODS = ("pta", "wpta", "tda")
SEGMENTS = {"segment": {}, "segment-paper": {"variant": "paper"}}
STORE_SWEEP = ("--set", "pta.h=5,20", "--seed", "1")


def expected(release=""):
    """What reading the golden files must give."""
    return json.loads((GOLDEN / release / "expected.json").read_text())


def copied(name, folder, release=""):
    """A copy of a golden file or folder, which a test may change."""
    origin, target = GOLDEN / release / name, folder / name
    return Path(shutil.copytree(origin, target) if origin.is_dir() else shutil.copy(origin, target))


def states():
    """Every release with every state of it."""
    own = [(release, path.stem) for release in RELEASES[1:] for path in (GOLDEN / release).glob("state-*.safetensors")]
    return [*(("", method) for method in METHODS), *sorted(own)]


def stream():
    """The arrays of the feature file: 120 samples in 6 classes of 16 dimensions, some far from their text."""
    with np.load(GOLDEN / "features.npz") as file:
        return {name: file[name] for name in file.files}


def digests(tensors):
    """The sha256 of the type, the shape and the bytes of every array."""
    return {name: digest(array) for name, array in sorted(tensors.items())}


def digest(array):
    """The sha256 of the type, the shape and the bytes of an array."""
    array = np.ascontiguousarray(array)
    return hashlib.sha256(f"{array.dtype} {array.shape} ".encode() + array.tobytes()).hexdigest()


def content_of(state):
    """The tensors of a safetensors file or of its bytes."""
    return load(state if isinstance(state, bytes) else state.read_bytes())


def database_rows(path):
    """For every table of a database, the number of rows and the sha256 of their contents."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        tables = {name: connection.execute(f"SELECT * FROM {name} ORDER BY rowid").fetchall() for (name,) in names}
    return {
        name: {"rows": len(rows), "sha256": hashlib.sha256(repr(rows).encode()).hexdigest()}
        for name, rows in tables.items()
    }


def served(client):
    """What a client can see of the streams of a service without changing them."""
    seen = {}
    for stream in client.streams():
        name = stream["name"]
        answer = client.infer(stream_probes(), stream=name, learn=False, logits=True)
        seen[name] = {
            "summary": {key: stream[key] for key in ("position", "sequence", "frozen")},
            "sources": client.show(name)["sources"],
            "state": content_of(client.export_state(name)),
            "logits": answer.outputs["logits"],
            "labels": list(answer.labels),
        }
    return seen


def stream_probes():
    """The features that are scored after loading; none of them was learned."""
    return stream()["image_features"][-8:].astype(np.float32)
