"""Simulated audits: how many verdicts are wrong, whether intervals hold, and how many labels a verdict takes.

    python benchmarks/audit.py FILE …         writes benchmarks/results/audit.csv

A cell is a file, a stream and a method at its defaults. Streams: `clean` (shuffled), `sorted` by class, and with at
most as many samples of the next file as there are own, `junk mixed in` (shuffled together) and `junk first`. Junk
counts as of no class: both answers to it are wrong. The method runs once over the stream, in the order of seed 1. The
answers that it changed are the population of `--audits` audits with the true labels, which differ in their seeds; each
ends with the verdict or after MOST labels.

`gain` is the true one, over all samples, in points. `wrong` counts verdicts that contradict it; where it is 0, every
verdict does. `covered` is the share of audits whose interval held the truth after each of MOST labels, whether or not
there was a verdict before. `median_labels` and `p90_labels` are over all audits, and empty where so many of them were
undecided. `p_value` is the chance of at least as many wrong verdicts if each is wrong with a chance of 5 % (binomial),
`p_value_holm` the same corrected for the number of cells by Holm's method.
"""

import argparse
import math
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from balance import measured
from result_file import RESULTS, Row, write
from unbalanced import opened

from pta import Samples, create_adapter
from pta.data.orders import iid, separate
from pta.measure.audit.gain_sequence import LARGEST, LEVEL, log_capital
from pta.measure.audit.population import draw_order
from pta.measure.provenance import hardware
from pta.measure.stream_run import run_stream

METHODS = ("pta", "wpta")
STREAMS = ("clean", "sorted", "junk mixed in", "junk first")
MOST = 400
SEED = 1
NO_CLASS = -1


class Job(NamedTuple):
    """What makes one row."""

    path: Path
    junk: Path
    stream: str
    method: str


def changed_values(job: Job) -> tuple[np.ndarray, int]:
    """What each changed answer of a stream counts, and how many answers there are."""
    data = opened(job.path)
    features, labels = data.samples.features, np.asarray(data.labels)
    if job.stream.startswith("junk"):
        junk = opened(job.junk).samples.features
        junk = junk[torch.from_numpy(iid(len(junk), SEED)[: len(labels)])]
        features = torch.cat([features, junk])
        labels = np.concatenate([labels, np.full(len(junk), NO_CLASS)])
    order = separate(labels, SEED) if job.stream == "sorted" else iid(len(labels), SEED)
    if job.stream == "junk first":
        order = order[np.argsort(labels[order] != NO_CLASS, kind="stable")]
    adapter = create_adapter(job.method, data.classifier, source=len(order))
    run = run_stream(adapter, Samples.of(features), labels, order)
    zero_shot = data.classifier.logits(features).argmax(dim=1).numpy()[order]
    values = run.right.astype(int) - (zero_shot == labels[order])
    return values[run.predictions != zero_shot], len(order)


def first_true(rows: np.ndarray) -> np.ndarray:
    """The number of the first column that is true, from 1; infinite where none is."""
    return np.where(rows.any(axis=1), rows.argmax(axis=1) + 1.0, np.inf)


def rows_of(audits: int, job: Job) -> list[Row]:
    """The row of a cell, without the correction for the number of cells."""
    values, answered = changed_values(job)
    changed, total = len(values), int(values.sum())
    name = f"{opened(job.path).name} {job.stream} {job.method}"
    orders = np.array([draw_order(changed, seed, name)[:MOST] for seed in range(1, audits + 1)])
    draws = values[orders].astype(float)
    sums, left = np.cumsum(draws, axis=1), changed - 1 - np.arange(draws.shape[1])
    helps, hurts = (
        first_true((log_capital(draws, 0, changed, sign) >= LARGEST) | (sign * sums > left)) for sign in (1, -1)
    )
    labels, is_decided = np.minimum(helps, hurts), np.isfinite(np.minimum(helps, hurts))
    says_helps, says_hurts = is_decided & (helps < hurts), is_decided & (hurts < helps)
    wrong = int(says_helps.sum() * (total <= 0) + says_hurts.sum() * (total >= 0))
    before_all = draws[:, : changed - 1]  # the last one makes the total known
    out = np.maximum(*(log_capital(before_all, total, changed, sign) for sign in (1, -1))) >= LARGEST
    covered = ~out.any(axis=1)
    median, p90 = np.quantile(labels, [0.5, 0.9], method="inverted_cdf")
    row = {
        "file": opened(job.path).name,
        "stream": job.stream,
        "method": job.method,
        "answered": answered,
        "changed": changed,
        "gain": round(100 * total / answered, 2),
        "audits": audits,
        "helps": int(says_helps.sum()),
        "hurts": int(says_hurts.sum()),
        "undecided": int((~is_decided).sum()),
        "wrong": wrong,
        "covered": round(float(covered.mean()), 4),
        "median_labels": int(median) if math.isfinite(median) else "",
        "p90_labels": int(p90) if math.isfinite(p90) else "",
        "hardware": hardware(),
    }
    return [row]


def at_least(count: int, trials: int, chance: float) -> float:
    """The chance of at least so many successes.

    >>> round(at_least(2, 3, 0.5), 6)
    0.5
    """
    logs = (
        math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
        + k * math.log(chance) + (trials - k) * math.log1p(-chance)
        for k in range(count, trials + 1)
    )  # fmt: skip
    return min(1.0, math.fsum(map(math.exp, logs)))


def holm(p_values: list[float]) -> list[float]:
    """The p-values corrected for their number.

    >>> holm([0.01, 0.5, 0.02])
    [0.03, 0.5, 0.04]
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[at]))
        corrected[at] = largest
    return corrected


def main() -> None:
    """Audit every cell and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="two or more, of one model")
    parser.add_argument("--audits", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2, help="processes, each with one thread")
    parser.add_argument("--out", type=Path, default=RESULTS / "audit.csv")
    given = parser.parse_args()
    pairs = zip(given.files, [*given.files[1:], given.files[0]], strict=True)
    jobs = [Job(*pair, stream, method) for pair, stream, method in product(pairs, STREAMS, METHODS)]
    rows = list(measured(partial(rows_of, given.audits), jobs, given.jobs))
    chances = [at_least(int(str(row["wrong"])), given.audits, 1 - LEVEL) for row in rows]
    columns = zip(rows, chances, holm(chances), strict=True)
    write(given.out, (row | {"p_value": f"{p:.3g}", "p_value_holm": f"{q:.3g}"} for row, p, q in columns))


if __name__ == "__main__":
    main()
