"""What the switches of PTA do on real features: the table behind docs/findings.md.

    python benchmarks/findings.py FOLDER       FOLDER holds feature files (.npz); writes results/findings.csv

"collapse" is the rule computed as written, where a class that nothing has flowed into is divided by its length zero.
"""

import argparse
import csv
from pathlib import Path
from statistics import fmean

import torch

from pta import PTA
from pta.datasets.features import FeatureFile, load_features
from pta.experiments.run import run_stream
from pta.streams import iid

SEEDS = (1, 2, 3)
SETTINGS: dict[str, dict[str, object]] = {
    "released": {},
    "released, w=0": {"w": 0.0},
    "released, w=0.0001": {"w": 0.0001},
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


def collapse(data: FeatureFile, seed: int, h: float = 20.0, w: float = 0.0) -> float:
    """Accuracy in percent of the released rule with w = 0 and no guard against 0/0."""
    T, order = data.classifier.anchors, iid(len(data.samples), seed)
    P, R, right = torch.zeros_like(T), T.clone(), 0
    for index in order.tolist():
        f = data.samples.features[index]
        z = data.classifier.scale * (T @ f)
        s = z.softmax(dim=0)
        beta = torch.where(s >= 0.1, 1 - torch.exp(-s / h), 0.0)[:, None]
        P = (1 - beta) * P + beta * f
        mixed = w * R + (1 - w) * P
        R = mixed / mixed.norm(dim=1, keepdim=True)
        right += int((z + data.classifier.scale * (R @ f)).argmax()) == data.labels[index]
    return 100 * right / len(order)


def main() -> None:
    """Measure every setting on every file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "findings.csv")
    arguments = parser.parse_args()
    with arguments.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["dataset", "setting", "accuracy", *(f"seed_{seed}" for seed in SEEDS)])
        for path in sorted(arguments.folder.glob("*.npz")):
            data = load_features(path)
            zero_shot = 100 * float(
                (data.classifier.logits(data.samples.features).argmax(dim=1).numpy() == data.labels).mean()
            )
            rows = {"zero-shot": [zero_shot] * len(SEEDS), "collapse: released, w=0, 0/0": [collapse(data, 1)]}
            for name, parameters in SETTINGS.items():
                orders = [iid(len(data.samples), seed) for seed in SEEDS]
                runs = [run_stream(PTA(data.classifier, **parameters), data.samples, data.labels, o) for o in orders]
                rows[name] = [run.accuracy for run in runs]
            for name, accuracies in rows.items():
                writer.writerow(
                    [path.stem, name, f"{fmean(accuracies):.2f}", *(f"{value:.2f}" for value in accuracies)]
                )
                print(f"{path.stem:28} {name:34} {fmean(accuracies):.2f}", flush=True)


if __name__ == "__main__":
    main()
