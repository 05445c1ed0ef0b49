"""Table: an experiment with its cells, and what stands above and below them; all writers show the same texts."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from pta.measure.record import Record
from pta.measure.reproduce.declaration import TIMED_METRICS, Erratum, Experiment, Row
from pta.measure.texts import number, signed

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

    def starred(self, paper: str, before: str, star: str = "*") -> str:
        """The paper's number, as a writer sets it, with its mark if it cannot be right, or was computed from such.

        A gain has some words before it.
        """
        mark = star if self.erratum or self.rests_on_errata else ""
        return f"{before if self.is_gain else ''}{paper}{mark}" if paper else ""

    @property
    def texts(self) -> list[str]:
        """Ours, the paper's and the difference below each other, where there is room for a few letters only."""
        below = (self.starred(self.paper_text, "paper "), self.difference_text)
        return [" ".join(filter(None, (self.ours_text, self.remark))), *filter(None, below)]


NO_GAIN = Cell(metric="", is_gain=True)
"""What the baseline has in the column of gains; it shows nothing."""


@dataclass(frozen=True)
class Line:
    """A row with its cells, one for each heading of the table; a gain over the baseline is the last."""

    row: Row
    cells: tuple[Cell, ...]

    def is_accuracy(self, cell: Cell) -> bool:
        """Whether a cell is a mean accuracy, so that more is better."""
        return self.row.statistic == "mean" and cell.metric == "accuracy" and not cell.is_gain


@dataclass(frozen=True)
class Table:
    """An experiment with its numbers."""

    experiment: Experiment
    headings: tuple[str, ...]  # of its columns, as they were for the data that was there
    lines: tuple[Line, ...]
    comparable: bool  # whether the data are the paper's; if not, only gains can be compared with it
    about: dict[str, str]  # what the numbers were made with, e.g. model and data, in words, by name
    notes: tuple[str, ...] = ()  # what is to be said of data and model, one sentence each
    absent: dict[str, str] = field(default_factory=dict)  # the datasets that were not there, each with the reason
    titles: Mapping[str, str] = field(default_factory=dict)  # of sections that hold other data than the paper's

    @property
    def cells(self) -> list[Cell]:
        """All cells but gains."""
        return [cell for line in self.lines for cell in line.cells if not cell.is_gain]

    @property
    def title(self) -> str:
        """Place and title."""
        return ": ".join(filter(None, (self.experiment.place, self.experiment.title)))

    @property
    def made_with(self) -> str:
        """What the numbers were made with, in one line."""
        return "; ".join(f"{name}: {value}" for name, value in self.about.items())

    @property
    def sections(self) -> Iterator[tuple[str | None, Line]]:
        """Every line with the heading above it, where another section begins."""
        before = ""
        for line in self.lines:
            section = line.row.section
            yield self.titles.get(section, section) if section != before else None, line
            before = section

    @property
    def remarks(self) -> list[str]:
        """What a reader must know: errata, notes on rows and table, how speeds were measured, what is missing."""
        notes, digits = [], self.experiment.digits
        gains = (cell for line in self.lines for cell in line.cells if cell.is_gain)
        if self.comparable or any(gain.rests_on_errata for gain in gains):  # the paper's numbers are shown, or used
            for one in self.experiment.errata:
                right = "cannot be right" if one.instead is None else f"corrected to {number(one.instead, digits)}"
                notes.append(f"* {one.row}, {one.column}: printed {number(one.printed, digits)}, {right}: {one.why}")
        notes += [f"{line.row.name}: {line.row.note}" for line in self.lines if line.row.note]
        notes += self.notes
        if any(cell.spread for cell in self.cells):
            notes.append(
                "Speeds are medians of rounds in which all methods are given the same images in turn, on the machine "
                "of this run; the least and the most of the rounds are in brackets."
            )
        by_reason: dict[str, list[str]] = {}
        for dataset, reason in self.absent.items():
            by_reason.setdefault(reason, []).append(dataset)
        return notes + [f"Missing: {', '.join(datasets)} ({reason})." for reason, datasets in by_reason.items()]


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


def words(value: Any) -> str:
    """A value of a record for a reader.

    >>> words({"base": "tda", "base_parameters": {"alpha": 2.0}, "seeds": [1, 2]})
    'base = tda, base_parameters = (alpha = 2.0), seeds = (1, 2)'
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_within(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_within, value))
    return str(value)


def _within(value: Any) -> str:
    return f"({words(value)})" if isinstance(value, Mapping | list | tuple) else str(value)
