"""The report of a reproduction: one HTML file that needs nothing else, with the origin of every number in it."""

from collections.abc import Mapping, Sequence
from html import escape

from pta.evaluation.html_page import facts, mood, packaged_text, page, tiles
from pta.evaluation.number_text import with_minus
from pta.reproduction.report_origins import metrics_details, origin_details, scrolling
from pta.reproduction.table import NO_DATA, NOT_YET, Table
from pta.reproduction.view import CellView, TableView, view_of, words


def render_report(tables: Sequence[Table], figures: Mapping[str, str], *, made: Mapping[str, str]) -> str:
    """The whole page, which loads nothing: figures are SVG by experiment, `made` is what the report was made with."""
    views = [view_of(table) for table in tables]
    sections = [_section(at, *both, figures) for at, both in enumerate(zip(tables, views, strict=True), 1)]
    last = f"<section>\n<h2>Where this comes from</h2>\n{facts(made)}\n</section>"
    body = "\n".join((_opening(tables, views), *sections, last))
    return page("PTA, reproduced", body, style=packaged_text("reproduction-report.css"))


def _opening(tables: Sequence[Table], views: Sequence[TableView]) -> str:
    cells = [cell for table in tables for line in table.lines for cell in line.cells]
    cells = [cell for cell in cells if cell.ours is not None or cell.missing or cell.printed is not None]
    ours = sum(cell.ours is not None for cell in cells)
    not_yet, no_data = (sum(cell.missing == reason for cell in cells) for reason in (NOT_YET, NO_DATA))
    headline = "The paper, reproduced" if all(table.comparable for table in tables) else "The paper in miniature"
    headline = headline if all(table.experiment.place for table in tables) else "Experiments"
    links = (f'<li><a href="#part-{at}">{escape(view.title)}</a></li>' for at, view in enumerate(views, 1))
    contents = "\n".join(links)
    counts = tiles(
        (f"{ours:,}", f"numbers of ours, of {len(cells):,}"),
        (f"{not_yet:,}", "not yet: method or data are still to come"),
        (f"{no_data:,}", "no data at hand"),
        (f"{len(cells) - ours - not_yet - no_data:,}", "missing for another reason"),
    )
    return f"""<header>
<p class="kicker">Prototype-Based Test-Time Adaptation of Vision-Language Models (ICML 2026)</p>
<h1>{headline}: {ours:,} of {len(cells):,} numbers measured</h1>
<p class="soft">Large is what we measured. Small below it is the paper’s number, and ours minus the paper’s. A star
marks a printed number that cannot be right, or one computed from such. Where the data are not the paper’s, its
numbers are left out of the tables, and only gains over the baseline are compared. Bold is the best of ours in a
column. Below each table is where every number of ours comes from.</p>
{counts}
<nav aria-label="Contents">
<ol class="contents">
{contents}
</ol>
</nav>
</header>"""


def _section(at: int, table: Table, view: TableView, figures: Mapping[str, str]) -> str:
    experiment = table.experiment
    figure = figures.get(experiment.id, "")
    notes = "\n".join(f"<li>{escape(note)}</li>" for note in view.notes)
    headings = [experiment.unit, *view.headings]
    parts = (
        f'<p class="kicker">{escape(experiment.place)}</p>' if experiment.place else "",
        f"<h2>{escape(experiment.title)}</h2>",
        f'<p class="soft">{escape(experiment.note)}</p>' if experiment.note else "",
        facts({name: words(value) for name, value in table.about.items()}) if table.about else "",
        f"<figure>{figure}</figure>" if figure else "",
        scrolling(view.title, headings, _rows(view, experiment.digits)),
        f'<ul class="notes">\n{notes}\n</ul>' if notes else "",
        origin_details(table, view),
        metrics_details(table, view),
    )
    return f'<section id="part-{at}">\n' + "\n".join(filter(None, parts)) + "\n</section>"


def _rows(view: TableView, digits: int) -> str:
    """Ours large, the paper's number and the difference small below it."""
    written = []
    for row in view.rows:
        if row.section is not None:
            rest = f'<td colspan="{len(view.headings)}"></td>'
            written.append(f'<tr class="section"><th scope="rowgroup">{escape(row.section)}</th>{rest}</tr>')
        cells = "".join(f"<td>{_cell(cell, digits)}</td>" for cell in row.cells)
        written.append(f'<tr><th scope="row">{escape(row.row.label)}</th>{cells}</tr>')
    return "\n".join(written)


def _cell(view: CellView, digits: int) -> str:
    ours, difference = with_minus(view.ours), view.cell.difference
    if view.cell.ours is None and view.ours:
        ours = f'<span class="missing">{escape(view.ours)}</span>'
    below = [f"{'paper: ' if view.is_gain else ''}{with_minus(view.paper)}{view.star}"] if view.paper else []
    if view.difference and difference is not None:
        kind = mood(difference, digits) if view.is_accuracy else ""
        below.append(f'<span class="{kind}">{with_minus(view.difference)}</span>')
    small = (f"<small>{text}</small>" for text in (" ".join(below), escape(view.cell.partial)) if text)
    return (f"<b>{ours}</b>" if view.is_best else ours) + "".join(small)
