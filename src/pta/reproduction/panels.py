"""The panels of a drawing: bars, curves along a stream, and lines over a parameter."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from pta.evaluation.number_text import number
from pta.evaluation.record import Record
from pta.reproduction.declaration import Figure as Declared
from pta.reproduction.table import Line, Table
from pta.reproduction.view import NOTHING, digits_of, ours_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GREY = "#8b929a"
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito's, told apart by all
_GAP = "\N{NO-BREAK SPACE}"
_LONGEST = 48  # letters of a label
_MARKS = "osD^vP"
_DASHES = ("-", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 1, 1, 1, 1, 1)), (0, (2, 2)))

Look = dict[str, Any]


def drawn_lines(table: Table) -> list[Line]:
    """The rows that are drawn: all but deviations."""
    return [line for line in table.lines if line.row.statistic == "mean"]


def paper_words(table: Table) -> str:
    """What the paper's numbers are called: they are not to be taken for numbers of the same data."""
    return "paper" if table.comparable else "paper, its own data"


def seen(label: str) -> str:
    """A label that fits, and that matplotlib shows: it hides those that begin with an underscore."""
    short = label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"
    return f"\N{ZERO WIDTH SPACE}{short}" if short.startswith("_") else short


def _bars(panel: "Axes", table: Table, column: int) -> None:
    """One bar per row, its name above it: ours filled, the paper's an outline below it."""
    lines = drawn_lines(table)
    for place, line in enumerate(lines):
        cell = line.cells[column]
        panel.text(0, place - 0.34, seen(line.row.name), va="center", fontsize=9.5, in_layout=False)
        if cell.ours is not None:
            panel.barh(place, cell.ours, 0.24, color=_COLOURS[0], label="ours")
        panel.text(cell.ours or 0, place, f"{_GAP}{ours_text(table, cell)}", va="center", fontsize=9)
        if cell.paper is not None:
            outline: Look = {"fill": False, "edgecolor": _COLOURS[1], "linestyle": "--"}
            panel.barh(place + 0.28, cell.paper, 0.2, label=paper_words(table), **outline)
            printed = number(cell.paper, digits_of(table, cell))
            panel.text(cell.paper, place + 0.28, f"{_GAP}{printed}", va="center", fontsize=9)
    panel.set_yticks([])
    panel.set_ylim(len(lines) - 0.5, -0.5)
    cells = [line.cells[column] for line in lines]
    highest = max([0.0, *(cell.ours or 0.0 for cell in cells), *(cell.paper or 0.0 for cell in cells)])
    panel.set_xlim(0, 1.18 * highest or 1)  # room for the numbers
    panel.set_xlabel(_declared(table).y)
    panel.grid(axis="x")
    panel.set_axisbelow(True)


def _curves(panel: "Axes", table: Table, column: int) -> None:
    """Accuracy along the stream, mean over the seeds; zero-shot in grey, the paper's last point hollow."""
    has_zero_shot = any(line.row.method == "clip" and line.cells[column].sources for line in drawn_lines(table))
    for at, line in enumerate(drawn_lines(table)):
        cell = line.cells[column]
        curves = [record["online"] for record in cell.records if "online" in record]
        if not curves:
            continue
        samples = curves[0]["samples"]
        curves = [curve for curve in curves if curve["samples"] == samples]
        if not has_zero_shot:
            panel.plot(samples, _mean_curve(curves, "zero_shot"), color=GREY, lw=1.6, label="zero-shot")
            has_zero_shot = True
        look = _look(at) | ({"color": GREY} if line.row.method == "clip" else {})
        panel.plot(samples, _mean_curve(curves, "accuracy"), lw=1.6, label=seen(line.row.name), **look)
        if table.comparable and cell.paper is not None:
            hollow: Look = {"marker": "o", "mfc": "none", "mec": look["color"], "ls": "none", "clip_on": False}
            panel.plot([samples[-1]], [cell.paper], label=paper_words(table), **hollow)
    _name_axes(panel, table, column)


def _lines(panel: "Axes", table: Table, column: int) -> None:
    """One point per row: a solid line for each series of ours, a dashed one with hollow marks for the paper's."""
    placed = [line for line in drawn_lines(table) if line.row.x is not None]
    by_series: dict[str, list[Line]] = {}
    for line in placed:
        by_series.setdefault(line.row.series or line.row.section or line.row.method, []).append(line)
    for at, (series, lines) in enumerate(by_series.items()):
        look = _look(at) | {"ls": "-", "marker": _MARKS[at % len(_MARKS)], "ms": 5, "lw": 1.6}
        ours, paper = (_points(lines, column, whose) for whose in ("ours", "paper"))
        if ours:
            panel.plot(*zip(*ours, strict=True), label=seen(series), **look)
        if paper:
            hollow = look | {"ls": "--", "mfc": "none"}
            panel.plot(*zip(*paper, strict=True), label=seen(f"{series}: {paper_words(table)}"), **hollow)
    for line in (line for line in drawn_lines(table) if line.row.x is None):  # levels to compare with
        cell, name = line.cells[column], line.row.name
        if cell.ours is not None:
            panel.axhline(cell.ours, color=GREY, lw=1.3, label=seen(name))
        if cell.paper is not None:
            panel.axhline(cell.paper, color=GREY, lw=1.3, ls="--", label=seen(f"{name}: {paper_words(table)}"))
    if _declared(table).log_x:
        panel.set_xscale("log")
    places = sorted({line.row.x for line in placed if line.row.x is not None})
    if len(places) <= 8:
        panel.set_xticks(places, [f"{place:g}" for place in places])
        panel.minorticks_off()
    _name_axes(panel, table, column)


def _name_axes(panel: "Axes", table: Table, column: int) -> None:
    declared = _declared(table)
    panel.set_xlabel(declared.x)
    panel.set_ylabel(declared.y)
    panel.grid(axis="y")
    if not panel.lines:
        reasons = dict.fromkeys(line.cells[column].missing or NOTHING for line in drawn_lines(table))
        panel.text(0.5, 0.5, ", ".join(reasons), ha="center", va="center", transform=panel.transAxes)


def _declared(table: Table) -> Declared:
    assert table.experiment.figure is not None
    return table.experiment.figure


def _look(at: int) -> Look:
    """How the line of a number looks: by colour, and by dashes once the colours are used up."""
    return {"color": _COLOURS[at % len(_COLOURS)], "ls": _DASHES[at // len(_COLOURS) % len(_DASHES)]}


def _points(lines: Sequence[Line], column: int, whose: str) -> list[tuple[float, float]]:
    found = [(line.row.x, getattr(line.cells[column], whose)) for line in lines]
    return sorted(((x, y) for x, y in found if x is not None and y is not None), key=lambda point: point[0])


def _mean_curve(curves: Sequence[Record], key: str) -> list[float]:
    return [fmean(values) for values in zip(*(curve[key] for curve in curves), strict=True)]


KINDS: dict[str, Callable[["Axes", Table, int], None]] = {"bars": _bars, "curves": _curves, "lines": _lines}
"""What draws a column of a table into a panel, by the kind of figure."""
