"""What a filled table says in words: its cells, and what must stand below it."""

from collections.abc import Mapping
from typing import Any

from pta.evaluation.number_text import number, signed
from pta.reproduction.declaration import Row
from pta.reproduction.table import Cell, Table

NOTHING = "–"
_COUNTS = ("classes", "samples")


def cell_text(table: Table, cell: Cell) -> str:
    """Ours, and in parentheses the paper's and the difference where the data are the paper's."""
    beside = _beside(table, cell)
    return ours_text(table, cell) + (f" ({', '.join(beside)})" if beside else "") + partial_text(cell)


def cell_lines(table: Table, cell: Cell) -> list[str]:
    """The same where there is room for a few letters only: ours, the paper's and the difference below each other."""
    return [ours_text(table, cell) + partial_text(cell), *_beside(table, cell)]


def _beside(table: Table, cell: Cell) -> list[str]:
    paper, difference, digits = paper_number(table, cell), difference_from_paper(table, cell), digits_of(table, cell)
    beside = [] if paper is None else [number(paper, digits) + star(cell)]
    return beside if difference is None else [*beside, signed(difference, digits)]


def gain_text(cell: Cell, digits: int = 2) -> str:
    """Our gain over the baseline and the paper's.

    >>> gain_text(Cell(ours=1.234, printed=3.74))
    '+1.23 (paper: +3.74)'
    >>> gain_text(Cell(missing="not yet", printed=3.74))
    'not yet (paper: +3.74)'
    """
    paper = "" if cell.paper is None else f" (paper: {signed(cell.paper, digits)}{star(cell)})"
    return our_gain(cell, digits) + paper + partial_text(cell)


def gain_lines(cell: Cell, digits: int = 2) -> list[str]:
    """The same below each other.

    >>> gain_lines(Cell(ours=1.234, printed=3.74))
    ['+1.23', 'paper +3.74']
    """
    paper = [] if cell.paper is None else [f"paper {signed(cell.paper, digits)}{star(cell)}"]
    return [our_gain(cell, digits) + partial_text(cell), *paper]


def our_gain(cell: Cell, digits: int) -> str:
    """Our gain, or why there is none."""
    return missing_text(cell) if cell.ours is None else signed(cell.ours, digits)


def star(cell: Cell) -> str:
    """The mark of a number of the paper that cannot be right, or was computed from such."""
    return "*" if cell.erratum or cell.rests_on_errata else ""


def ours_text(table: Table, cell: Cell) -> str:
    """Our number, or why there is none."""
    return missing_text(cell) if cell.ours is None else number(cell.ours, digits_of(table, cell))


def missing_text(cell: Cell) -> str:
    """Why there is no number of ours."""
    return cell.missing or NOTHING


def partial_text(cell: Cell) -> str:
    """Of how many parts a mean is, if not of all."""
    return f" [{cell.partial}]" if cell.partial else ""


def paper_number(table: Table, cell: Cell) -> float | None:
    """The paper's number, where it may stand beside ours: numbers of other data may not."""
    return cell.paper if table.comparable else None


def difference_from_paper(table: Table, cell: Cell) -> float | None:
    """Ours minus the paper's, where they can be compared."""
    return cell.difference if table.comparable else None


def digits_of(table: Table, cell: Cell) -> int:
    """How many digits after the point: as declared, none for counts."""
    return 0 if cell.metric in _COUNTS else table.experiment.digits


def is_accuracy(row: Row, cell: Cell) -> bool:
    """Whether a row's cell holds an accuracy, so that more is better and the best can be named."""
    return row.statistic == "mean" and cell.metric == "accuracy"


def best_cells(table: Table) -> frozenset[tuple[int, int]]:
    """Line and column of the best accuracies of ours, one in each column or several that read the same.

    A mean of some parts does not compete with one of all, nor with one of others.
    """
    best = set()
    for column in range(len(table.headings)):
        ours = {
            at: line.cells[column]
            for at, line in enumerate(table.lines)
            if line.cells[column].ours is not None and is_accuracy(line.row, line.cells[column])
        }
        extents = {cell.partial for cell in ours.values()}
        extent = "" if "" in extents else next(iter(extents), "")
        written = {at: ours_text(table, one) for at, one in ours.items() if one.partial == extent}
        if len(written) > 1 and ("" in extents or len(extents) == 1):
            top = max(written.values(), key=float)
            best |= {(at, column) for at, text in written.items() if text == top}
    return frozenset(best)


def title_of(table: Table) -> str:
    """Place and title."""
    experiment = table.experiment
    return f"{experiment.place}: {experiment.title}" if experiment.place else experiment.title


def has_gains(table: Table) -> bool:
    """Whether any line has a gain over the baseline."""
    return any(line.gain is not None for line in table.lines)


def gain_heading(table: Table) -> str:
    """What the column of gains is called."""
    return f"gain over {table.experiment.baseline or 'the baseline'}"


def about_text(table: Table) -> str:
    """What the numbers were made with, in one line."""
    return "; ".join(f"{name}: {words(value)}" for name, value in table.about.items())


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


def footnotes(table: Table) -> list[str]:
    """What a reader must know: errata, what is said of rows and of the table, and the data that were not there."""
    notes = [*_errata(table), *(f"{line.row.name}: {line.row.note}" for line in table.lines if line.row.note)]
    notes += table.notes
    by_reason: dict[str, list[str]] = {}
    for dataset, reason in (table.absent or {}).items():
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
