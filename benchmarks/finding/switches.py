"""What each switch of PTA does, one at a time."""

from collections.abc import Iterator
from pathlib import Path

from result_file import Row

from finding.table import feature_files, mean, runs

SEEDS = (1, 2, 3)
SETTINGS: dict[str, dict[str, object]] = {
    "released": {},
    "released, w=0": {"w": 0.0},
    "released, w=0.0001": {"w": 0.0001},
    "released, w=0.001": {"w": 0.001},
    "released, w=0.1": {"w": 0.1},
    "released, w=0.3": {"w": 0.3},
    "released, fixed anchor": {"anchor": "fixed"},
    "released, fixed anchor, w=0.1": {"anchor": "fixed", "w": 0.1},
    "released, fixed anchor, w=0.3": {"anchor": "fixed", "w": 0.3},
    "released, raw weight": {"weight": "raw"},
    "released, raw weight, w=0": {"weight": "raw", "w": 0.0},
    "released, no mask": {"min_probability": 0.0},
    "released, not renormalised": {"renormalise": False},
    "released, sum of probabilities": {"fusion": "probabilities"},
    "released, predict first": {"order": "predict-first"},
    "paper": {"variant": "paper"},
    "paper, w=0": {"variant": "paper", "w": 0.0},
    "paper, raw weight": {"variant": "paper", "weight": "raw"},
}


def measure(folder: Path) -> Iterator[Row]:
    """Every setting, over i.i.d. orders, beside zero-shot."""
    for data in feature_files(folder):
        found = {"zero-shot": [data.zero_shot_accuracy or 0.0] * len(SEEDS)}
        for name, parameters in SETTINGS.items():
            found[name] = [run.accuracy or 0.0 for run in runs(data, "pta", parameters, SEEDS)]
        for name, accuracies in found.items():
            seeds = {f"seed_{seed}": f"{value:.2f}" for seed, value in zip(SEEDS, accuracies, strict=True)}
            yield {"dataset": data.name, "setting": name, "accuracy": mean(accuracies), **seeds}
