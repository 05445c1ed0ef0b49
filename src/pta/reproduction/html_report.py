"""The report of a reproduction: one HTML file that needs nothing else, with the origin of every number in it."""

from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources

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
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>PTA, reproduced</title>
<style>
{(resources.files("pta") / "data" / "reproduction-report.css").read_text(encoding="utf-8")}</style>
</head>
<body>
<main>
{_opening(tables)}
{sections}
{_made(made)}
</main>
</body>
</html>
"""


def _opening(tables: Sequence[Table]) -> str:
    cells = [cell for table in tables for line in table.lines for cell in line.cells if _counts(cell)]
    ours = sum(cell.ours is not None for cell in cells)
    not_yet, no_data = (sum(cell.missing == reason for cell in cells) for reason in (NOT_YET, NO_DATA))
    others = len(cells) - ours - not_yet - no_data
    contents = "\n".join(
        f'<li><a href="#{_anchor(at)}">{escape(text.title_of(table))}</a></li>' for at, table in enumerate(tables, 1)
    )
    return f"""<header>
<p class="kicker">Prototype-Based Test-Time Adaptation of Vision-Language Models (ICML 2026)</p>
<h1>{_headline(tables)}: {ours:,} of {len(cells):,} numbers measured</h1>
<p class="soft">Large is what we measured. Small below it is the paper’s number, and ours minus the paper’s. A star
marks a printed number that cannot be right, or one computed from such. Where the data are not the paper’s, its
numbers are left out of the tables, and only gains over the baseline are compared. Bold is the best of ours in a
column. Below each table is where every number of ours comes from.</p>
<div class="tiles">
<div><b>{ours:,}</b><span>numbers of ours, of {len(cells):,}</span></div>
<div><b>{not_yet:,}</b><span>not yet: method or data are still to come</span></div>
<div><b>{no_data:,}</b><span>no data at hand</span></div>
<div><b>{others:,}</b><span>missing for another reason</span></div>
</div>
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
    facts = "\n".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text.words(value))}</dd>" for name, value in table.about.items()
    )
    notes = "\n".join(f"<li>{escape(note)}</li>" for note in text.footnotes(table))
    parts = (
        f'<p class="kicker">{escape(experiment.place)}</p>' if experiment.place else "",
        f"<h2>{escape(experiment.title)}</h2>",
        f'<p class="soft">{escape(experiment.note)}</p>' if experiment.note else "",
        f"<dl>\n{facts}\n</dl>" if facts else "",
        f"<figure>{figure}</figure>" if figure else "",
        table_html(table),
        f'<ul class="notes">\n{notes}\n</ul>' if notes else "",
        origin_details(table),
        metrics_details(table),
    )
    return f'<section id="{_anchor(at)}">\n' + "\n".join(part for part in parts if part) + "\n</section>"


def _made(made: Mapping[str, str]) -> str:
    facts = "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in made.items())
    return f"<section>\n<h2>Where this comes from</h2>\n<dl>\n{facts}\n</dl>\n</section>"


def _anchor(at: int) -> str:
    return f"part-{at}"


def _counts(cell: Cell) -> bool:
    """Whether there is a number, or should be one."""
    return cell.ours is not None or bool(cell.missing) or cell.printed is not None
