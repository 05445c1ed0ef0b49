"""Evaluation: one method's run over one order of a dataset, and its record."""

import base64
import binascii
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pta.data.features import FeatureFile
from pta.data.orders import require_order
from pta.door.files import write_atomically
from pta.errors import UnreadableFile
from pta.measure import metrics
from pta.measure.stream_run import StreamRun
from pta.measure.texts import csv_text

Record = dict[str, Any]
"""What is written to JSON and kept in stores; accuracies are in percent."""

Counts = NDArray[np.int64]  # a number per sample

_POINTS = 200  # of a curve along the stream: more than a screen resolves


@dataclass(frozen=True)
class Evaluation:
    """One method's run over one seed's order of a dataset."""

    data: FeatureFile  # all of its samples, or the part that was drawn; a stream may leave some out
    seed: int
    stream: dict[str, Any]  # what kind of order, and how batches were used
    run: StreamRun

    @property
    def zero_shot_right(self) -> NDArray[np.bool_] | None:
        """Whether zero-shot is right at each position of the stream, if that is known."""
        return None if self.run.labels is None else self.data.zero_shot_predictions[self.run.order] == self.run.labels

    @property
    def zero_shot_accuracy(self) -> float | None:
        """Percentage of the same samples that zero-shot gets right, if that is known."""
        return None if self.zero_shot_right is None else metrics.accuracy(self.zero_shot_right)

    def record(self) -> Record:
        """All that is kept of it."""
        return {
            "dataset": self.data.name,
            "method": self.run.method,
            "params": self.run.parameters,
            "seed": self.seed,
            "stream": self.stream,
            "n": len(self.run.order),
            "accuracy": self.run.accuracy,
            "zero_shot_accuracy": self.zero_shot_accuracy,
            "seconds": self.run.seconds,
            "state_bytes": self.run.state_bytes,
            "remarks": self.run.remarks,
            **self._counted(),
        }

    def _counted(self) -> Record:
        right, before, labels = self.run.correct, self.zero_shot_right, self.run.labels
        if right is None or before is None or labels is None:
            return {}
        names = self.data.classifier.class_names
        by_class = metrics.class_accuracies(right, labels, len(names))
        occurring = [(value, name) for name, value in zip(names, by_class, strict=True) if value is not None]
        worst, name = min(occurring)
        fixed, broken = metrics.changes(right, before)
        whole = self.data.part.whole if self.data.part else self.data
        at = np.unique(np.linspace(min(metrics.COLD_START, len(right)), len(right), _POINTS).round().astype(int)) - 1
        return {
            "calibration_error": metrics.calibration_error(self.run.confidences, right),
            "raw_calibration_error": metrics.calibration_error(self.run.raw_confidences, right),
            "class_accuracies": by_class,
            "mean_per_class": fmean(value for value, _ in occurring),
            "worst_class": {"name": name, "accuracy": worst},
            "fixed": int(fixed[-1]),
            "broken": int(broken[-1]),
            "online": {
                "samples": (at + 1).tolist(),
                "accuracy": metrics.online_accuracy(right)[at].round(3).tolist(),
                "zero_shot": metrics.online_accuracy(before)[at].round(3).tolist(),
                "fixed": fixed[at].tolist(),
                "broken": broken[at].tolist(),
            },
            **({"drawn_classes": list(names)} if self.data.part else {}),
            "samples": len(whole.samples),
            "labels": whole.labels_digest,
            **write_right(right, self._numbers, len(whole.samples)),
        }

    @property
    def _numbers(self) -> NDArray[np.int64]:
        """The sample number at each position of the stream, in the whole file."""
        return self.data.part.samples[self.run.order] if self.data.part else self.run.order

    def write_predictions(self, folder: Path) -> None:
        """Write METHOD-SEED.csv: what a sample is and what the method says at each position; empty where unknown."""
        run, nothing = self.run, [""] * len(self.run.order)
        names, paths, labels = self.data.classifier.class_names, self.data.paths, run.labels
        numbers = self.data.part.classes if self.data.part else np.arange(len(names))  # of classes in the whole file
        columns = {
            "index": self._numbers.tolist(),
            "path": [paths[at] for at in run.order] if paths else nothing,
            "label": nothing if labels is None else numbers[labels].tolist(),
            "prediction": numbers[run.predictions].tolist(),
            "true_class": nothing if labels is None else [names[at] for at in labels],
            "predicted_class": [names[at] for at in run.predictions],
            "probability": [f"{value:.6f}" for value in run.confidences],
        }
        text = csv_text(columns, *zip(*columns.values(), strict=True))
        write_atomically(folder / predictions_file(run.method, self.seed), text.encode())


def predictions_file(method: str, seed: int) -> str:
    """What the file of a method's predictions is called."""
    return f"{method}-{seed}.csv"


def write_right(right: NDArray[np.bool_], order: NDArray[np.int64], samples: int) -> Record:
    """Whether each sample came, and was answered correctly; if one came again, the order and which answers are right.

    >>> write_right(np.array([True, False]), np.array([3, 0]), 4)
    {'seen': 'kA==', 'right': 'EA=='}
    >>> write_right(np.array([True, False]), np.array([3, 3]), 4)
    {'seen': 'EA==', 'order': [3, 3], 'right': 'gA=='}
    """
    seen, by_sample = np.zeros((2, samples), np.bool_)
    seen[order], by_sample[order] = True, right
    if len(np.unique(order)) < len(order):
        return {"seen": write_bits(seen), "order": order.tolist(), "right": write_bits(right)}
    return {"seen": write_bits(seen), "right": write_bits(by_sample)}


def read_right(record: Record) -> tuple[Counts, Counts]:
    """How often each sample came and how often it was answered correctly, of what was written."""
    seen = read_bits(record.get("seen", ""), record["samples"])
    if "order" not in record:
        return seen.astype(np.int64), read_bits(record["right"], len(seen)).astype(np.int64)
    order = require_order(record["order"], len(seen))
    good = order[read_bits(record["right"], len(order))]
    return np.bincount(order, minlength=len(seen)), np.bincount(good, minlength=len(seen))


def write_bits(values: NDArray[np.bool_]) -> str:
    """Correctness per sample as a short text: bits in base64, the first sample in the highest bit.

    >>> write_bits(np.array([True, False, False, True]))
    'kA=='
    """
    return base64.b64encode(np.packbits(values).tobytes()).decode()


def read_bits(text: str, count: int) -> NDArray[np.bool_]:
    """What was written.

    >>> read_bits("kA==", 4).tolist()
    [True, False, False, True]
    """
    try:
        packed = np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
    except (binascii.Error, ValueError, TypeError):
        raise UnreadableFile("the record of correct predictions is not base64 (truncated or damaged?)") from None
    if len(packed) != -(-count // 8):
        there = f"{8 * len(packed)} bits where there are {count} samples"
        raise UnreadableFile(f"the record of correct predictions has {there}")
    values = np.unpackbits(packed, count=count).astype(np.bool_)
    if write_bits(values) != text:
        raise UnreadableFile(f"the record of correct predictions has bits beyond its {count} samples (damaged?)")
    return values
