"""Cell: one number of a table, ours and the paper's, where ours comes from, and the texts that all writers show."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pta.measure.number_text import number, signed
from pta.measure.record import Record
from pta.measure.reproduce.declaration import TIMED_METRICS, Erratum

NO_DATA, CANNOT = "no data", "cannot run"
"""Why we have no number."""

NOTHING = "–"


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

    def values(self, metric: str) -> list[float]:
        """The metric of every record; none if one of them lacks it."""
        known = [value for record in self.records if (value := measured(record, metric)) is not None]
        return known if len(known) == len(self.records) else []

    def mean(self, metric: str) -> float | None:
        """The mean of a metric over the records, if all of them have it."""
        values = self.values(metric)
        return fmean(values) if values else None


@dataclass(frozen=True)
class Cell:
    """One number; a text of it is empty where there is nothing to show.

    Where a mean could only be taken of some columns, `printed` is the mean of the paper's numbers in the same ones.
    """

    ours: float | None = None
    printed: float | None = None  # by the paper, of the same data; a gain may be of other data
    missing: str = ""  # why there is none of ours, in a word or two
    partial: str = ""  # of how many parts a mean is, if not of all, e.g. `3 of 10`
    metric: str = "accuracy"
    erratum: Erratum | None = None  # why the printed number cannot be right
    rests_on_errata: bool = False  # whether the paper's number was computed from others of which one was corrected
    sources: tuple[Source, ...] = ()  # what ours was computed from
    elsewhere: float | None = None  # the paper's number of its own data, if ours is of others; figures alone show it
    digits: int = 2  # after the point
    is_gain: bool = False  # over the baseline
    is_best: bool = False  # of its column

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
        values = self.sources[0].values(self.metric)
        return (min(values), max(values)) if len(set(values)) > 1 else None

    @property
    def records(self) -> list[Record]:
        """All records of its sources."""
        return [record for source in self.sources for record in source.records]

    def text(self, value: float | None) -> str:
        """A number as it is written in this cell: with its sign if it is a gain, without digits if it is a count."""
        digits = 0 if self.metric in ("classes", "samples") else self.digits
        return "" if value is None else (signed if self.is_gain else number)(value, digits)

    @property
    def ours_text(self) -> str:
        """Our number, or why there is none."""
        return (self.text(self.ours) or self.missing or NOTHING) if self.metric else ""

    @property
    def paper_text(self) -> str:
        """The paper's number."""
        return self.text(self.paper)

    @property
    def difference_text(self) -> str:
        """Ours minus the paper's, with its sign; gains have none."""
        written = "" if self.is_gain else self.text(self.difference)
        return f"+{written}" if written and float(written) > 0 else written

    @property
    def remark(self) -> str:
        """In brackets, of how many parts a mean is, if not of all, or between what several rounds were."""
        said = self.partial or " to ".join(map(self.text, self.spread or ()))
        return f"[{said}]" if said else ""

    @property
    def star(self) -> str:
        """The mark of a number of the paper that cannot be right, or was computed from such."""
        return "*" if self.erratum or self.rests_on_errata else ""

    @property
    def texts(self) -> list[str]:
        """Ours, the paper's and the difference below each other, where there is room for a few letters only."""
        paper = f"{'paper ' if self.is_gain else ''}{self.paper_text}{self.star}" if self.paper_text else ""
        return [" ".join(filter(None, (self.ours_text, self.remark))), *filter(None, (paper, self.difference_text))]


NO_GAIN = Cell(metric="", is_gain=True)
"""What the baseline has in the column of gains; it shows nothing."""


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
