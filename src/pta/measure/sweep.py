"""The grid of a method's parameters, and its accuracy at every point."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from statistics import fmean, stdev
from typing import Any

from pta.data.features import FeatureFile
from pta.errors import InvalidParameter, InvalidSamples, naming
from pta.measure.contenders import as_given
from pta.measure.record import Record
from pta.measure.texts import csv_text
from pta.methods import create_adapter, needs_model

Setting = dict[str, Any]

_MOST_POINTS = 10_000


@dataclass(frozen=True)
class Grid:
    """All combinations of some values of a method's parameters; the last parameter changes fastest.

    >>> Grid("pta", {"h": [5, 20], "w": [0.01, 0.1]}).settings[:3]
    [{'h': 5, 'w': 0.01}, {'h': 5, 'w': 0.1}, {'h': 20, 'w': 0.01}]
    """

    method: str
    values: Mapping[str, Sequence[Any]]

    def __post_init__(self) -> None:
        if (count := prod(map(len, self.values.values()))) > _MOST_POINTS:
            raise InvalidParameter(f"the grid has {count:,} points; at most {_MOST_POINTS:,} are swept")
        if any(needs_model(self.method, setting) for setting in self.settings):
            raise InvalidParameter(f"{self.method} needs a model, which a sweep does not load; use pta eval --model")

    @cached_property
    def settings(self) -> list[Setting]:
        """The points of the grid."""
        return [dict(zip(self.values, one, strict=True)) for one in product(*self.values.values())]

    def require(self, data: FeatureFile) -> None:
        """Refuse data without labels, and grids with invalid points."""
        if data.labels is None:
            raise InvalidSamples(f"{data.name} has no labels, so there is no accuracy to sweep")
        with naming(data.name):
            for setting in self.settings:
                create_adapter(self.method, data.classifier, source=data.samples, **setting)


@dataclass(frozen=True)
class Point:
    """What was measured at one point of the grid: a record for each seed."""

    setting: Setting
    records: Sequence[Record]

    @property
    def accuracy(self) -> float:
        """Mean over the seeds."""
        return fmean(record["accuracy"] for record in self.records)

    @property
    def deviation(self) -> float | None:
        """Standard deviation over the seeds, if there are several."""
        return stdev(record["accuracy"] for record in self.records) if len(self.records) > 1 else None

    @property
    def zero_shot(self) -> float:
        """What zero-shot gets right of the same samples."""
        return fmean(record["zero_shot_accuracy"] for record in self.records)

    @property
    def gain(self) -> float:
        """Over zero-shot."""
        return self.accuracy - self.zero_shot


Swept = Mapping[str, Sequence[Point]]
"""The points of the grid by dataset."""


def sweep_csv(grid: Grid, swept: Swept) -> str:
    """A row for each dataset and point.

    >>> point = Point({"h": 5}, [{"accuracy": 60.0, "zero_shot_accuracy": 58.5}])
    >>> print(sweep_csv(Grid("pta", {"h": [5]}), {"pets": [point]}))
    dataset,method,h,seeds,accuracy,deviation,gain,zero_shot
    pets,pta,5,1,60.000000,,1.500000,58.500000
    """
    rows = []
    for dataset, points in swept.items():
        for point in points:
            found = (point.accuracy, point.deviation, point.gain, point.zero_shot)
            numbers = ["" if value is None else f"{value:.6f}" for value in found]
            values = [as_given(value) for value in point.setting.values()]
            rows.append([dataset, grid.method, *values, len(point.records), *numbers])
    measured = ("seeds", "accuracy", "deviation", "gain", "zero_shot")
    return csv_text(["dataset", "method", *grid.values, *measured], *rows)
