"""The balance gate on streams whose classes come in equal and in unequal numbers, against zero-shot.

    python benchmarks/balance.py FILE …                  writes benchmarks/results/balance.csv
    python benchmarks/balance.py FILE … --constants      writes benchmarks/results/balance-constants.csv

`wpta` and `pta` with the gate and without it. A row holds means over SEEDS, on files of more than LARGE samples over
the first alone: accuracy, its mean over the classes that occur and that of the worst class in percent, and expected
calibration errors with the fixed factor and with matched temperatures. Columns that begin with `zero_shot` are
zero-shot's on the same samples.

* 2, 5 and 20 look-alike classes, 400 samples: in equal numbers, one with 95 %, bursts. Each seed draws its classes.
* All classes: 10 % or 30 % of them occur (at most 600 samples); frequencies by a power law (at most 2,000); shuffled;
  Dirichlet; one half of the classes, then the other; a direction that is added more and more; one class after another.
* `frozen`: the first half of a stream is learned, the second half only answered, and only that is counted.

With --constants every constant of the gate takes several values, the others stay. Rows are means over files.
"""

import argparse
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from prior import halves
from result_file import RESULTS, Row, write
from torch import Tensor
from unbalanced import FEW, OF_FEW, SEEDS, opened
from unbalanced import OF_ALL as UNBALANCED

from pta import create_adapter
from pta.data.features import FeatureFile
from pta.engines import balance
from pta.measure.leaderboard import drifted
from pta.measure.metrics import accuracy, calibration_error, class_accuracies
from pta.measure.provenance import hardware
from pta.measure.stream import Stream

LARGE = 5000
BATCH = 256

OF_ALL = {
    **UNBALANCED,
    "shuffled": Stream(),
    "dirichlet 0.1": Stream("dirichlet", gamma=0.1),
    "dirichlet 0.01": Stream("dirichlet", gamma=0.01),
    "halves": None,
    "drift": Stream(),
    "sorted": Stream("separate"),
}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "wpta": ("wpta", {}),
    "wpta without gate": ("wpta", {"gate": "none"}),
    "pta": ("pta", {}),
    "pta with gate": ("pta", {"gate": "balance"}),
    "pta, predict-first": ("pta", {"order": "predict-first"}),
    "pta, predict-first, with gate": ("pta", {"order": "predict-first", "gate": "balance"}),
}
CONSTANTS: dict[str, tuple[float, ...]] = {
    "_LEAK": (0.1, 0.15, 0.2, 0.25, 0.3, 1e9),
    "_DOMINANCE": (0.06, 0.09, 0.12, 0.16, 0.2, 1e9),
    "_SHARPNESS": (4, 8, 16),
}


class Played(NamedTuple):
    """The samples of a stream in order."""

    data: FeatureFile
    features: Tensor
    labels: np.ndarray


def played(path: Path, title: str, classes: int | None, seed: int) -> Played:
    """The stream of a title, of drawn classes or of all."""
    data = opened(path)
    if classes is not None:
        stream = Stream(**{**vars(OF_FEW[title]), "classes_drawn": classes})
    else:
        stream = OF_ALL[title] or Stream()
    data = stream.part(data, seed)
    order = halves(data, seed) if title == "halves" else stream.order(data, seed, BATCH)
    features = data.samples.features[torch.from_numpy(order)]
    if title == "drift":
        features = drifted(features, seed)
    return Played(data, features, np.asarray(data.labels)[order])


def judged(probabilities: Tensor, labels: np.ndarray) -> tuple[float, float, float, float]:
    """Accuracy, mean per class, worst class and calibration error."""
    confidences, answers = probabilities.max(dim=1)
    right = answers.numpy() == labels
    by_class = [one for one in class_accuracies(right, labels, probabilities.shape[1]) if one is not None]
    return accuracy(right), fmean(by_class), min(by_class), calibration_error(confidences.numpy(), right)


def answered(stream: Played, method: str, parameters: Mapping[str, Any], *, frozen: bool) -> Tensor:
    """Probabilities of the samples that count."""
    adapter = create_adapter(method, stream.data.classifier, **parameters)
    half = len(stream.features) // 2 if frozen else 0
    parts = torch.split(stream.features[half:], BATCH)
    if frozen:
        adapter.step(stream.features[:half])
    logits = torch.cat([(adapter.predict if frozen else adapter.step)(part) for part in parts])
    return adapter.probabilities(logits)


