"""`examples/beam.py`: the functions of `pta.cluster` on the direct runner of Apache Beam."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from synthetic import clip_like

import pta
from pta.data.features import load_features

EXAMPLE = Path(__file__).parent.parent / "examples" / "beam.py"


def test_the_example_fits_on_a_page():
    assert sum(bool(line.strip()) for line in EXAMPLE.read_text().splitlines()) <= 40


@pytest.mark.skipif(find_spec("apache_beam") is None, reason="Apache Beam is not installed: pip install apache-beam")
def test_beam_gives_the_labels_of_one_stream(tmp_path):
    classifier, features = clip_like(12, 32, 300)
    names = np.array(classifier.class_names)
    np.savez(tmp_path / "a.npz", image_features=features, text_features=classifier.anchors, classnames=names)
    out = tmp_path / "labels"
    subprocess.run([sys.executable, EXAMPLE, tmp_path / "a.npz", out, "64", "4"], check=True)
    lines = [line for part in tmp_path.glob("labels-*") for line in part.read_text().splitlines()]
    answers = {int(number): int(label) for number, label in (line.split(",") for line in lines if line[0].isdigit())}
    data = load_features(tmp_path / "a.npz")
    logits = pta.create_adapter("pta", data.classifier).step(data.samples)
    best = logits.topk(2, dim=1).values
    clear = (best[:, 0] - best[:, 1] > 1e-3).tolist()
    assert sorted(answers) == list(range(300))
    assert all(answers[n] == int(logits[n].argmax()) for n in range(300) if clear[n])
