"""What confident mistakes at the beginning of a stream do, and for how long."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from result_file import Row

from finding.table import feature_files, percent, runs
from pta.measure.stream import Stream
from pta.measure.stream_run import StreamRun

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
        for title, method in METHODS.items():
            plain = [_right(run) for run in runs(data, *method, SEEDS)]
            for prefix in PREFIXES:
                length = mistakes if prefix is None else min(prefix, mistakes)
                poisoned = runs(data, *method, SEEDS, Stream("poisoned", prefix=prefix))
                found = [_right(run) for run in poisoned]
                row: Row = {
                    "dataset": data.name,
                    "method": title,
                    "prefix": "all" if prefix is None else prefix,
                    "confident_mistakes": mistakes,
                    "accuracy": percent(found),
                }
                for after in (100, 200):
                    rows = [run.order[length : length + after] for run in poisoned]
                    row[f"next_{after}"] = percent([own[some] for own, some in zip(found, rows, strict=True)])
                    row[f"same_in_plain_order_{after}"] = percent(
                        [p[some] for p, some in zip(plain, rows, strict=True)]
                    )
                    row[f"same_zero_shot_{after}"] = percent([zero_shot[some] for some in rows])
                yield row


def _right(run: StreamRun) -> np.ndarray:
    """Whether each sample, by its number, was answered right."""
    right = np.empty(len(run.order), dtype=bool)
    right[run.order] = run.correct
    return right