class Job(NamedTuple):
    """What makes one row."""

    path: Path
    title: str
    classes: int | None
    method: str
    frozen: bool


def jobs_of(paths: list[Path], methods: tuple[str, ...]) -> list[Job]:
    """One job for each stream and method."""
    streams = []
    for path in paths:
        occurring = len(np.unique(np.asarray(opened(path).labels)))
        streams += [(path, title, few) for few in FEW if few <= occurring for title in OF_FEW]
        streams += [(path, title, None) for title in OF_ALL]
    return [Job(*stream, method, frozen) for stream, method, frozen in product(streams, methods, (False, True))]


def rows_of(job: Job) -> list[Row]:
    """Means over the seeds."""
    method, parameters = METHODS[job.method]
    seeds = SEEDS[:1] if job.classes is None and len(opened(job.path).samples) > LARGE else SEEDS
    found: list[tuple[float, ...]] = []
    for seed in seeds:
        stream = played(job.path, job.title, job.classes, seed)
        counted = stream.labels[len(stream.labels) // 2 :] if job.frozen else stream.labels
        ask = partial(answered, stream, frozen=job.frozen)
        own = judged(ask(method, parameters | {"calibration": "fixed"}), counted)
        matched = judged(ask(method, parameters | {"calibration": "matched"}), counted)[-1]
        base = judged(ask("clip", {}), counted)
        found.append((*own, matched, *base))
    names = ("accuracy", "mean_per_class", "worst_class", "fixed_error")
    columns = (*names, "matched_error", *(f"zero_shot_{name}" for name in (*names[:3], "error")))
    means = (round(fmean(values), 2) for values in zip(*found, strict=True))
    row = {
        "file": opened(job.path).name,
        "stream": job.title,
        "classes": job.classes or "all",
        "method": job.method,
        "way": "frozen" if job.frozen else "going on",
        "seeds": len(seeds),
        **dict(zip(columns, means, strict=True)),
        "hardware": hardware(),
    }
    return [row]


def constants_rows(paths: list[Path], given: tuple[str, float]) -> list[Row]:
    """The mean difference to zero-shot in each stream with one constant changed."""
    name, value = given
    usual = getattr(balance, name)
    setattr(balance, name, value)
    gains: dict[tuple[int | str, str], list[float]] = {}
    try:
        for job in jobs_of(paths, ("wpta",)):
            large = len(opened(job.path).samples) > LARGE
            if job.frozen or (large and job.classes is None):
                continue
            for seed in SEEDS[:3]:
                stream = played(job.path, job.title, job.classes, seed)
                own, base = (
                    judged(answered(stream, method, {}, frozen=False), stream.labels)[0] for method in ("wpta", "clip")
                )
                gains.setdefault((job.classes or "all", job.title), []).append(own - base)
    finally:
        setattr(balance, name, usual)
    named = {"constant": name.strip("_").lower(), "value": "none" if value == 1e9 else value}
    return [
        {
            **named,
            "classes": classes,
            "stream": stream,
            "over_zero_shot": round(fmean(values), 2),
            "hardware": hardware(),
        }
        for (classes, stream), values in gains.items()
    ]


def measured(work: Callable[[Any], list[Row]], jobs: list[Any], processes: int) -> Iterator[Row]:
    """The rows of each job, in their order; what is done is told on stderr."""
    with multiprocessing.get_context("spawn").Pool(processes, torch.set_num_threads, (1,)) as pool:
        for done, rows in enumerate(pool.imap(work, jobs), 1):
            print(f"{done} of {len(jobs)} done", file=sys.stderr, flush=True)
            yield from rows


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--constants", action="store_true", help="what each constant buys")
    parser.add_argument("--jobs", type=int, default=2, help="processes, each with one thread")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.constants:
        values = [(name, value) for name, several in CONSTANTS.items() for value in several]
        rows = measured(partial(constants_rows, given.files), values, given.jobs)
    else:
        rows = measured(rows_of, jobs_of(given.files, tuple(METHODS)), given.jobs)
    write(given.out or RESULTS / f"balance{'-constants' * given.constants}.csv", rows)


if __name__ == "__main__":
    main()
