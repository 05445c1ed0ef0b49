"""The report of a reproduction: one HTML file that needs nothing else, with the origin of every number in it."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from statistics import fmean
from typing import Any

from pta.evaluation.html_page import facts, fill, mood, packaged_text, page, tiles
from pta.evaluation.number_text import number, with_minus
from pta.reproduction.origins import by_seed, made, mean_of, said
from pta.reproduction.table import NO_DATA, NOT_YET, Source, Table
from pta.reproduction.view import NOTHING, CellView, RowView, TableView, view_of, words

_SHORT = 12  # digits of a fingerprint, enough to find it by
_ORIGIN = (
    "row|column|dataset|method|parameters|prompts|views|stream|"
    "seed: value|samples|features|version|hardware|made|result"
)
_METRICS = "row|dataset|accuracy|worst class|calibration error|raw|fixed|broken|seconds|state"
_PARAMETERS = 2  # their place among the facts; they are long, and may break


def render_report(tables: Sequence[Table], figures: Mapping[str, str], *, made: Mapping[str, str]) -> str:
    """The whole page, which loads nothing: figures are SVG by experiment, `made` is what the report was made with."""
    views = [view_of(table) for table in tables]
    cells = [cell for table in tables for line in table.lines for cell in line.cells]
    cells = [cell for cell in cells if cell.ours is not None or cell.missing or cell.printed is not None]
    ours = sum(cell.ours is not None for cell in cells)
    not_yet, no_data = (sum(cell.missing == reason for cell in cells) for reason in (NOT_YET, NO_DATA))
    headline = "The paper, reproduced" if all(table.comparable for table in tables) else "The paper in miniature"
    links = (f'<li><a href="#part-{at}">{escape(view.title)}</a></li>' for at, view in enumerate(views, 1))
    sections = (_section(at, *both, figures) for at, both in enumerate(zip(tables, views, strict=True), 1))
    body = fill(
        "reproduction-report.html",
        headline=headline if all(table.experiment.place for table in tables) else "Experiments",
        measured=f"{ours:,}",
        all=f"{len(cells):,}",
        counts=tiles(
            (f"{ours:,}", f"numbers of ours, of {len(cells):,}"),
            (f"{not_yet:,}", "not yet: method or data are still to come"),
            (f"{no_data:,}", "no data at hand"),
            (f"{len(cells) - ours - not_yet - no_data:,}", "missing for another reason"),
        ),
        contents="\n".join(links),
        sections="\n".join(sections),
        origin=facts(made),
    )
    return page("PTA, reproduced", body.rstrip(), style=packaged_text("reproduction-report.css"))


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
        _scrolling(view.title, headings, _rows(view, experiment.digits)),
        f'<ul class="notes">\n{notes}\n</ul>' if notes else "",
        _origin_details(table, view),
        _metrics_details(table, view),
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


def _scrolling(name: str, headings: Sequence[str], rows: str) -> str:
    """A table that a reader can scroll by finger and by keyboard, without the page getting wider."""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    return f"""<div class="scroll" role="region" aria-label="{escape(name)}" tabindex="0">
<table>
<thead><tr>{head}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>"""


def _origin_details(table: Table, view: TableView) -> str:
    """For every number of ours, all that it was made from."""
    rows = [_origin_row(row, *origin) for row in view.rows for origin in _origins(table, row)]
    return _details("Where these numbers come from", _ORIGIN, rows)


def _metrics_details(table: Table, view: TableView) -> str:
    """What else was counted wherever accuracy was measured, means over seeds, each row and dataset once."""
    rows = []
    for row in view.rows:
        counted = {source.dataset: source for one in row.cells if one.is_accuracy for source in one.cell.sources}
        rows += [_metrics_row(row, source, table.experiment.digits) for source in counted.values()]
    return _details("Worst class, calibration, changes against zero-shot, time and state", _METRICS, rows)


def _details(summary: str, headings: str, rows: Sequence[str]) -> str:
    inside = _scrolling(summary, headings.split("|"), "\n".join(rows))
    return f"<details><summary>{summary}</summary>\n{inside}\n</details>" if rows else ""


def _origins(table: Table, row: RowView) -> Iterator[tuple[str, list[str]]]:
    """Heading and facts for each dataset's share in each number; what is listed already is named and not repeated."""
    listed: list[tuple[str, Source]] = []
    for view in row.cells:
        cell = view.cell
        if cell.ours is None:
            continue
        if view.is_gain:
            baseline = table.experiment.baseline_of(row.row)
            yield view.heading, [f"this row’s numbers less those of {baseline.name if baseline else 'the baseline'}"]
            continue
        new = [source for source in cell.sources if (cell.metric, source) not in listed]
        listed += [(cell.metric, source) for source in new]
        for source in new:
            yield view.heading, _facts(source, cell.metric)
        if len(new) < len(cell.sources) or len(cell.sources) > 1:
            yield view.heading, [f"mean of {', '.join(dict.fromkeys(source.dataset for source in cell.sources))}"]
        elif not cell.sources:
            yield view.heading, ["no records"]


def _facts(source: Source, metric: str) -> list[str]:
    records = source.records
    values = ", ".join(
        f"{seed}: {NOTHING if value is None else f'{value:.4g}' if abs(value) < 1 else f'{value:.3f}'}"
        for seed, value in by_seed(records, metric).items()
    )
    return [
        source.dataset,
        _all(said(records, "method")),
        _all(said(records, "params")),
        source.prompts,
        source.views,
        _all(said(records, "stream")),
        values,
        _all(said(records, "n")),
        _all(one[:_SHORT] for one in made(records, "features")),
        _all(made(records, "version")),
        _all(made(records, "on")),
        _all(made(records, "at")),
        _all(one[:_SHORT] for one in made(records, "key")),
    ]


def _all(values: Any) -> str:
    return "; ".join(map(words, values))


def _origin_row(row: RowView, heading: str, facts: Sequence[str]) -> str:
    span = f' colspan="{_ORIGIN.count("|") - 1}"' if len(facts) == 1 else ""
    cells = "".join(
        f'<td class="{"wide" if at == _PARAMETERS else ""}"{span}>{escape(fact)}</td>' for at, fact in enumerate(facts)
    )
    return f'<tr><th scope="row">{escape(row.row.name)}</th><td>{escape(heading)}</td>{cells}</tr>'


def _metrics_row(row: RowView, source: Source, digits: int) -> str:
    metrics = {"accuracy": digits, "worst_class": digits, "calibration_error": digits}
    metrics |= {"raw_calibration_error": digits, "fixed": 1, "broken": 1, "seconds": 3}
    means = {metric: mean_of(source.records, metric) for metric in metrics}
    shown = {name: NOTHING if mean is None else number(mean, metrics[name]) for name, mean in means.items()}
    worst = {record["worst_class"]["name"] for record in source.records if "worst_class" in record}
    shown["worst_class"] += f" ({worst.pop()})" if len(worst) == 1 else ""
    sizes = [record["state_bytes"] for record in source.records if "state_bytes" in record]
    shown["state"] = f"{fmean(sizes):,.0f} bytes" if sizes else NOTHING
    numbers = "".join(f'<td class="number">{escape(one)}</td>' for one in shown.values())
    return f'<tr><th scope="row">{escape(row.row.name)}</th><td>{escape(source.dataset)}</td>{numbers}</tr>'
