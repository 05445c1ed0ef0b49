"""On real CLIP features methods give the accuracies of loops over samples, and of their authors' programs."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from pta import create_adapter
from pta.data.features import load_features
from pta.measure.evaluate import evaluate
from pta.models.onnx.graph import GraphSession
from pta.run.export.onnx_files import head_file

FOLDER = os.environ.get("PTA_REAL_FEATURES")  # a folder of .npz files, which are not distributed with the project

# Accuracy in percent: zero-shot, then seeds 1, 2 and 3 of the released PTA (h = 20, w = 0.01) and of TDA (α₊ = 2,
# β₊ = 5), all of float64 loops.
KNOWN = {
    "imagenet_train_7shot": (61.10, [62.01, 61.59, 61.47], [61.66, 61.70, 61.56]),
    "stanford_cars_val": (58.90, [61.83, 61.10, 61.04], [59.63, 59.57, 59.08]),
    "caltech101_test_sub": (92.98, [94.22, 94.17, 94.12], [93.81, 93.86, 93.86]),
    "ucf101_test_sub_nounproxy": (74.60, [80.84, 80.95, 80.90], [77.66, 78.12, 77.89]),
}


# Accuracy of the authors' programs in the order of seed 1, with one view and one text.
OF_AUTHORS = [
    ("ecalp", {"max_rows": None}, {"caltech101_test_sub": 95.36, "ucf101_test_sub_nounproxy": 80.73}),
    ("dmn", {}, {"caltech101_test_sub": 91.74, "ucf101_test_sub_nounproxy": 76.25}),
    ("dmn", {"slots": 10}, {"caltech101_test_sub": 92.26, "ucf101_test_sub_nounproxy": 79.08}),
    ("dmn", {"version": "tta-vlm"}, {"caltech101_test_sub": 92.26, "ucf101_test_sub_nounproxy": 76.25}),
    ("dmn", {"version": "tta-vlm", "slots": 10}, {"caltech101_test_sub": 93.03, "ucf101_test_sub_nounproxy": 74.66}),
    ("etta", {"prompts": "one"}, {"caltech101_test_sub": 94.17, "ucf101_test_sub_nounproxy": 78.17}),
    (
        "etta",
        {"prompts": "one", "order": "predict-first"},
        {"caltech101_test_sub": 90.97, "ucf101_test_sub_nounproxy": 75.51},
    ),
]


@pytest.mark.skipif(not FOLDER, reason="PTA_REAL_FEATURES is not set")
@pytest.mark.parametrize("name", KNOWN)
def test_real_features_give_the_known_accuracies(name):
    zero_shot, pta, tda = KNOWN[name]
    found = list(
        evaluate(load_features(Path(FOLDER, f"{name}.npz")), {"clip": {}, "pta": {}, "tda": {}}, seeds=[1, 2, 3])
    )
    assert [round(evaluation.run.accuracy, 2) for evaluation in found] == [zero_shot] * 3 + pta + tda
    assert {round(evaluation.zero_shot_accuracy, 2) for evaluation in found} == {zero_shot}


@pytest.mark.skipif(not FOLDER, reason="PTA_REAL_FEATURES is not set")
@pytest.mark.parametrize(("method", "parameters", "known"), OF_AUTHORS, ids=str)
def test_real_features_give_the_accuracies_of_the_authors(method, parameters, known):
    for name, accuracy in known.items():
        file = load_features(Path(FOLDER, f"{name}.npz"))
        order = np.random.default_rng(1).permutation(len(file.samples))
        logits = create_adapter(method, file.classifier, **parameters).step(file.samples[torch.from_numpy(order)])
        assert round(100 * (logits.argmax(dim=1).numpy() == file.labels[order]).mean(), 2) == accuracy


@pytest.mark.skipif(not FOLDER, reason="PTA_REAL_FEATURES is not set")
@pytest.mark.parametrize("name", ["caltech101_test_sub", "stanford_cars_val", "ucf101_test_sub_nounproxy"])
@pytest.mark.parametrize("method", ["pta", "wpta"])
def test_an_exported_head_answers_real_features_as_the_library(name, method):
    pytest.importorskip("onnxruntime")
    file = load_features(Path(FOLDER, f"{name}.npz"))
    adapter = create_adapter(method, file.classifier)
    adapter.step(file.samples[: len(file.samples) // 2])
    answers, expected = (
        GraphSession(head_file(adapter)).run(file.samples.features.numpy()),
        adapter.predict(file.samples),
    )
    assert np.array_equal(answers["index"], expected.argmax(dim=1))
    assert np.abs(answers["logits"] - expected.numpy()).max() < 1e-3
