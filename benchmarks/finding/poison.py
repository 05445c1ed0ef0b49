"""What confident mistakes at the beginning of a stream do, and for how long."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from result_file import Row

from finding.table import feature_files, percent
from pta import Adapter, create_adapter
from pta.data.features import FeatureFile
from pta.data.orders import iid, poisoned
from pta.measure.stream_run import run_stream

SEEDS, PREFIXES = (1, 2, 3), (0, 1, 5, 10, None)
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "pta": ("pta", {}),
    "tda": ("tda", {}),
    "wpta": ("wpta", {}),
    "wpta, depth 2": ("wpta", {"depth": 2}),
}


def measure(folder: Path) -> Iterator[Row]:
    """Each prefix and method; the samples right after the prefix are compared with themselves in the plain order."""
    for data in feature_files(folder):
        labels, probabilities = np.asarray(data.labels), data.zero_shot_logits.softmax(dim=1).numpy()
        mistakes = int(((probabilities.max(axis=1) > 0.8) & (probabilities.argmax(axis=1) != labels)).sum())
        zero_shot = data.zero_shot_predictions == labels
        for method, (name, parameters) in METHODS.items():
            new = partial(create_adapter, name, data.classifier, **parameters)
            plain = [_right(data, new(), iid(len(labels), seed)) for seed in SEEDS]
            for prefix in PREFIXES:
                length = mistakes if prefix is None else min(prefix, mistakes)
                orders = [poisoned(iid(len(labels), seed), labels, probabilities, prefix=prefix) for seed in SEEDS]
                found = [_right(data, new(), order) for order in orders]
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


def _right(data: FeatureFile, adapter: Adapter, order: np.ndarray) -> np.ndarray:
    """Whether each sample, by its number, was answered right in this order."""
    run = run_stream(adapter, data.samples, data.labels, order)
    right = np.empty(len(order), dtype=bool)
    right[run.order] = run.correct
    return right
