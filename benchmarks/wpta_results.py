"""WPTA beside zero-shot, TDA and PTA, with and without the prior, with intervals: benchmarks/results/wpta.csv.

    python benchmarks/wpta_results.py FOLDER --extracted CACHE

FOLDER holds feature files (.npz). Fashion-MNIST under the demo's shifts and the packaged clouds under the corruptions
of Table 3 are encoded by the embedded models; CACHE may be the folder `features` of `pta reproduce --offline`, whose
files are not made again. Methods are at their defaults, PTA on clouds has h = 50, as its released program.

Intervals are those of `pta compare`: 95 % of a bootstrap of the samples, for the accuracy above PTA's. The same images
come under several shifts, so what is resampled are images, each with all its shifts and orders. Rows of all files have
the mean of their accuracies; every file is resampled by itself.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import product
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from finding.table import STREAMS, feature_files, runs
from numpy.typing import NDArray
from result_file import RESULTS, Row, write

from pta.data.features import FeatureFile
from pta.measure.difference import Resampling, bootstrap_means
from pta.measure.metrics import calibration_error
from pta.measure.provenance import hardware
from pta.measure.reproduce.library import Library
from pta.measure.reproduce.profile import load_profile
from pta.measure.stream import Stream

SEEDS, LARGE = (1, 2, 3), 5000  # a file of more samples has the first seed alone
ALL_FILES = "all files"
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "pta": ("pta", {}),  # first: the others are compared with it
    "clip": ("clip", {}),
    "tda": ("tda", {}),
    "wpta without prior": ("wpta", {"prior": "none"}),
    "wpta without gate": ("wpta", {"gate": "none"}),
    "wpta": ("wpta", {}),
    "wpta, depth 2": ("wpta", {"depth": 2}),
    "clip + prior": ("clip", {"prior": "local"}),
    "tda + prior": ("tda", {"prior": "local"}),
    "pta + prior": ("pta", {"prior": "local"}),
}
SHIFTS = ("gaussian_noise/3", "blur/4", "contrast/2", "rotate/3", "pixelate/4")
CORRUPTIONS = ("add_global", "add_local", "dropout_global", "dropout_local", "rotate", "scale", "jitter")
PACKAGED = {
    "fashion": [f"fashion/{shift}" for shift in SHIFTS],
    "procedural": [f"point_shapes/procedural/{one}/2/520" for one in CORRUPTIONS],
    "furniture": [f"point_shapes/furniture/{one}/2" for one in CORRUPTIONS],
}
OF_CLOUDS = {"pta": {"h": 50.0}}

Right = NDArray[np.float64]  # seeds × samples: whether an answer is right, or in what share of the shifts
Measured = tuple[Right, float]  # with the calibration error


def measured(data: FeatureFile, stream: Stream, method: str, parameters: dict[str, Any]) -> tuple[Right, float]:
    """What is right in the order of each seed, and the mean calibration error."""
    seeds = SEEDS[:1] if len(data.samples) > LARGE else SEEDS
    found, errors = np.empty((len(seeds), len(data.samples))), []
    for own, run in zip(found, runs(data, method, parameters, seeds, stream), strict=True):
        own[run.order] = right = run.predictions == run.labels
        errors.append(calibration_error(run.confidences, right))
    return found, fmean(errors)


def compared(
    name: str, members: Sequence[FeatureFile], kept: dict[tuple[str, str], list[Measured]], pool: Pool
) -> Iterator[Row]:
    """A row for each stream and method; what was measured is kept."""
    on_clouds = name in ("procedural", "furniture")
    work = list(product(STREAMS, METHODS))
    tasks = []
    for stream, title in work:
        method, parameters = METHODS[title]
        given = parameters | (OF_CLOUDS.get(method, {}) if on_clouds else {})
        tasks += [(data, STREAMS[stream], method, given) for data in members]
    found = iter(pool.starmap(measured, tasks, chunksize=1))
    for stream, title in work:
        arrays, errors = zip(*(next(found) for _ in members), strict=True)
        own: Right = np.mean(arrays, axis=0)
        kept.setdefault((stream, title), []).append((own, fmean(errors)))
        differences = (own - kept[stream, "pta"][-1][0]).mean(axis=0)
        gain = differences.mean(), Resampling().test(differences).interval
        yield row(name, stream, title, 100 * own.mean(axis=1), fmean(errors), *gain)


def together(kept: dict[tuple[str, str], list[Measured]]) -> Iterator[Row]:
    """The mean of all files."""
    for (stream, title), files in kept.items():
        gains = [(own - pta).mean(axis=0) for (own, _), (pta, _) in zip(files, kept[stream, "pta"], strict=True)]
        means = np.mean([bootstrap_means(own, Resampling().resamples, seed) for seed, own in enumerate(gains)], axis=0)
        low, high = np.quantile(means, [0.025, 0.975])
        accuracy, error = 100 * np.mean([own.mean() for own, _ in files]), fmean(error for _, error in files)
        gain = float(np.mean([one.mean() for one in gains])), (low, high)
        yield row(ALL_FILES, stream, title, np.array([accuracy]), error, *gain)


def row(
    name: str, stream: str, method: str, accuracies: Right, error: float, gain: float, interval: tuple[float, float]
) -> Row:
    """What is written; `accuracies` are those of the orders."""
    return {
        "dataset": name,
        "stream": stream,
        "method": method,
        "accuracy": f"{accuracies.mean():.2f}",
        "deviation": f"{stdev(accuracies.tolist()):.2f}" if len(accuracies) > 1 else "",
        "over_pta": f"{100 * gain:.2f}",
        "low": f"{100 * interval[0]:.2f}",
        "high": f"{100 * interval[1]:.2f}",
        "calibration_error": f"{error:.2f}",
        "hardware": hardware(),
    }


def rows(folder: Path, library: Library, pool: Pool) -> Iterator[Row]:
    """Every file, their mean, and what is packaged."""
    kept: dict[tuple[str, str], list[Measured]] = {}
    for data in feature_files(folder):
        yield from compared(data.name, [data], kept, pool)
    yield from together(kept)
    for name, members in PACKAGED.items():
        loaded = [library.features(one) for one in members]
        yield from compared(name, loaded, {}, pool)


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--extracted", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with one thread")
    parser.add_argument("--out", type=Path, default=RESULTS / "wpta.csv")
    given, profile = parser.parse_args(), load_profile("offline")
    torch.set_num_threads(1)
    library = Library(given.extracted, model=profile.model, models=profile.models)
    with get_context("spawn").Pool(given.jobs, torch.set_num_threads, (1,)) as pool:
        write(given.out, rows(given.folder, library, pool))


if __name__ == "__main__":
    main()
