"""One view of a filled table behind all writers: the texts of every cell, and what stands above and below them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pta.evaluation.number_text import number, signed
from pta.reproduction.declaration import Row
from pta.reproduction.table import Cell, Table

NOTHING = "–"


@dataclass(frozen=True)
class CellView:
    """What a cell shows; a text is empty where there is nothing to show."""

    heading: str
    cell: Cell  # without the paper's number where that is one of other data
    is_gain: bool = False  # over the baseline; the baseline's own shows nothing
    is_accuracy: bool = False  # so that more is better
    is_best: bool = False  # of its column
    ours: str = ""  # our number, or why there is none
    paper: str = ""
    difference: str = ""
    remark: str = ""  # in brackets: of how many parts a mean is, if not of all, or between what several rounds were

    @property
    def star(self) -> str:
        """The mark of a number of the paper that cannot be right, or was computed from such."""
        return "*" if self.cell.erratum or self.cell.rests_on_errata else ""

    @property
    def lines(self) -> list[str]:
        """Ours, the paper's and the difference below each other, where there is room for a few letters only."""
        paper = f"{'paper ' if self.is_gain else ''}{self.paper}{self.star}" if self.paper else ""
        return [" ".join(filter(None, (self.ours, self.remark))), *filter(None, (paper, self.difference))]


@dataclass(frozen=True)
class RowView:
    """A row with its cells, the gain at the end if the table has gains."""

    row: Row
    section: str | None  # the heading above the row, where another section begins
    cells: list[CellView]


@dataclass(frozen=True)
class TableView:
    """What a table shows."""

    title: str
    about: str  # what the numbers were made with, in one line
    headings: list[str]  # of the cells
    rows: list[RowView]
    notes: list[str]  # what a reader must know


def view_of(table: Table) -> TableView:
    """The texts of a table."""
    experiment, best = table.experiment, best_cells(table)
    about = "; ".join(f"{name}: {words(value)}" for name, value in table.about.items())
    gains = [f"gain over {experiment.baseline or 'the baseline'}"] if any(line.gain for line in table.lines) else []
    rows, section = [], ""
    for at, line in enumerate(table.lines):
        cells = [
            _view_of(table, heading, cell, is_accuracy=_is_accuracy(line.row, cell), is_best=(at, column) in best)
            for column, (heading, cell) in enumerate(zip(table.headings, line.cells, strict=True))
        ]
        for heading in gains:
            shown = _view_of(table, heading, line.gain, is_gain=True) if line.gain else None
            cells.append(shown or CellView(heading, Cell(), is_gain=True))
        rows.append(RowView(line.row, line.row.section if line.row.section != section else None, cells))
        section = line.row.section
    return TableView(title_of(table), about, [*table.headings, *gains], rows, _notes(table))


def _view_of(table: Table, heading: str, cell: Cell, *, is_gain: bool = False, **kind: bool) -> CellView:
    """A cell's texts: the paper's number stands beside ours if it is of the same data, or a gain."""
    if not (table.comparable or is_gain):
        cell = replace(cell, printed=None, erratum=None)
    digits, write = digits_of(table, cell), signed if is_gain else number
    ours = ours_text(table, cell, write)
    paper = "" if cell.paper is None else write(cell.paper, digits)
    difference = "" if is_gain or cell.difference is None else signed(cell.difference, digits)
    spread = " to ".join(number(value, digits) for value in cell.spread or ())
    remark = f"[{cell.partial or spread}]" if cell.partial or spread else ""
    return CellView(heading, cell, is_gain, **kind, ours=ours, paper=paper, difference=difference, remark=remark)


def title_of(table: Table) -> str:
    """Place and title."""
    experiment = table.experiment
    return f"{experiment.place}: {experiment.title}" if experiment.place else experiment.title


def ours_text(table: Table, cell: Cell, write: Callable[[float, int], str] = number) -> str:
    """Our number, or why there is none."""
    return cell.missing or NOTHING if cell.ours is None else write(cell.ours, digits_of(table, cell))


def digits_of(table: Table, cell: Cell) -> int:
    """How many digits after the point: as declared, none for counts."""
    return 0 if cell.metric in ("classes", "samples") else table.experiment.digits


def best_cells(table: Table) -> frozenset[tuple[int, int]]:
    """Line and column of the best accuracies of ours, one in each column or several that read the same.

    A mean of some parts does not compete with one of all, nor with one of others.
    """
    best = set()
    for column in range(len(table.headings)):
        cells = {at: line.cells[column] for at, line in enumerate(table.lines)}
        cells = {at: cell for at, cell in cells.items() if cell.ours is not None}
        cells = {at: cell for at, cell in cells.items() if _is_accuracy(table.lines[at].row, cell)}
        extents = {cell.partial for cell in cells.values()}
        extent = "" if "" in extents else next(iter(extents), "")
        written = {at: ours_text(table, one) for at, one in cells.items() if one.partial == extent}
        if len(written) > 1 and ("" in extents or len(extents) == 1):
            top = max(written.values(), key=float)
            best |= {(at, column) for at, text in written.items() if text == top}
    return frozenset(best)


def _is_accuracy(row: Row, cell: Cell) -> bool:
    return row.statistic == "mean" and cell.metric == "accuracy"


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


def _notes(table: Table) -> list[str]:
    """Errata, what is said of rows and of the table, how speeds were measured, and the data that were not there."""
    notes = [*_errata(table), *(f"{line.row.name}: {line.row.note}" for line in table.lines if line.row.note)]
    notes += table.notes
    if any(cell.spread for line in table.lines for cell in line.cells):
        notes.append(
            "Speeds are medians of rounds in which all methods are given the same images in turn, on the machine of "
            "this run; the least and the most of the rounds are in brackets."
        )
    by_reason: dict[str, list[str]] = {}
    for dataset, reason in table.absent.items():
        by_reason.setdefault(reason, []).append(dataset)
    return notes + [f"Missing: {', '.join(datasets)} ({reason})." for reason, datasets in by_reason.items()]


def _errata(table: Table) -> list[str]:
    """The errata of the paper's numbers, where these are shown or what is shown rests on them."""
    if not table.comparable and not any(line.gain and line.gain.rests_on_errata for line in table.lines):
        return []
    digits, shown = table.experiment.digits, []
    for erratum in table.experiment.errata:
        right = "cannot be right" if erratum.instead is None else f"corrected to {number(erratum.instead, digits)}"
        shown.append(
            f"* {erratum.row}, {erratum.column}: printed {number(erratum.printed, digits)}, {right}: {erratum.why}"
        )
    return shown
