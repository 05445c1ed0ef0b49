"""A filled table as a drawing: inline SVG, the same for the same numbers, on light ground and on dark.

A sweep is drawn, too: accuracy against the first parameter, a line for each setting of the others.
"""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from numbers import Real
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from pta.door.files import write_atomically
from pta.door.safe_text import printable
from pta.errors import InvalidParameter, MissingPackage, how_to_install
from pta.measure.contenders import as_given
from pta.measure.record import Record
from pta.measure.reproduce.declaration import Figure as Declared
from pta.measure.reproduce.table import NOTHING, Cell, Line, Table
from pta.measure.sweep import Grid, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK = "#123456"  # stands for the reader's own text colour until the drawing is written
_WIDTH = 5.0  # inches: at a phone's width, letters are then hardly smaller than around the drawing
_PANEL, _BAR, _EDGE = 2.3, 0.56, 0.7  # inches of height: a panel of lines, a row of bars, what is around them
_LEGEND = 0.2  # inches, a line of it
_GREY = "#8b929a"
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito's, told apart by all
_GAP = "\N{NO-BREAK SPACE}"
_LONGEST = 48  # letters of a label
_MARKS = "osD^vP"
_DASHES = ("-", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 1, 1, 1, 1, 1)), (0, (2, 2)))
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 10.5,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": _GREY,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
}
_LOGARITHMIC = 30  # times the smallest value, from where a linear axis would crowd the small ones
_SWEPT_WIDTH, _SWEPT_HEIGHT = 4.2, 3.4  # inches of a panel
# equal results give equal files
_NO_DATE: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".png": {}, ".pdf": {"CreationDate": None}}

Look = dict[str, Any]


def require_matplotlib() -> None:
    """Refuse a figure that could not be drawn, before any work: matplotlib is an optional extra, imported on use."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise MissingPackage(f"figures need matplotlib; {how_to_install('figures')}") from None


def draw(table: Table, *, across: int = 1) -> str:
    """The figure that the experiment declares, `across` panels beside each other if it has several.

    Ours is solid, the paper's dashed or hollow.
    """
    require_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    declared = table.experiment.figure
    assert declared is not None
    columns = _columns(table, declared)
    is_bars, beside = declared.kind == "bars", min(across, len(columns))
    height, below = _EDGE + _BAR * len(_drawn(table)) if is_bars else _PANEL, -(-len(columns) // beside)
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": f"{table.experiment.id}{across if across > 1 else ''}"}):
        figure = Figure(figsize=(_WIDTH * across, height * below), layout="constrained")
        panels = list(figure.subplots(below, beside, squeeze=False).flat)
        entries: dict[str, Any] = {}  # of one legend for all panels
        for panel, column in zip(panels, columns, strict=False):
            panel.set_title(_seen(table.headings[column]), loc="left")
            KINDS[declared.kind](panel, table, column)
            panel.set(xlabel=declared.y if is_bars else declared.x, ylabel="" if is_bars else declared.y)
            panel.grid(axis="x" if is_bars else "y")
            if not panel.lines and not is_bars:
                reasons = dict.fromkeys(line.cells[column].missing or NOTHING for line in _drawn(table))
                panel.text(0.5, 0.5, ", ".join(reasons), ha="center", va="center", transform=panel.transAxes)
            for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
                entries.setdefault(label, handle)
        for panel in panels[len(columns) :]:
            panel.remove()
        if entries:
            longest = max(map(len, entries))
            wide = (1 if longest > 22 else 2 if longest > 12 else 3) * across
            figure.legend(entries.values(), entries, loc="outside upper left", ncols=wide, fontsize=9.5)
            figure.set_figheight(figure.get_figheight() + _LEGEND * (1 + len(entries) // wide))
        drawn = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(drawn, format="svg", transparent=True, metadata=nothing)
    return _inline(drawn.getvalue(), table, columns, across)


def _columns(table: Table, declared: Declared) -> list[int]:
    """The positions of the columns that are drawn: those declared, under whatever headings they are here."""
    headings = [heading for heading, cell in zip(table.headings, table.lines[0].cells, strict=True) if not cell.is_gain]
    names = [column.label for column in table.experiment.columns]
    names = names if len(names) == len(headings) else headings
    everything = range(len(headings))
    known = [at for at in everything if {names[at], headings[at]} & set(declared.columns)] or list(everything)
    if declared.kind == "curves":  # a mean of datasets has no stream to be drawn along
        known = [at for at in known if all(len(line.cells[at].sources) < 2 for line in table.lines)] or known
    return known


def _drawn(table: Table) -> list[Line]:
    """The rows that are drawn: all but deviations."""
    return [line for line in table.lines if line.row.statistic == "mean"]


def _paper(cell: Cell) -> float | None:
    return cell.elsewhere if cell.paper is None else cell.paper


def _paper_words(table: Table) -> str:
    """What the paper's numbers are called: they are not to be taken for numbers of the same data."""
    return "paper" if table.comparable else "paper, its own data"


