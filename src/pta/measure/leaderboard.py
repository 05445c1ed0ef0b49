"""Leaderboard: methods on streams of feature files, a row for each in a CSV file in which finished rows stay.

A seed draws at most `most` samples of a file and makes each stream of them. The first half of a stream also makes the
frozen answers: to the second half, without learning it. Time is that of the processor in batches of BATCH, relative to
the product of the same features with the anchors. Only features are given to the methods.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from pta.core.labels import UNKNOWN, Labels
from pta.core.samples import Samples
from pta.data.features import FeatureFile
from pta.data.orders import iid
from pta.door.csv_rows import read_csv
from pta.door.files import write_atomically
from pta.errors import InvalidSamples
from pta.measure import metrics
from pta.measure.contenders import as_given
from pta.measure.provenance import method_version
from pta.measure.stream import Stream
from pta.measure.stream_run import on_one_thread
from pta.measure.texts import csv_text, number
from pta.methods import create_adapter

STREAMS: Mapping[str, Stream] = {
    "shuffled": Stream(),
    "Dirichlet 0.1": Stream("dirichlet", gamma=0.1),
    "Dirichlet 0.01": Stream("dirichlet", gamma=0.01),
    "sorted": Stream("separate"),
    "half then half": Stream(),
    "drift": Stream(),
    "junk first": Stream(),
}
MEASURED = ("accuracy", "zero_shot", "worst_class", "calibration_error", "frozen", "of_product", "state_bytes")
"""Percent and points; how many products a sample takes; bytes."""

BATCH = 256
_KEY = ("file", "features", "stream", "method", "settings", "seed", "samples")
_DRIFT = 0.5  # length of what is added to the last sample, whose features are unit vectors
_PRODUCTS = 8  # timed together, as one is short

Row = dict[str, str]


def played(data: FeatureFile, title: str, seed: int, most: int, junk: FeatureFile) -> FeatureFile:
    """The samples of a stream in their order. Half as many of `junk`, which are of no class, may come first."""
    if data.labels is None:
        raise InvalidSamples(f"{data.name} has no labels; a leaderboard needs feature files with labels")
    drawn = np.sort(iid(len(data.samples), seed)[:most])
    features, labels = data.samples.features[torch.from_numpy(drawn)], data.labels[drawn]
    part = replace(data, samples=Samples.of(features), labels=labels, paths=None)
    order = STREAMS[title].order(part, seed, BATCH)
    if title == "half then half":
        order = halves(labels, data.classifier.classes, seed)
    features, labels = features[torch.from_numpy(order)], labels[order]
    if title == "drift":
        features = drifted(features, seed)
    elif title == "junk first":
        if junk is data or junk.samples.dim != data.samples.dim:
            raise InvalidSamples(
                f"a leaderboard needs two feature files of {data.samples.dim} dimensions, "
                "because the junk of a file comes from the next one; add --features FILE"
            )
        strange = junk.samples.features[torch.from_numpy(iid(len(junk.samples), seed)[: len(labels) // 2])]
        features = torch.cat([strange.to(features), features])
        labels = np.concatenate([np.full(len(strange), UNKNOWN), labels])
    return replace(part, samples=Samples.of(features), labels=labels)


def halves(labels: Labels, classes: int, seed: int) -> NDArray[np.int64]:
    """All samples of a random half of the classes, shuffled, then those of the others."""
    shuffled = iid(len(labels), seed)
    in_first = iid(classes, seed)[labels[shuffled]] < classes / 2
    return np.concatenate([shuffled[in_first], shuffled[~in_first]])


def drifted(features: Tensor, seed: int) -> Tensor:
    """Features to which a random direction is added more and more."""
    direction = normalize(torch.from_numpy(np.random.default_rng(seed).standard_normal(features.shape[1])), dim=0)
    return normalize(features + torch.linspace(0, _DRIFT, len(features))[:, None] * direction.float(), dim=1)


@on_one_thread()
def measured(stream: FeatureFile, method: str, parameters: Mapping[str, Any]) -> Row:
    """What MEASURED names; labels are used only to count."""
    samples, labels, classifier = stream.samples, np.asarray(stream.labels), stream.classifier
    create_adapter(method, classifier, source=len(samples), **parameters).step(samples[:16])  # compiles
    adapter = create_adapter(method, classifier, source=len(samples), **parameters)
    half = len(samples) // 2 if adapter.scope == "sample" else len(samples)  # others answer whole batches
    found, own, products, frozen = list[Tensor](), list[float](), list[float](), ""
    for part in (samples[:half], samples[half:]):
        if found and len(part):
            frozen = number(metrics.accuracy(_right(adapter.predict(part), labels[half:])), 2)
        for batch in part.batches(len(samples) if adapter.scope == "stream" else BATCH):
            begun = time.thread_time()
            found.append(adapter.step(batch))
            done = time.thread_time()
            for _ in range(_PRODUCTS):
                batch.features @ classifier.anchors.T
            own.append((done - begun) / len(batch))
            products.append((time.thread_time() - done) / len(batch) / _PRODUCTS)
    logits, known = torch.cat(found), labels != UNKNOWN
    right, confidences = _right(logits, labels), adapter.probabilities(logits).amax(dim=1).numpy()
    by_class = metrics.class_accuracies(right, labels[known], classifier.classes)
    return {
        "accuracy": number(metrics.accuracy(right), 2),
        "zero_shot": number(metrics.accuracy(_right(stream.zero_shot_logits, labels)), 2),
        "worst_class": number(min(one for one in by_class if one is not None), 2),
        "calibration_error": number(metrics.calibration_error(confidences[known], right), 2),
        "frozen": frozen,
        "of_product": number(median(own) / median(products), 1),
        "state_bytes": str(adapter.state_bytes),
    }


def _right(logits: Tensor, labels: Labels) -> metrics.Right:
    """Which of the answers to samples with a known label are right."""
    known = labels != UNKNOWN
    return np.asarray(logits.argmax(dim=1).numpy()[known] == labels[known])


def fill(
    board: Path,
    work: Sequence[tuple[FeatureFile, Mapping[str, Mapping[str, Any]]]],
    seeds: Sequence[int],
    most: int,
    *,
    keep_old: bool = False,
    on_row: Callable[[str], None] = lambda what: None,
) -> list[Row]:
    """Add the rows of some files, each with its methods, to a board; the next file is the junk of one.

    Rows that other code has made are made anew, unless `keep_old`. The board is saved after each row.
    """
    rows = {tuple(row[name] for name in _KEY): row for row in read_board(board)} if board.exists() else {}
    header, asked = (*_KEY, *MEASURED, "version"), []
    for at, (data, methods) in enumerate(work):
        junk, samples = work[(at + 1) % len(work)][0], min(most, len(data.samples))
        for seed, title, (method, parameters) in product(seeds, STREAMS, methods.items()):
            on_row(f"{data.name}, {title}: {method}")
            settings = ",".join(f"{name}={as_given(value)}" for name, value in parameters.items())
            key = (data.name, data.fingerprint[:12], title, method, settings, str(seed), str(samples))
            version = method_version(method)
            if key not in rows or not (keep_old or rows[key]["version"] == version):
                found = measured(played(data, title, seed, most, junk), method, parameters)
                rows[key] = {**dict(zip(_KEY, key, strict=True)), **found, "version": version}
                table = csv_text(header, *([row[name] for name in header] for row in rows.values()))
                write_atomically(board, table.encode())
            asked.append(rows[key])
    return asked


def read_board(board: Path) -> list[Row]:
    """The rows of a board."""
    return [row for _, row in read_csv(board, "leaderboard", *_KEY, *MEASURED, "version")]
