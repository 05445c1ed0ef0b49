"""The report of a reproduction: one HTML file that needs nothing else, with the origin of every number in it."""

from collections.abc import Mapping, Sequence
from html import escape

from pta.evaluation.html_page import facts, packaged_text, page, tiles
from pta.reproduction import text
from pta.reproduction.report_origins import metrics_details, origin_details
from pta.reproduction.report_table import table_html
from pta.reproduction.table import NO_DATA, NOT_YET, Cell, Table


def render_report(tables: Sequence[Table], figures: Mapping[str, str], *, made: Mapping[str, str]) -> str:
    """The whole page; it loads nothing.

    Args:
        tables: what is shown, in this order.
        figures: SVG by the id of the experiment.
        made: what the report was made with, in words, by name.
    """
    sections = "\n".join(_section(at, table, figures) for at, table in enumerate(tables, 1))
    body = "\n".join((_opening(tables), sections, _made(made)))
    return page("PTA, reproduced", body, style=packaged_text("reproduction-report.css"))


def _opening(tables: Sequence[Table]) -> str:
    cells = [cell for table in tables for line in table.lines for cell in line.cells if _counts(cell)]
    ours = sum(cell.ours is not None for cell in cells)
    not_yet, no_data = (sum(cell.missing == reason for cell in cells) for reason in (NOT_YET, NO_DATA))
    others = len(cells) - ours - not_yet - no_data
    contents = "\n".join(
        f'<li><a href="#{_anchor(at)}">{escape(text.title_of(table))}</a></li>' for at, table in enumerate(tables, 1)
    )
    counts = tiles(
        (f"{ours:,}", f"numbers of ours, of {len(cells):,}"),
        (f"{not_yet:,}", "not yet: method or data are still to come"),
        (f"{no_data:,}", "no data at hand"),
        (f"{others:,}", "missing for another reason"),
    )
    return f"""<header>
<p class="kicker">Prototype-Based Test-Time Adaptation of Vision-Language Models (ICML 2026)</p>
<h1>{_headline(tables)}: {ours:,} of {len(cells):,} numbers measured</h1>
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


def _headline(tables: Sequence[Table]) -> str:
    if not all(table.experiment.place for table in tables):
        return "Experiments"
    return "The paper, reproduced" if all(table.comparable for table in tables) else "The paper in miniature"


def _section(at: int, table: Table, figures: Mapping[str, str]) -> str:
    experiment = table.experiment
    figure = figures.get(experiment.id, "")
    notes = "\n".join(f"<li>{escape(note)}</li>" for note in text.footnotes(table))
    parts = (
        f'<p class="kicker">{escape(experiment.place)}</p>' if experiment.place else "",
        f"<h2>{escape(experiment.title)}</h2>",
        f'<p class="soft">{escape(experiment.note)}</p>' if experiment.note else "",
        facts({name: text.words(value) for name, value in table.about.items()}) if table.about else "",
        f"<figure>{figure}</figure>" if figure else "",
        table_html(table),
        f'<ul class="notes">\n{notes}\n</ul>' if notes else "",
        origin_details(table),
        metrics_details(table),
    )
    return f'<section id="{_anchor(at)}">\n' + "\n".join(part for part in parts if part) + "\n</section>"


def _made(made: Mapping[str, str]) -> str:
    return f"<section>\n<h2>Where this comes from</h2>\n{facts(made)}\n</section>"


def _anchor(at: int) -> str:
    return f"part-{at}"


def _counts(cell: Cell) -> bool:
    """Whether there is a number, or should be one."""
    return cell.ours is not None or bool(cell.missing) or cell.printed is not None
