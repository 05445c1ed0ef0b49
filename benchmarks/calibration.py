"""How far probabilities are from accuracy, with each method's `logit_factor` and without it.

    python benchmarks/fashion_features.py fashion_noise.npz
    python benchmarks/fashion_features.py fashion_blur.npz --shift blur --views 0       and so for the other shifts
    python benchmarks/calibration.py FILE …        writes benchmarks/results/calibration.csv

Every method at its defaults, and the paper's variant of PTA, as `pta eval` runs them, on the orders of SEEDS; on files
of more than LARGE samples the methods in SLOW are run on the first seed alone. A row holds means over seeds.
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray
from result_file import RESULTS, Row, write

from pta import create_adapter, list_adapters
from pta.data.features import FeatureFile, load_features
from pta.measure.evaluate import evaluate
from pta.measure.metrics import accuracy, calibration_error
from pta.measure.provenance import hardware
from pta.measure.stream_run import StreamRun
from pta.methods import needs_model, needs_of_samples
from pta.models import EmbeddedEncoder

SEEDS = (1, 2, 3)
LARGE, SLOW = 5000, ("adapt", "bca", "dota", "freetta", "oga", "stata")
SURE = 0.99


def contenders(data: FeatureFile) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Titles, names and parameters of the methods that the file has everything for."""
    yield "pta, paper", "pta", {"variant": "paper"}
    for method in list_adapters():
        if needs_of_samples(method, {}) <= data.samples.provides:
            yield method, method, {"calibration": "fixed"}


def shown(prefix: str, confidences: NDArray[np.float32], right: NDArray[np.bool_]) -> dict[str, float]:
    """Mean confidence, calibration error, share of nearly certain answers, and how many of these are right, if any."""
    sure = confidences > SURE
    return {
        f"{prefix}confidence": 100 * float(confidences.mean()),
        f"{prefix}calibration_error": calibration_error(confidences, right),
        f"{prefix}above_99": 100 * float(sure.mean()),
        f"{prefix}right_above_99": 100 * float(right[sure].mean()) if sure.any() else float("nan"),
    }


def counted(run: StreamRun) -> dict[str, float]:
    """What is counted of one run."""
    right = run.correct
    assert right is not None  # every file has labels
    return {
        "accuracy": accuracy(right),
        **shown("raw_", run.raw_confidences, right),
        **shown("", run.confidences, right),
    }


def rows_of(data: FeatureFile, encoder: EmbeddedEncoder) -> Iterator[Row]:
    """One row for each method; the encoder is for those that need its image tower."""
    for title, method, parameters in contenders(data):
        seeds = SEEDS[:1] if len(data.samples) > LARGE and method in SLOW else SEEDS
        model = encoder if needs_model(method, {}) else None
        made = create_adapter(method, data.classifier, model=model, source=data.samples, **parameters)
        runs = [counted(done.run) for done in evaluate(data, {method: parameters}, seeds, model=model)]
        means = {name: fmean(run[name] for run in runs) for name in runs[0]}
        rounded = {name: "" if math.isnan(value) else round(value, 2) for name, value in means.items()}
        named = {"dataset": data.name, "method": title, "seeds": " ".join(map(str, seeds))}
        yield {**named, "factor": round(made.logit_factor, 4), **rounded, "hardware": hardware()}


def main() -> None:
    """Measure every file and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS / "calibration.csv")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    encoder = EmbeddedEncoder.load()
    write(arguments.out, (row for path in arguments.files for row in rows_of(load_features(path), encoder)))


if __name__ == "__main__":
    main()
