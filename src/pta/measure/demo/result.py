"""DemoResult: the result of a demonstration, and every reported number."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import comb
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pta.data.features import FeatureFile
from pta.measure import metrics
from pta.measure.demo.exhibit import Exhibit
from pta.measure.difference import Resampling
from pta.measure.stream_run import StreamRun
from pta.methods import PTA

Curve = NDArray[np.float64]

_CAN_BE_CHANCE = 0.05  # the usual level; only decides whether a caveat is added


@dataclass(frozen=True)
class PartScore:
    """How zero-shot and PTA did on a part of the samples, such as those of one class; accuracies in percent."""

    name: str
    count: int
    zero_shot: float
    pta: float

    @property
    def gain(self) -> float:
        """PTA's accuracy minus zero-shot's, in points."""
        return self.pta - self.zero_shot


@dataclass(frozen=True)
class DemoResult:
    """The methods over one stream of shifted samples; shift, severity and seed determine everything else."""

    shift: str
    severity: int
    seed: int  # of the shift's randomness and of the stream's order
    limit: int | None  # how many samples were asked for, or None
    originals: Sequence[Any] | NDArray[Any]  # the samples as they were: images 28×28, or clouds
    shifted: Sequence[Any] | NDArray[Any]  # the same under the shift
    data: FeatureFile  # what the model made of the shifted samples; their labels are only ever used to count
    model_fingerprint: str
    encoder_microseconds: float  # per sample, in batches
    zero_shot: StreamRun
    pta: StreamRun
    others: tuple[StreamRun, ...]  # of other methods, in the same order
    reordered: tuple[StreamRun, ...]  # zero-shot and PTA again, in other orders
    exhibit: Exhibit

    def __len__(self) -> int:
        return len(self.shifted)

    @property
    def labels(self) -> NDArray[np.int64]:
        """The true class of every sample."""
        assert self.data.labels is not None  # what is packaged has labels
        return self.data.labels

    @property
    def right(self) -> tuple[metrics.Right, metrics.Right]:
        """Whether zero-shot is right at each position of the stream, and whether PTA is."""
        return _right(self.zero_shot), _right(self.pta)

    @property
    def before(self) -> float:
        """The accuracy of zero-shot, in percent."""
        return metrics.accuracy(self.right[0])

    @property
    def after(self) -> float:
        """The accuracy of PTA, in percent."""
        return metrics.accuracy(self.right[1])

    @property
    def online_accuracies(self) -> list[Curve]:
        """The accuracies of zero-shot and of PTA up to each position of the stream, in percent."""
        return [metrics.online_accuracy(right) for right in self.right]

    @property
    def gain(self) -> float:
        """PTA's accuracy minus zero-shot's, in points."""
        return 100 * (len(self.fixed) - len(self.broken)) / len(self)

    @property
    def all_gains(self) -> list[float]:
        """The gain in this order and in the others, in points."""
        return [metrics.accuracy(_right(run)) - self.before for run in self._orders_of(self.pta)]

    @cached_property
    def gain_interval(self) -> tuple[float, float]:
        """The 95 % interval of the mean gain over all orders, in points: a paired bootstrap over the samples."""
        runs, difference = self._orders_of(self.pta), np.zeros(len(self))
        for run in runs:
            difference[run.order] += _right(run) / len(runs)
        difference[self.zero_shot.order] -= self.right[0]
        low, high = Resampling().interval(difference)
        return 100 * low, 100 * high

    def _orders_of(self, run: StreamRun) -> tuple[StreamRun, ...]:
        return run, *(other for other in self.reordered if other.method == run.method)

    def microseconds(self, run: StreamRun) -> float:
        """What a method takes for a sample, in batches: the median over the orders that it was run in."""
        return 1e6 * median(one.seconds / len(one.order) for one in self._orders_of(run))

    @property
    def fixed(self) -> NDArray[np.intp]:
        """The positions of the stream where zero-shot is wrong and PTA right."""
        before, after = self.right
        return np.flatnonzero(~before & after)

    @property
    def broken(self) -> NDArray[np.intp]:
        """The positions of the stream where zero-shot is right and PTA wrong."""
        before, after = self.right
        return np.flatnonzero(before & ~after)

    @property
    def classes(self) -> list[PartScore]:
        """The score of every class that occurs."""
        truth, names = self.labels[self.pta.order], self.data.classifier.class_names
        before, after = (metrics.class_accuracies(right, truth, len(names)) for right in self.right)
        counts = np.bincount(truth, minlength=len(names)).tolist()
        return [
            PartScore(name, count, one, other)
            for name, count, one, other in zip(names, counts, before, after, strict=True)
            if one is not None and other is not None
        ]

    @property
    def quarters(self) -> list[PartScore]:
        """The score of every quarter of the stream; of four samples or more."""
        return [
            PartScore(
                f"{part[0] + 1:,} to {part[-1] + 1:,}", len(part), *(metrics.accuracy(r[part]) for r in self.right)
            )
            for part in np.array_split(np.arange(len(self)), 4)
            if len(part)
        ]

    @cached_property
    def learned(self) -> PTA:
        """PTA at the end of the stream: it learns the same from the same samples again."""
        adapter = PTA(self.data.classifier, **self.pta.parameters)
        adapter.step(self.data.samples[torch.from_numpy(self.pta.order)])
        return adapter

    @property
    def verdict(self) -> str:
        """One sentence that says whether PTA helped."""
        right = f"{self.after:.2f} % of {len(self):,} {self.exhibit.things} right"
        if self.gain:
            moved = "PTA gained" if self.gain > 0 else "On this shift PTA did not help. It lost"
            return f"{moved} {abs(self.gain):.2f} points: {right}, against {self.before:.2f} % by zero-shot."
        return f"On this shift PTA did not help: both it and zero-shot got {right}."

    @property
    def caveat(self) -> str:
        """A caveat if the difference may be chance, otherwise empty."""
        small = self.gain != 0 and chance_of_split(len(self.fixed), len(self.broken)) > _CAN_BE_CHANCE
        return "A difference this small can be chance." if small else ""

    @property
    def call(self) -> str:
        """The command, or for a part of the samples the Python call, that gives this result again."""
        if self.limit is not None:
            given = f'"{self.shift}", severity={self.severity}, seed={self.seed}, limit={self.limit}'
            return f"{self.exhibit.call}{given})"
        return f"{self.exhibit.command} --shift {self.shift} --severity {self.severity} --seed {self.seed}"

    @property
    def runs(self) -> list[tuple[str, StreamRun, float]]:
        """Each method by its name, what it answered, and its accuracy in percent; zero-shot first, then PTA."""
        names = {"clip": "zero-shot", "pta": "PTA"}
        return [
            (names.get(run.method, run.method), run, metrics.accuracy(_right(run)))
            for run in (self.zero_shot, self.pta, *self.others)
        ]

    def summary(self) -> dict[str, Any]:
        """The numbers, ready for JSON; accuracies in percent."""
        return {
            "data": self.data.name,
            **{name: getattr(self, name) for name in ("shift", "severity", "seed")},
            "n": len(self),
            "model": self.model_fingerprint,
            "encoder_microseconds_per_sample": self.encoder_microseconds,
            "methods": [
                {
                    "method": run.method,
                    "params": run.parameters,
                    "accuracy": accuracy,
                    "gain_points": accuracy - self.before,
                    "mean_confidence": 100 * float(run.confidences.mean()),
                    "calibration_error": metrics.calibration_error(run.confidences, _right(run)),
                    "microseconds_per_sample": self.microseconds(run),
                }
                for _, run, accuracy in self.runs
            ],
            "classes": [
                {"name": c.name, "n": c.count, "zero_shot": c.zero_shot, "pta": c.pta, "gain_points": c.gain}
                for c in self.classes
            ],
            "quarters": [{"positions": q.name, "zero_shot": q.zero_shot, "pta": q.pta} for q in self.quarters],
            "orders": {"gains_points": self.all_gains, "mean_gain_interval_points": list(self.gain_interval)},
            "fixed": len(self.fixed),
            "broken": len(self.broken),
            "verdict": f"{self.verdict} {self.caveat}".strip(),
        }


def _right(run: StreamRun) -> metrics.Right:
    """Whether each prediction is right; the labels of a demonstration are known."""
    return run.predictions == run.labels


def chance_of_split(fixed: int, broken: int) -> float:
    """The p-value of the two-sided sign test.

    >>> chance_of_split(5, 1), chance_of_split(50, 10) < 1e-6
    (0.21875, True)
    """
    tosses = fixed + broken
    tail = sum(comb(tosses, k) for k in range(min(fixed, broken) + 1))
    return min(1.0, float(2 * tail / 2**tosses))