def _seen(label: str) -> str:
    """A label that fits, and that matplotlib shows: it hides those that begin with an underscore."""
    short = label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"
    return f"\N{ZERO WIDTH SPACE}{short}" if short.startswith("_") else short


def _bars(panel: "Axes", table: Table, column: int) -> None:
    """One bar per row, its name above it: ours filled, with its spread, the paper's an outline below it."""
    lines, ends = _drawn(table), [0.0]
    for place, line in enumerate(lines):
        cell = line.cells[column]
        paper = _paper(cell)
        panel.text(0, place - 0.34, _seen(line.row.name), va="center", fontsize=9.5, in_layout=False)
        if cell.ours is not None:
            panel.barh(place, cell.ours, 0.24, color=_COLOURS[0], label="ours")
        if cell.spread:
            panel.plot(cell.spread, [place, place], color=_INK, lw=1.3, marker="|", ms=5, label="least and most")
        ends.append(max(cell.ours or 0, *cell.spread or (0,)))
        panel.text(ends[-1], place, f"{_GAP}{cell.ours_text}", va="center", fontsize=9)
        if paper is not None:
            outline: Look = {"fill": False, "edgecolor": _COLOURS[1], "linestyle": "--"}
            panel.barh(place + 0.28, paper, 0.2, label=_paper_words(table), **outline)
            panel.text(paper, place + 0.28, f"{_GAP}{cell.text(paper)}", va="center", fontsize=9)
            ends.append(paper)
    panel.set_yticks([])
    panel.set_ylim(len(lines) - 0.5, -0.5)
    panel.set_xlim(0, 1.18 * max(ends) or 1)  # room for the numbers
    panel.set_axisbelow(True)


def _curves(panel: "Axes", table: Table, column: int) -> None:
    """Accuracy along the stream, mean over the seeds; zero-shot in grey, the paper's last point hollow."""
    has_zero_shot = any(line.row.method == "clip" and line.cells[column].sources for line in _drawn(table))
    for at, line in enumerate(_drawn(table)):
        cell = line.cells[column]
        curves = [record["online"] for record in cell.records if "online" in record]
        if not curves:
            continue
        samples = curves[0]["samples"]
        curves = [curve for curve in curves if curve["samples"] == samples]
        if not has_zero_shot:
            panel.plot(samples, _mean_curve(curves, "zero_shot"), color=_GREY, lw=1.6, label="zero-shot")
            has_zero_shot = True
        look = _look(at) | ({"color": _GREY} if line.row.method == "clip" else {})
        panel.plot(samples, _mean_curve(curves, "accuracy"), lw=1.6, label=_seen(line.row.name), **look)
        if cell.paper is not None:
            hollow: Look = {"marker": "o", "mfc": "none", "mec": look["color"], "ls": "none", "clip_on": False}
            panel.plot([samples[-1]], [cell.paper], label=_paper_words(table), **hollow)


def _lines(panel: "Axes", table: Table, column: int) -> None:
    """One point per row: a solid line for each series of ours, a dashed one with hollow marks for the paper's."""
    series: dict[str, list[tuple[float, Cell]]] = {}
    for line in _drawn(table):
        cell, name, row = line.cells[column], line.row.name, line.row
        if row.x is not None:
            series.setdefault(row.series or row.section or row.method, []).append((row.x, cell))
            continue
        for level, label, dashes in ((cell.ours, name, "-"), (_paper(cell), f"{name}: {_paper_words(table)}", "--")):
            if level is not None:  # to compare with
                panel.axhline(level, color=_GREY, lw=1.3, ls=dashes, label=_seen(label))
    for at, (name, cells) in enumerate(series.items()):
        look = _look(at) | {"ls": "-", "marker": _MARKS[at % len(_MARKS)], "ms": 5, "lw": 1.6}
        for whose, label, own in (
            (attrgetter("ours"), name, look),
            (_paper, f"{name}: {_paper_words(table)}", look | {"ls": "--", "mfc": "none"}),
        ):
            points = sorted((x, y) for x, cell in cells if (y := whose(cell)) is not None)
            if points:
                panel.plot(*zip(*points, strict=True), label=_seen(label), **own)
    if table.experiment.figure and table.experiment.figure.log_x:
        panel.set_xscale("log")
    places = sorted({x for cells in series.values() for x, _ in cells})
    if len(places) <= 8:
        panel.set_xticks(places, [f"{place:g}" for place in places])
        panel.minorticks_off()


