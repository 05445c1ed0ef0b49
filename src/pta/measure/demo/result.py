"""DemoResult: the result of a demonstration, and every reported number; Exhibit: its texts, pictures and methods."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pta.data.features import FeatureFile
from pta.measure import metrics
from pta.measure.difference import Difference, points
from pta.measure.parts import StreamPart, by_class, quarters
from pta.measure.report.pictures import picture
from pta.measure.stream_run import StreamRun

Draw = Callable[[Any, str, str], str]
"""A sample, what it is, and a CSS class to the HTML of a picture."""


@dataclass(frozen=True)
class Exhibit:
    """What is particular to one kind of samples."""

    thing: str  # one sample
    title: str  # what is shown, for the top of the page
    command: str  # that shows it, without shift, severity and seed
    call: str  # the same in Python, with the bracket open
    severities: str  # how severities are counted
    templates: tuple[str, ...]  # of the prompts
    origin: str  # of the samples; {} is how many
    model: str  # that labels them
    others: tuple[str, ...]  # methods beside zero-shot and PTA: those that take seconds, not minutes
    batch: int  # samples that are encoded at once; few, so that a progress bar moves
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of PTA
    draw: Draw = picture

    @property
    def things(self) -> str:
        """Several samples."""
        return f"{self.thing}s"


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

    @cached_property
    def difference(self) -> Difference:
        """PTA's accuracy minus zero-shot's on this stream."""
        return Difference.between([self.zero_shot], [self.pta])

    @cached_property
    def mean_difference(self) -> Difference:
        """The same over all orders of the stream."""
        before, after = zip(*self._orders, strict=True)
        return Difference.between(before, after)

    @property
    def _orders(self) -> list[tuple[StreamRun, StreamRun]]:
        """Zero-shot and PTA in each order."""
        before, after = (
            [run, *(other for other in self.reordered if other.method == run.method)]
            for run in (self.zero_shot, self.pta)
        )
        return list(zip(before, after, strict=True))

    @property
    def classes(self) -> list[StreamPart]:
        """The score of every class that occurs."""
        return by_class(self.zero_shot, self.pta, self.data.classifier.class_names)

    @property
    def verdict(self) -> str:
        """One sentence that says whether PTA helped."""
        return self.difference.sentence("PTA", things=self.exhibit.things)

    @property
    def over_orders(self) -> str:
        """One sentence about all orders of the stream."""
        mean, orders = self.mean_difference, f"{len(self._orders)} random orders of the stream"
        return f"Over {orders} the mean difference is {points(mean.difference)} points {mean.within}."

    @property
    def call(self) -> str:
        """The command, or for a part of the samples the Python call, that gives this result again."""
        if self.limit is not None:
            given = f'"{self.shift}", severity={self.severity}, seed={self.seed}, limit={self.limit}'
            return f"{self.exhibit.call}{given})"
        return f"{self.exhibit.command} --shift {self.shift} --severity {self.severity} --seed {self.seed}"

    @property
    def runs(self) -> list[tuple[str, StreamRun]]:
        """Each method by its name, and what it answered; zero-shot first, then PTA."""
        return [("zero-shot", self.zero_shot), ("PTA", self.pta), *((run.method, run) for run in self.others)]

    def microseconds(self, run: StreamRun) -> float:
        """What a method takes for a sample, in batches."""
        return 1e6 * run.seconds / len(self)

    def summary(self) -> dict[str, Any]:
        """The numbers, ready for JSON; accuracies in percent."""
        before, scores = self.difference.accuracies[0], [(run, run.right) for _, run in self.runs]
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
                    "accuracy": metrics.accuracy(right),
                    "gain_points": metrics.accuracy(right) - before,
                    "mean_confidence": 100 * float(run.confidences.mean()),
                    "calibration_error": metrics.calibration_error(run.confidences, right),
                    "microseconds_per_sample": self.microseconds(run),
                }
                for run, right in scores
            ],
            "classes": [{"name": part.name, "n": part.count, **_scores(part.score)} for part in self.classes],
            "quarters": [
                {"positions": part.name, **_scores(part.score)} for part in quarters(self.zero_shot, self.pta)
            ],
            "orders": {
                "gains_points": [
                    metrics.accuracy(after.right) - metrics.accuracy(before.right) for before, after in self._orders
                ],
                "mean_gain_interval_points": list(self.mean_difference.interval),
            },
            "gain_interval_points": list(self.difference.interval),
            "fixed": int(self.difference.fixed),
            "broken": int(self.difference.broken),
            "verdict": self.verdict,
        }


def _scores(score: Difference) -> dict[str, Any]:
    before, after = score.accuracies
    return {
        "zero_shot": before,
        "pta": after,
        "gain_points": score.difference,
        "gain_interval_points": list(score.interval),
    }
