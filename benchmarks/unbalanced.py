"""Streams in which one class is common, or most of the listed classes never occur: all methods against zero-shot.

    python benchmarks/unbalanced.py FILE …         writes benchmarks/results/unbalanced.csv

Every method that features alone suffice for, at its defaults, as `pta eval` runs it. Each of SEEDS draws other classes
and another order; a row holds means over them: accuracy, its mean over the classes that occur and that of the worst
class in percent, and the gain over zero-shot in points.

* 2, 5 and 20 look-alike classes, 400 samples: in equal numbers, one class with 95 %, and bursts. A file with samples of
  fewer classes is left out.
* All classes: only 10 % or 30 % of them occur (at most 600 samples), and frequencies by a power law (at most 2,000).

Finished runs are kept in --results with the version of the method's code. So a second call resumes, and calls with
other files or methods can share the folder. A method that is refused for lack of memory is left out, and so is `dota`
with more than MANY classes: with 1,000 it takes minutes per stream.
"""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from result_file import RESULTS, Row, write

from pta import create_adapter, list_adapters
from pta.data.features import FeatureFile, load_features
from pta.errors import PtaError
from pta.measure.cached_evaluation import evaluate_once
from pta.measure.provenance import hardware
from pta.measure.result_store import ResultStore
from pta.measure.stream import Stream
from pta.methods import needs_model, needs_of_samples

SEEDS = (1, 2, 3, 4, 5)
FEW = (2, 5, 20)
MANY, SLOW = 500, ("dota",)

OF_FEW = {
    "equal": Stream("zipf", exponent=0.0, length=400),
    "rare 95 %": Stream("rare", share=0.95, length=400),
    "bursts": Stream("bursts", length=400),
}
OF_ALL = {
    "absent 10 %": Stream("absent", share=0.1, length=600),
    "absent 30 %": Stream("absent", share=0.3, length=600),
    "zipf": Stream("zipf", exponent=1.0, length=2000),
}


class Job(NamedTuple):
    """What makes one row."""

    path: Path
    title: str
    stream: Stream
    method: str
    seeds: tuple[int, ...]
    results: Path


@cache
def opened(path: Path) -> FeatureFile:
    """A feature file, which a process reads once."""
    return load_features(path)


def streams_of(data: FeatureFile) -> Iterator[tuple[str, Stream]]:
    """The streams of a file by title; no longer than the file where all classes are listed."""
    for count in FEW:
        if count <= len(np.unique(data.labels)):
            for title, stream in OF_FEW.items():
                yield title, replace(stream, classes_drawn=count)
    for title, stream in OF_ALL.items():
        yield title, replace(stream, length=min(stream.length or 0, len(data.samples)))


def methods_of(data: FeatureFile, stream: Stream) -> Iterator[str]:
    """The methods that features alone suffice for, and that have enough memory for the classes."""
    part = stream.part(data, SEEDS[0])
    for method in list_adapters():
        is_slow = method in SLOW and part.classifier.classes > MANY
        if is_slow or needs_model(method, {}) or not needs_of_samples(method, {}) <= {"features"}:
            continue
        try:
            create_adapter(method, part.classifier, source=stream.samples_seen(part, SEEDS[0], stream.usual_batch))
        except PtaError as error:
            print(f"{data.name}: without {method}: {error}", file=sys.stderr)
            continue
        yield method


def row_of(job: Job) -> Row:
    """Means over the seeds."""
    data, store = opened(job.path), ResultStore(job.results)
    records = list(evaluate_once(store, data, job.method, {}, job.seeds, stream=job.stream))
    gains = [record["accuracy"] - record["zero_shot_accuracy"] for record in records]
    return {
        "file": data.name,
        "stream": job.title,
        "classes": job.stream.classes_drawn or "all",
        "method": job.method,
        "seeds": len(records),
        "accuracy": round(fmean(record["accuracy"] for record in records), 2),
        "mean_per_class": round(fmean(record["mean_per_class"] for record in records), 2),
        "worst_class": round(fmean(record["worst_class"]["accuracy"] for record in records), 2),
        "over_zero_shot": round(fmean(gains), 2),
        "hardware": hardware(),
    }


def measured(jobs: list[Job], processes: int) -> Iterator[Row]:
    """The row of each job, in their order; what is done is told on stderr."""
    begun = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(processes, torch.set_num_threads, (1,)) as pool:
        for done, row in enumerate(pool.imap(row_of, jobs), 1):
            spent = time.monotonic() - begun
            print(f"{done} of {len(jobs)} rows, {spent:.0f} s", file=sys.stderr, flush=True)
            yield row


def options(description: str | None, out: str) -> argparse.ArgumentParser:
    """The options of a benchmark of methods on feature files."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--jobs", type=int, default=2, help="processes, each with one thread")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="only the first so many")
    parser.add_argument("--method", action="append", help="only this one; may be repeated")
    parser.add_argument("--out", type=Path, default=RESULTS / out)
    return parser


def main() -> None:
    """Measure every file and write the table."""
    parser = options(__doc__, "unbalanced.csv")
    parser.add_argument("--results", type=Path, default=Path("pta-results"), help="folder of finished runs")
    given = parser.parse_args()
    jobs = [
        Job(path, title, stream, method, SEEDS[: given.seeds], given.results)
        for path in given.files
        for title, stream in streams_of(opened(path))
        for method in methods_of(opened(path), stream)
        if given.method is None or method in given.method
    ]
    write(given.out, measured(jobs, given.jobs))


if __name__ == "__main__":
    main()
