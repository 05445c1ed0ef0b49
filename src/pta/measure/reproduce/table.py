"""Table: an experiment with its cells, and what stands above and below them; all writers show the same."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pta.measure.number_text import number
from pta.measure.reproduce.cell import Cell
from pta.measure.reproduce.declaration import Experiment, Row


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
    about: dict[str, Any]  # what the numbers were made with, e.g. model and data, in words, by name
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
        return "; ".join(f"{name}: {words(value)}" for name, value in self.about.items())

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
        notes = [*self._errata(), *(f"{line.row.name}: {line.row.note}" for line in self.lines if line.row.note)]
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

    def _errata(self) -> Iterator[str]:
        """The errata of the paper's numbers, where these are shown or a gain that is shown rests on them."""
        gains = (cell for line in self.lines for cell in line.cells if cell.is_gain)
        if not self.comparable and not any(gain.rests_on_errata for gain in gains):
            return
        digits = self.experiment.digits
        for one in self.experiment.errata:
            right = "cannot be right" if one.instead is None else f"corrected to {number(one.instead, digits)}"
            yield f"* {one.row}, {one.column}: printed {number(one.printed, digits)}, {right}: {one.why}"


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
