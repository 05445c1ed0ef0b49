"""What the order-aware prior and the matched calibration do to accuracy and calibration error, stream by stream.

    python benchmarks/prior.py FILE …        writes benchmarks/results/prior.csv

CLIP, TDA, PTA and WPTA without the balance gate, with and without the prior, each with both calibrations, on the
orders of SEEDS; on files of more than LARGE samples on the first alone. A row holds means over seeds. Beside the
streams of the paper's non-i.i.d. table there are those on which the prior is known to be weak:
* round robin: one sample of every class in turn, where each class is followed by the one whose text is nearest,
* after sorted: half of the samples class by class, then the others shuffled, of which the first 500 are counted,
* halves: the samples of one half of the classes, shuffled, then those of the other half,
* small: 330 shuffled samples.
"""

import argparse
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from result_file import RESULTS, Row, write

from pta import create_adapter
from pta.data.features import FeatureFile, load_features
from pta.data.orders import Order, dirichlet, iid, separate
from pta.measure import leaderboard
from pta.measure.metrics import accuracy, calibration_error
from pta.measure.provenance import hardware

SEEDS = (1, 2)
LARGE = 5000
BATCH = 256
METHODS = ("clip", "tda", "pta", "wpta")
COUNTED_AFTER, SMALL = 500, 330


def labels_of(data: FeatureFile) -> Order:
    """The true classes; every file has them."""
    assert data.labels is not None
    return np.asarray(data.labels)


def round_robin(data: FeatureFile, seed: int) -> Order:
    """One sample of each class in turn, classes in a chain of nearest texts."""
    labels = labels_of(data)
    near = (data.classifier.anchors @ data.classifier.anchors.T).numpy().copy()
    chain = [0]
    while len(chain) < len(near):
        near[:, chain[-1]] = -np.inf
        chain.append(int(near[chain[-1]].argmax()))
    shuffled = iid(len(labels), seed)
    turn = np.empty(len(labels), np.int64)  # how many of its class come before a sample
    for row in range(len(near)):
        own = shuffled[labels[shuffled] == row]
        turn[own] = np.arange(len(own))
    place = np.empty(len(near), np.int64)
    place[chain] = np.arange(len(near))
    return np.lexsort((place[labels], turn))


def after_sorted(data: FeatureFile, seed: int) -> Order:
    """Half of the samples class by class, then the others shuffled."""
    labels, shuffled = labels_of(data), iid(len(data.samples), seed)
    first, rest = np.array_split(shuffled, 2)
    return np.concatenate([first[separate(labels[first], seed)], rest])


def halves(data: FeatureFile, seed: int) -> Order:
    """All samples of one half of the classes, shuffled, then those of the other half."""
    return leaderboard.halves(labels_of(data), data.classifier.classes, seed)


STREAMS: dict[str, Callable[[FeatureFile, int], Order]] = {
    "shuffled": lambda data, seed: iid(len(data.samples), seed),
    "dirichlet 0.1": lambda data, seed: dirichlet(labels_of(data), 0.1, seed),
    "dirichlet 0.01": lambda data, seed: dirichlet(labels_of(data), 0.01, seed),
    "separate": lambda data, seed: separate(labels_of(data), seed),
    "round robin": round_robin,
    "after sorted": after_sorted,
    "halves": halves,
    "small": lambda data, seed: iid(len(data.samples), seed)[:SMALL],
}


def measured(data: FeatureFile, stream: str, seed: int, method: str, prior: str) -> list[float]:
    """Accuracy, and the calibration error with the fixed factor and with matched temperatures."""
    order = STREAMS[stream](data, seed)
    start = len(order) // 2 if stream == "after sorted" else 0
    counted = slice(start, start + COUNTED_AFTER) if start else slice(None)
    samples, labels, found = data.samples.features[order], labels_of(data)[order][counted], []
    for calibration in ("fixed", "matched"):
        adapter = create_adapter(method, data.classifier, prior=prior, gate="none", calibration=calibration)
        logits = torch.cat([adapter.step(part) for part in torch.split(samples, BATCH)])[counted]
        confidences, answers = adapter.probabilities(logits).max(dim=1)
        right = (answers.numpy() == labels).astype(bool)
        found += [] if found else [accuracy(right)]
        found.append(calibration_error(confidences.numpy(), right))
    return found


def rows_of(data: FeatureFile) -> Iterator[Row]:
    """One row for each stream, method and prior."""
    seeds = SEEDS[:1] if len(data.samples) > LARGE else SEEDS
    for stream, method, prior in product(STREAMS, METHODS, ("none", "local")):
        runs = [measured(data, stream, seed, method, prior) for seed in seeds]
        means = [round(fmean(values), 2) for values in zip(*runs, strict=True)]
        numbers = dict(zip(("accuracy", "fixed_error", "matched_error"), means, strict=True))
        named = {"dataset": data.name, "stream": stream, "method": method, "prior": prior}
        yield {**named, "seeds": " ".join(map(str, seeds)), **numbers, "hardware": hardware()}


def main() -> None:
    """Measure every file and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=RESULTS / "prior.csv")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    write(arguments.out, (row for path in arguments.files for row in rows_of(load_features(path))))


if __name__ == "__main__":
    main()
