"""A filled table as a drawing: inline SVG, the same for the same numbers, on light ground and on dark."""

import io
import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from pta.errors import InvalidParameter
from pta.evaluation.drawing import require_matplotlib
from pta.evaluation.number_text import number
from pta.reproduction.declaration import Figure as Declared
from pta.reproduction.panels import GREY, KINDS, drawn_lines, paper_words, seen
from pta.reproduction.table import Table
from pta.reproduction.view import digits_of, ours_text, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK = "#123456"  # stands for the reader's own text colour until the drawing is written
_WIDTH = 5.0  # inches: at a phone's width, letters are then hardly smaller than around the drawing
_PANEL, _BAR, _EDGE = 2.3, 0.56, 0.7  # inches of height: a panel of lines, a row of bars, what is around them
_LEGEND = 0.2  # inches, a line of it
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 10.5,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
}


def draw(table: Table) -> str:
    """The figure that the experiment declares, a panel below the other.

    Ours is solid, the paper's dashed or hollow.
    """
    declared = table.experiment.figure
    if declared is None:
        raise InvalidParameter(f"experiment {table.experiment.id} declares no figure; give it a [figure] to draw one")
    require_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    columns = _columns(table, declared)
    height = _EDGE + _BAR * len(drawn_lines(table)) if declared.kind == "bars" else _PANEL
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": table.experiment.id}):
        figure = Figure(figsize=(_WIDTH, height * len(columns)), layout="constrained")
        panels = list(figure.subplots(len(columns), 1, squeeze=False)[:, 0])
        for panel, column in zip(panels, columns, strict=True):
            panel.set_title(seen(table.headings[column]), loc="left")
            KINDS[declared.kind](panel, table, column)
        _explain(figure, panels)
        drawn = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(drawn, format="svg", transparent=True, metadata=nothing)
    return _inline(drawn.getvalue(), table, columns)


def _columns(table: Table, declared: Declared) -> list[int]:
    """The positions of the columns that are drawn: those declared, under whatever headings they are here."""
    names = [column.label for column in table.experiment.columns]
    names = names if len(names) == len(table.headings) else list(table.headings)
    known = [
        at
        for at, both in enumerate(zip(names, table.headings, strict=True))
        if not declared.columns or set(both) & set(declared.columns)
    ]
    known = known or list(range(len(table.headings)))
    if declared.kind == "curves":  # a mean of datasets has no stream to be drawn along
        known = [at for at in known if all(len(line.cells[at].sources) < 2 for line in table.lines)] or known
    return known


def _explain(figure: "Figure", panels: Sequence["Axes"]) -> None:
    """One legend for all panels, above them."""
    entries: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        longest = max(map(len, entries))
        across = 1 if longest > 22 else 2 if longest > 12 else 3
        figure.legend(list(entries.values()), list(entries), loc="outside upper left", ncols=across, fontsize=9.5)
        figure.set_figheight(figure.get_figheight() + _LEGEND * (1 + len(entries) // across))


def _inline(svg: str, table: Table, columns: Sequence[int]) -> str:
    """The drawing without what only a file of its own needs, and with words for those who do not see it."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"\s*<style .*?</style>", "", body, flags=re.DOTALL)  # would hold for the whole page
    body = re.sub(r"font-family: [^;]*; ", "", body)  # the reader's own
    body = re.sub(r'<g id="[^"]*">', "<g>", body)  # the same in every drawing, and nothing refers to them
    body = re.sub(r"[ \t]+$", "", body, flags=re.MULTILINE).replace(_INK, "currentColor")
    name = re.sub(r"[^A-Za-z0-9-]", "-", table.experiment.id)
    box = re.search(r'viewBox="[^"]*"', body)
    assert box is not None
    namespaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    spoken = f'role="img" aria-labelledby="{name}-title {name}-desc"'
    usual = 'stroke-linejoin="round" font-family="system-ui, sans-serif"'
    words = (
        f'<title id="{name}-title">{escape(title_of(table))}</title>\n'
        f'<desc id="{name}-desc">{escape(_words(table, columns))}</desc>'
    )
    return f"<svg {box[0]} {namespaces} {spoken} {usual}>\n{words}{body[body.index('>') + 1 :]}"


def _words(table: Table, columns: Sequence[int]) -> str:
    """The numbers of the drawing."""
    said = []
    for column in columns:
        rows = []
        for line in drawn_lines(table):
            cell = line.cells[column]
            paper = "" if cell.paper is None else number(cell.paper, digits_of(table, cell))
            beside = f" ({paper_words(table)} {paper})" if paper else ""
            rows.append(f"{line.row.name} {ours_text(table, cell)}{beside}")
        said.append(f"{table.headings[column]}: {'; '.join(rows)}.")
    return " ".join(said)
