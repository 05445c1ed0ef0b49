"""The released rule on real CLIP features gives the accuracies that its authors' own program gives."""

import os
from pathlib import Path

import pytest

from pta.datasets.features import load_features
from pta.experiments.evaluate import evaluate

FOLDER = Path(os.environ.get("PTA_REAL_FEATURES", Path(__file__).parents[2] / "shared" / "features"))

# Accuracy in percent: zero-shot, then seeds 1, 2 and 3 of the released rule (float64 loops, h = 20, w = 0.01).
KNOWN = {
    "imagenet_train_7shot": (61.10, [62.01, 61.59, 61.47]),
    "stanford_cars_val": (58.90, [61.83, 61.10, 61.04]),
    "caltech101_test_sub": (92.98, [94.22, 94.17, 94.12]),
    "ucf101_test_sub_nounproxy": (74.60, [80.84, 80.95, 80.90]),
}


@pytest.mark.parametrize("name", KNOWN)
def test_the_released_rule_gives_the_known_accuracies(name):
    path = FOLDER / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"real features are not distributed with the project; put {path.name} into $PTA_REAL_FEATURES")
    zero_shot, adapted = KNOWN[name]
    found = list(evaluate(load_features(path), {"clip": {}, "pta": {}}, seeds=[1, 2, 3]))
    clip, pta = found[:3], found[3:]
    assert [round(evaluation.run.accuracy, 2) for evaluation in clip] == [zero_shot] * 3
    assert [round(evaluation.zero_shot_accuracy, 2) for evaluation in pta] == [zero_shot] * 3
    assert [round(evaluation.run.accuracy, 2) for evaluation in pta] == adapted
