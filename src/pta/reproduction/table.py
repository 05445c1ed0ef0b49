"""Table: an experiment with its numbers, ours and the paper's, and where each of ours comes from."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from pta.evaluation.record import Record
from pta.reproduction.declaration import TIMED_METRICS, Erratum, Experiment, Row

NOT_YET, NO_DATA, CANNOT = "not yet", "no data", "cannot run"
"""Why there is no number of ours."""


@dataclass(frozen=True)
class Source:
    """One dataset's share in a number of ours: the records of all seeds, and how texts and views were made.

    Of what is timed, the rounds are counted as seeds are.
    """

    dataset: str
    records: tuple[Record, ...]
    prompts: str = ""
    views: str = ""

    def by_seed(self, metric: str) -> dict[str, float | None]:
        """The metric of each seed."""
        return {str(record.get("seed", "")): measured(record, metric) for record in self.records}

    def mean(self, metric: str) -> float | None:
        """The mean of a metric over the records, if all of them have it."""
        values = [measured(record, metric) for record in self.records]
        known = [value for value in values if value is not None]
        return fmean(known) if known and len(known) == len(values) else None


@dataclass(frozen=True)
class Cell:
    """One number.

    Where a mean could only be taken of some columns, `printed` is the mean of the paper's numbers in the same ones.
    """

    ours: float | None = None
    printed: float | None = None
    missing: str = ""  # why there is none of ours, in a word or two
    partial: str = ""  # of how many parts a mean is, if not of all, e.g. `3 of 10`
    metric: str = "accuracy"
    erratum: Erratum | None = None  # why the printed number cannot be right
    rests_on_errata: bool = False  # whether the paper's number was computed from others of which one was corrected
    sources: tuple[Source, ...] = ()  # what ours was computed from

    @property
    def paper(self) -> float | None:
        """The paper's number, corrected where we know what it should be."""
        return self.erratum.instead if self.erratum and self.erratum.instead is not None else self.printed

    @property
    def reliable(self) -> float | None:
        """The paper's number, if it is right or it is known what it should be."""
        return None if self.erratum and self.erratum.instead is None else self.paper

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.ours is None or self.paper is None else self.ours - self.paper

    @property
    def spread(self) -> tuple[float, float] | None:
        """The least and the most of several rounds, for what was timed on one dataset."""
        if self.metric not in TIMED_METRICS or len(self.sources) != 1:
            return None
        values = [value for value in self.sources[0].by_seed(self.metric).values() if value is not None]
        return (min(values), max(values)) if len(set(values)) > 1 else None

    @property
    def records(self) -> list[Record]:
        """All records of its sources."""
        return [record for source in self.sources for record in source.records]


@dataclass(frozen=True)
class Line:
    """A row with its cells, one for each heading of the table."""

    row: Row
    cells: tuple[Cell, ...]
    gain: Cell | None = None  # over the baseline in the last column that is a mean; None for the baseline itself


@dataclass(frozen=True)
class Table:
    """An experiment with its numbers."""

    experiment: Experiment
    headings: tuple[str, ...]  # of its columns, as they were for the data that was there
    lines: tuple[Line, ...]
    comparable: bool  # whether the data are the paper's; if not, only gains can be compared with it
    about: dict[str, Any]  # what the numbers were made with, e.g. model and data, in words, by name
    notes: tuple[str, ...] = ()  # what a reader must know, one sentence each
    absent: dict[str, str] = field(default_factory=dict)  # the datasets that were not there, each with the reason


def measured(record: Record, metric: str) -> float | None:
    """What a record holds of a metric, if it does.

    >>> measured({"worst_class": {"name": "boot", "accuracy": 12.5}}, "worst_class")
    12.5
    """
    if metric == "worst_class":
        value = record.get(metric, {}).get("accuracy")
    elif metric == "state_kb":
        value = record["state_bytes"] / 1e3 if "state_bytes" in record else None
    elif metric == "classes":
        value = len(record["class_accuracies"]) if "class_accuracies" in record else None
    else:
        value = record.get(metric)
    return None if value is None else float(value)


def said(records: Iterable[Record], key: str) -> list[Any]:
    """The different values that records have under a key, themselves or among what they say of their making, in order.

    >>> said([{"seed": 2, "made": {"on": "cpu"}}, {"seed": 1, "made": {"on": "cpu"}}], "on")
    ['cpu']
    """
    kept: list[Any] = []
    for record in records:
        value = {**record.get("made", {}), **record}.get(key)
        if value not in (None, "", *kept):
            kept.append(value)
    return kept
