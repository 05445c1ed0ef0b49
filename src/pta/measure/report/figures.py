"""A filled table as a drawing: inline SVG, the same for the same numbers, on light ground and on dark."""

import io
import re
from collections.abc import Callable, Sequence
from html import escape
from operator import attrgetter
from statistics import fmean
from typing import TYPE_CHECKING, Any

from pta.errors import MissingPackage, how_to_install
from pta.measure.record import Record
from pta.measure.reproduce.declaration import Figure as Declared
from pta.measure.reproduce.table import NOTHING, Cell, Line, Table

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
    declared = _declared(table)
    require_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    columns = _columns(table, declared)
    height = _EDGE + _BAR * len(_drawn(table)) if declared.kind == "bars" else _PANEL
    beside = min(across, len(columns))
    below = -(-len(columns) // beside)
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": f"{table.experiment.id}{across if across > 1 else ''}"}):
        figure = Figure(figsize=(_WIDTH * across, height * below), layout="constrained")
        panels = list(figure.subplots(below, beside, squeeze=False).flat)
        for panel, column in zip(panels, columns, strict=False):
            panel.set_title(_seen(table.headings[column]), loc="left")
            KINDS[declared.kind](panel, table, column)
        for panel in panels[len(columns) :]:
            panel.remove()
        _explain(figure, panels[: len(columns)], across)
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
    panel.set_xlabel(_declared(table).y)
    panel.grid(axis="x")
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
    _name_axes(panel, table, column)


def _lines(panel: "Axes", table: Table, column: int) -> None:
    """One point per row: a solid line for each series of ours, a dashed one with hollow marks for the paper's."""
    series: dict[str, list[Line]] = {}
    for line in _drawn(table):
        if line.row.x is not None:
            series.setdefault(line.row.series or line.row.section or line.row.method, []).append(line)
    for at, (name, lines) in enumerate(series.items()):
        look = _look(at) | {"ls": "-", "marker": _MARKS[at % len(_MARKS)], "ms": 5, "lw": 1.6}
        for whose, label, own in (
            (attrgetter("ours"), name, look),
            (_paper, f"{name}: {_paper_words(table)}", look | {"ls": "--", "mfc": "none"}),
        ):
            found = [(line.row.x, whose(line.cells[column])) for line in lines]
            points = sorted(((x, y) for x, y in found if x is not None and y is not None), key=lambda point: point[0])
            if points:
                panel.plot(*zip(*points, strict=True), label=_seen(label), **own)
    for line in (line for line in _drawn(table) if line.row.x is None):  # levels to compare with
        cell, name = line.cells[column], line.row.name
        for level, label, dashes in ((cell.ours, name, "-"), (_paper(cell), f"{name}: {_paper_words(table)}", "--")):
            if level is not None:
                panel.axhline(level, color=_GREY, lw=1.3, ls=dashes, label=_seen(label))
    if _declared(table).log_x:
        panel.set_xscale("log")
    places = sorted({line.row.x for lines in series.values() for line in lines if line.row.x is not None})
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
        reasons = dict.fromkeys(line.cells[column].missing or NOTHING for line in _drawn(table))
        panel.text(0.5, 0.5, ", ".join(reasons), ha="center", va="center", transform=panel.transAxes)


def _declared(table: Table) -> Declared:
    assert table.experiment.figure is not None
    return table.experiment.figure


def _look(at: int) -> Look:
    """How the line of a number looks: by colour, and by dashes once the colours are used up."""
    return {"color": _COLOURS[at % len(_COLOURS)], "ls": _DASHES[at // len(_COLOURS) % len(_DASHES)]}


def _mean_curve(curves: Sequence[Record], key: str) -> list[float]:
    return [fmean(values) for values in zip(*(curve[key] for curve in curves), strict=True)]


KINDS: dict[str, Callable[["Axes", Table, int], None]] = {"bars": _bars, "curves": _curves, "lines": _lines}
"""What draws a column of a table into a panel, by the kind of figure."""


def _explain(figure: "Figure", panels: Sequence["Axes"], across: int) -> None:
    """One legend for all panels, above them."""
    entries: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        longest = max(map(len, entries))
        beside = (1 if longest > 22 else 2 if longest > 12 else 3) * across
        figure.legend(list(entries.values()), list(entries), loc="outside upper left", ncols=beside, fontsize=9.5)
        figure.set_figheight(figure.get_figheight() + _LEGEND * (1 + len(entries) // beside))


def _inline(svg: str, table: Table, columns: Sequence[int], across: int) -> str:
    """The drawing without what only a file of its own needs, and with words for those who do not see it."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"\s*<style .*?</style>", "", body, flags=re.DOTALL)  # would hold for the whole page
    body = re.sub(r"font-family: [^;]*; ", "", body)  # the reader's own
    body = re.sub(r'<g id="[^"]*">', "<g>", body)  # the same in every drawing, and nothing refers to them
    body = re.sub(r"[ \t]+$", "", body, flags=re.MULTILINE).replace(_INK, "currentColor")
    name = re.sub(r"[^A-Za-z0-9-]", "-", table.experiment.id) + (f"-{across}" if across > 1 else "")
    box = re.search(r'viewBox="[^"]*"', body)
    assert box is not None
    namespaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    spoken = f'role="img" aria-labelledby="{name}-title {name}-desc"'
    usual = 'stroke-linejoin="round" font-family="system-ui, sans-serif"'
    words = (
        f'<title id="{name}-title">{escape(table.title)}</title>\n'
        f'<desc id="{name}-desc">{escape(_words(table, columns))}</desc>'
    )
    return f"<svg {box[0]} {namespaces} {spoken} {usual}>\n{words}{body[body.index('>') + 1 :]}"


def _words(table: Table, columns: Sequence[int]) -> str:
    """The numbers of the drawing."""
    said = []
    for column in columns:
        rows = []
        for line in _drawn(table):
            cell = line.cells[column]
            paper = cell.text(_paper(cell))
            rows.append(f"{line.row.name} {cell.ours_text}" + (f" ({_paper_words(table)} {paper})" if paper else ""))
        said.append(f"{table.headings[column]}: {'; '.join(rows)}.")
    return " ".join(said)
