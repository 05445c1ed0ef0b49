"""Files to features to tables, and files to answers, with models of every kind; their weights are random."""

import json

import numpy as np
import pytest
import torch
from hf_models import write_hf_clip
from openai_checkpoints import random_state, write_openai_archive
from photos import write_classes, write_photos

from pta import PTA, WPTA
from pta.data.features import load_features

MODELS = {
    "embedded": lambda folder: "embedded",
    "hf": lambda folder: f"hf:{write_hf_clip(folder / 'clip')}",
    "RN50": lambda folder: f"file:{write_openai_archive(folder / 'RN50.pt', random_state('RN50'))}",
}


@pytest.mark.parametrize("kind", MODELS)
def test_extract_eval_and_predict_agree(pta, kind, tmp_path):
    count = 40
    labelled = write_photos(tmp_path / "photos", count)
    model, classes = MODELS[kind](tmp_path), write_classes(tmp_path / "classes.txt")
    known = ("--model", model, "--classes", classes, "--templates", "vanilla", "--device", "cpu")

    for command in (
        ("extract", "photos", *known, "--out", "f.safetensors"),
        ("eval", "--features", "f.safetensors", "--json", "eval.json", "--predictions", "p"),
        ("predict", "photos", *known, "--out", "rows.jsonl"),
    ):
        done = pta(*command)
        assert done.returncode == 0, done.stderr

    data = load_features(tmp_path / "f.safetensors")
    assert data.samples.features.shape[0] == count
    assert [data.classifier.class_names[label] for label in data.labels] == [name for _, name in labelled]

    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [row["path"] for row in rows] == [str(path.relative_to(tmp_path)) for path, _ in labelled]
    names = data.classifier.class_names
    assert [row["zero_shot_label"] for row in rows] == [names[number] for number in data.zero_shot_predictions]
    in_order = WPTA(data.classifier).step(data.samples).argmax(dim=1)
    assert [row["label"] for row in rows] == [names[number] for number in in_order]

    zero_shot, adapted = json.loads((tmp_path / "eval.json").read_text())
    assert zero_shot["accuracy"] == pytest.approx(100 * np.mean(data.zero_shot_predictions == data.labels))
    order = np.random.default_rng(1).permutation(count)
    shuffled = PTA(data.classifier).step(data.samples[torch.from_numpy(order)]).argmax(dim=1).numpy()
    assert adapted["accuracy"] == pytest.approx(100 * np.mean(shuffled == data.labels[order]))