def _look(at: int) -> Look:
    """How the line of a number looks: by colour, and by dashes once the colours are used up."""
    return {"color": _COLOURS[at % len(_COLOURS)], "ls": _DASHES[at // len(_COLOURS) % len(_DASHES)]}


def _mean_curve(curves: Sequence[Record], key: str) -> list[float]:
    return [fmean(values) for values in zip(*(curve[key] for curve in curves), strict=True)]


KINDS: dict[str, Callable[["Axes", Table, int], None]] = {"bars": _bars, "curves": _curves, "lines": _lines}
"""What draws a column of a table into a panel, by the kind of figure."""


def _inline(svg: str, table: Table, columns: Sequence[int], across: int) -> str:
    """The drawing without what only a file of its own needs, and with words for those who do not see it."""
    body = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    for needless in (
        r"(?s)\s*<style .*?</style>",  # would hold for the whole page
        r"font-family: [^;]*; ",  # the reader's own
        r'(?<=<g) id="[^"]*"(?=>)',  # the same in every drawing, and nothing refers to them
        r"(?m)[ \t]+$",
    ):
        body = re.sub(needless, "", body)
    name = re.sub(r"[^A-Za-z0-9-]", "-", table.experiment.id) + (f"-{across}" if across > 1 else "")
    box = re.findall(r'viewBox="[^"]*"', body)[0]
    said = []
    for column in columns:
        cells = [(line.row.name, line.cells[column]) for line in _drawn(table)]
        rows = (
            f"{row} {cell.ours_text}"
            + (f" ({_paper_words(table)} {paper})" if (paper := cell.text(_paper(cell))) else "")
            for row, cell in cells
        )
        said.append(f"{table.headings[column]}: {'; '.join(rows)}.")
    return (
        f'<svg {box} xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'role="img" aria-labelledby="{name}-title {name}-desc" '
        'stroke-linejoin="round" font-family="system-ui, sans-serif">\n'
        f'<title id="{name}-title">{escape(table.title)}</title>\n'
        f'<desc id="{name}-desc">{escape(" ".join(said))}</desc>{body[body.index(">") + 1 :]}'
    )


def require_figure(path: Path) -> None:
    """Refuse a figure that could not be drawn, before any work is done for it."""
    if path.suffix not in _NO_DATE:
        raise InvalidParameter(f"--plot {path}: a figure ends in {', '.join(_NO_DATE)}")
    require_matplotlib()


def draw_sweep(path: Path, grid: Grid, swept: Mapping[str, Sequence[Point]]) -> None:
    """Write the figure: a panel for each dataset, zero-shot dashed."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "pta"}):
        figure = Figure(figsize=(_SWEPT_WIDTH * len(swept), _SWEPT_HEIGHT), layout="constrained")
        panels = figure.subplots(1, len(swept), squeeze=False)[0]
        for panel, (dataset, points) in zip(panels, swept.items(), strict=True):
            _draw_panel(panel, grid, points)
            panel.set_title(printable(dataset), parse_math=False)
        panels[0].set_ylabel("accuracy in %")
        panels[-1].legend(fontsize="small")
        write_figure(path, figure)


def write_figure(path: Path, figure: "Figure") -> None:
    """Write a figure as a file, the same for the same drawing."""
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:], dpi=150, metadata=_NO_DATE[path.suffix])
    write_atomically(path, content.getvalue())


def _draw_panel(panel: "Axes", grid: Grid, points: Sequence[Point]) -> None:
    first = next(iter(grid.values))
    values = list(grid.values[first])
    are_numbers = all(isinstance(value, Real) and not isinstance(value, bool) for value in values)
    positions = {as_given(value): float(value) if are_numbers else float(at) for at, value in enumerate(values)}

    def place(point: Point) -> float:
        return positions[as_given(point.setting[first])]

    lines: dict[str, list[Point]] = {}
    for point in sorted(points, key=place):
        others = [f"{name}={as_given(value)}" for name, value in point.setting.items() if name != first]
        lines.setdefault(", ".join(others), []).append(point)
    for label, line in lines.items():
        panel.errorbar(
            list(map(place, line)),
            [point.accuracy for point in line],
            yerr=[point.deviation or 0.0 for point in line],
            marker="o",
            markersize=4,
            capsize=2,
            label=label or grid.method,
        )
    panel.axhline(points[0].zero_shot, linestyle="--", color="0.4", label="zero-shot")
    panel.set_xlabel(f"{grid.method}.{first}")
    if not are_numbers:
        panel.set_xticks(list(positions.values()), [as_given(value) for value in values])
    elif min(values) > 0 and max(values) >= _LOGARITHMIC * min(values):
        panel.set_xscale("log")
