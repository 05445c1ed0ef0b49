"""Reasons that docs/methods.md gives or withholds, checked: what a method gains without one of its parts, and when.

    python benchmarks/reasons.py FOLDER fashion_noise.npz      writes benchmarks/results/reasons.csv

FOLDER holds the real features; the second file is that of fashion_features.py. Gains are points over zero-shot on the
same samples, means over seeds 1 to 3.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from finding.table import runs
from result_file import RESULTS, Row, write

from pta.data.features import FeatureFile, load_features

SEEDS = (1, 2, 3)
FILES = ("caltech101_test_sub", "stanford_cars_val", "ucf101_test_sub_nounproxy")
EACH = 10  # samples of a class in the balanced part


def gains(data: FeatureFile, method: str, parts: int = 1, **parameters: Any) -> str:
    """Points over zero-shot in each of so many consecutive parts of the stream."""
    found = []
    for run in runs(data, method, parameters, SEEDS):
        gained = (run.predictions == run.labels) * 1.0 - (data.zero_shot_predictions == data.labels)[run.order]
        found.append([100 * part.mean() for part in np.array_split(gained, parts)])
    return " ".join(f"{value:.2f}" for value in np.mean(found, axis=0))


def balanced(data: FeatureFile) -> FeatureFile:
    """As many samples of every class that has so many."""
    rng, labels = np.random.default_rng(0), np.asarray(data.labels)
    own = [rng.permutation(np.flatnonzero(labels == c)) for c in range(data.classifier.classes)]
    rows = np.concatenate([found[:EACH] for found in own if len(found) >= EACH])
    return replace(data, samples=data.samples[torch.from_numpy(rows)], labels=labels[rows])


def reasons(real: list[FeatureFile], fashion: FeatureFile) -> Iterator[Row]:
    """One row for each number."""

    def note(data: FeatureFile, what: str, value: str) -> Row:
        return {"dataset": data.name, "what": what, "value": value}

    for data in (*real, fashion):
        counts = np.bincount(np.asarray(data.labels), minlength=data.classifier.classes)
        yield note(
            data, "samples per class: least, median, most", f"{counts.min()} {np.median(counts):.0f} {counts.max()}"
        )
        yield note(data, "onzeta", gains(data, "onzeta"))
        yield note(data, "onzeta without balancing (dual_step=0)", gains(data, "onzeta", dual_step=0.0))
        yield note(data, "onzeta without learned proxies (proxy_step=0)", gains(data, "onzeta", proxy_step=0.0))
    yield note(real[0], f"onzeta on {EACH} samples of each class", gains(balanced(real[0]), "onzeta"))
    for data in real:
        for method in ("adapt", "oga", "pta"):
            yield note(data, f"{method} by fifths of the stream", gains(data, method, parts=5))
    views = torch.nn.functional.normalize(torch.as_tensor(fashion.samples.views).float(), dim=2)
    right = fashion.classifier.logits(views).argmax(dim=2) == torch.as_tensor(fashion.labels)[:, None]
    yield note(fashion, "zero-shot accuracy of the plain images", f"{100 * right[:, 0].float().mean():.2f}")
    yield note(fashion, "zero-shot accuracy of single crops", f"{100 * right[:, 1:].float().mean():.2f}")


def main() -> None:
    """Measure everything and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("fashion", type=Path)
    arguments = parser.parse_args()
    real = [load_features(arguments.folder / f"{name}.npz") for name in FILES]
    fashion = load_features(arguments.fashion)
    write(RESULTS / "reasons.csv", reasons(real, fashion))


if __name__ == "__main__":
    main()
