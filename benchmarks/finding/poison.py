"""What confident mistakes at the beginning of a stream do, and for how long."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from result_file import Row

from finding.table import feature_files, percent
from pta import create_adapter
from pta.datasets.features import FeatureFile
from pta.evaluation.stream_run import run_stream
from pta.streams import iid, poisoned

SEEDS, PREFIXES, METHODS = (1, 2, 3), (0, 1, 5, 10, None), ("pta", "tda")


def measure(folder: Path) -> Iterator[Row]:
    """Each prefix and method; the samples right after the prefix are compared with themselves in the plain order."""
    for data in feature_files(folder):
        labels, probabilities = np.asarray(data.labels), data.zero_shot_logits.softmax(dim=1).numpy()
        mistakes = int(((probabilities.max(axis=1) > 0.8) & (probabilities.argmax(axis=1) != labels)).sum())
        zero_shot = data.zero_shot_predictions == labels
        for method in METHODS:
            plain = [_right(data, method, iid(len(labels), seed)) for seed in SEEDS]
            for prefix in PREFIXES:
                length = mistakes if prefix is None else min(prefix, mistakes)
                orders = [poisoned(iid(len(labels), seed), labels, probabilities, prefix=prefix) for seed in SEEDS]
                found = [_right(data, method, order) for order in orders]
                row: Row = {
                    "dataset": data.name,
                    "method": method,
                    "prefix": "all" if prefix is None else prefix,
                    "confident_mistakes": mistakes,
                    "accuracy": percent(found),
                }
                for after in (100, 200):
                    rows = [order[length : length + after] for order in orders]
                    row[f"next_{after}"] = percent([own[some] for own, some in zip(found, rows, strict=True)])
                    row[f"same_in_plain_order_{after}"] = percent(
                        [p[some] for p, some in zip(plain, rows, strict=True)]
                    )
                    row[f"same_zero_shot_{after}"] = percent([zero_shot[some] for some in rows])
                yield row


def _right(data: FeatureFile, method: str, order: np.ndarray) -> np.ndarray:
    """Whether each sample, by its number, was answered right in this order."""
    run = run_stream(create_adapter(method, data.classifier), data.samples, data.labels, order)
    right = np.empty(len(order), dtype=bool)
    right[run.order] = run.correct
    return right
