"""Evaluation: one method's run over one order of a dataset, and the record that is kept of it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pta.evaluation import metrics
from pta.evaluation.bits import write_bits
from pta.evaluation.stream_run import Run

Record = dict[str, Any]
"""What is written to JSON and kept in stores; accuracies are in percent."""

_POINTS = 200  # of a curve along the stream: more than a screen can tell apart


@dataclass(frozen=True)
class Evaluation:
    """One method's run over one seed's order of a dataset."""

    dataset: str
    class_names: tuple[str, ...]
    samples: int  # how many the dataset has; a stream may leave some out
    labels_digest: str  # the same for lists of samples with the same labels
    seed: int
    stream: dict[str, Any]  # what kind of order, and how batches were used
    run: Run
    zero_shot_right: NDArray[np.bool_] | None  # at each position of the stream, if that is known

    @property
    def zero_shot_accuracy(self) -> float | None:
        """Percentage of the same samples that zero-shot gets right, if that is known."""
        return None if self.zero_shot_right is None else metrics.accuracy(self.zero_shot_right)

    def record(self) -> Record:
        """All that is kept of it."""
        return {
            "dataset": self.dataset,
            "method": self.run.method,
            "params": self.run.parameters,
            "seed": self.seed,
            "stream": self.stream,
            "n": len(self.run.order),
            "accuracy": self.run.accuracy,
            "zero_shot_accuracy": self.zero_shot_accuracy,
            "seconds": self.run.seconds,
            "state_bytes": self.run.state_bytes,
            **self._counted(),
        }

    def _counted(self) -> Record:
        right, before, labels = self.run.correct, self.zero_shot_right, self.run.labels
        if right is None or before is None or labels is None:
            return {}
        by_class = metrics.class_accuracies(right, labels, len(self.class_names))
        worst, name = min((v, name) for name, v in zip(self.class_names, by_class, strict=True) if v is not None)
        fixed, broken = metrics.changes(right, before)
        at = np.unique(np.linspace(min(metrics.COLD_START, len(right)), len(right), _POINTS).round().astype(int)) - 1
        return {
            "calibration_error": metrics.calibration_error(self.run.confidences, right),
            "class_accuracies": by_class,
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
            "samples": self.samples,
            "labels": self.labels_digest,
            "seen": write_bits(self._by_sample(np.ones_like(right))),
            "right": write_bits(self._by_sample(right)),
        }

    def _by_sample(self, at_position: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """What holds at positions of the stream, for each sample of the dataset in its own order."""
        values = np.zeros(self.samples, np.bool_)
        values[self.run.order] = at_position
        return values
