"""Samples with a low zero-shot probability are answered and not learned: what that gives pta and wpta.

    python benchmarks/reject.py FILE …         writes benchmarks/results/reject.csv

Shuffled streams of a file, as they are (`junk` 0) and with so many percent of samples from the next file, which belong
to none of the classes. Those with a zero-shot probability below `hold` are held, as `pta predict --reject-holds` does;
0 holds none. A row holds means over SEEDS: accuracy in percent on the samples of the file, `gain` over the same stream
with `hold` 0 in points, with the smallest and the largest, and the shares of own samples and of junk that are held, in
percent. Thresholds are compared on the files whose names begin with one of DEVELOPMENT, and shown on the others.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from balance import BATCH, measured
from labels import DEVELOPMENT
from numpy.typing import NDArray
from result_file import Row, write
from unbalanced import opened, options

from pta import Samples, create_adapter
from pta.core.labels import NONE, UNKNOWN
from pta.measure.metrics import accuracy
from pta.measure.provenance import hardware

SEEDS = (1, 2, 3)
METHODS = ("pta", "wpta")
JUNK = (0, 20)
HOLDS = (0.0, 0.1, 0.2, 0.3, 0.5)
_FOREIGN = -1  # the label of junk


class Job(NamedTuple):
    """What is run at once."""

    path: Path
    other: Path  # the file that junk comes from
    method: str
    junk: int  # percent of the stream
    seed: int


def mixed(job: Job) -> tuple[torch.Tensor, NDArray[np.int64]]:
    """Features and labels of a stream in the order of a seed."""
    own, other = opened(job.path), opened(job.other)
    random = np.random.default_rng(job.seed)
    most = round(len(own.samples) * job.junk / (100 - job.junk))
    drawn = random.permutation(len(other.samples))[:most]
    features = torch.cat([own.samples.features, other.samples.features[torch.from_numpy(drawn)]])
    labels = np.concatenate([np.asarray(own.labels), np.full(len(drawn), _FOREIGN)])
    order = random.permutation(len(labels))
    return features[torch.from_numpy(order)], labels[order]


def compared(job: Job) -> list[Row]:
    """The numbers of one order, with every threshold."""
    features, labels = mixed(job)
    classifier = opened(job.path).classifier
    confidences = classifier.logits(features).double().softmax(dim=1).amax(dim=1).numpy()
    is_own = labels != _FOREIGN
    found = []
    for hold in HOLDS:
        adapter = create_adapter(job.method, classifier)
        held = confidences < hold
        told = np.where(held, NONE, UNKNOWN)
        batches = (slice(start, start + BATCH) for start in range(0, len(labels), BATCH))
        logits = [adapter.step_or_answer(Samples(features[rows]), told[rows]) for rows in batches]
        right = torch.cat(logits).argmax(dim=1).numpy() == labels
        own_held, junk_held = (100 * held[some].mean() if some.any() else 0.0 for some in (is_own, ~is_own))
        found.append({"accuracy": accuracy(right[is_own]), "held": own_held, "junk_held": junk_held})
    return [{"found": found}]


def rows_of(job: Job, found: Sequence[Any]) -> Iterator[Row]:
    """Means over the seeds, one row per threshold."""
    name = opened(job.path).name
    for number, hold in enumerate(HOLDS):
        values = [one[number] for one in found]
        gains = [one[number]["accuracy"] - one[0]["accuracy"] for one in found]
        yield {
            "file": name,
            "role": "development" if name.startswith(DEVELOPMENT) else "shown",
            **{"method": job.method, "junk": job.junk, "hold": hold, "seeds": len(found)},
            "samples": len(opened(job.path).samples),
            "accuracy": round(fmean(one["accuracy"] for one in values), 2),
            **{"gain": round(fmean(gains), 2), "low": round(min(gains), 2), "high": round(max(gains), 2)},
            **{column: round(fmean(one[column] for one in values), 1) for column in ("held", "junk_held")},
            "hardware": hardware(),
        }


def main() -> None:
    """Measure every file, and write the table."""
    parser = options(__doc__, "reject.csv")
    parser.set_defaults(seeds=len(SEEDS))
    given = parser.parse_args()
    seeds = SEEDS[: given.seeds]
    pairs = zip(given.files, [*given.files[1:], *given.files[:1]], strict=True)
    methods = [method for method in METHODS if method in (given.method or METHODS)]
    settings = list(product(pairs, methods, JUNK))
    jobs = [Job(*pair, method, junk, seed) for pair, method, junk in settings for seed in seeds]
    found = (row["found"] for row in measured(compared, jobs, given.jobs))
    by_setting = zip(jobs[:: len(seeds)], zip(*[found] * len(seeds), strict=True), strict=True)
    write(given.out, (row for job, several in by_setting for row in rows_of(job, several)))


if __name__ == "__main__":
    main()
