"""The report of a reproduction: one self-contained HTML file, with the provenance of every number."""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from pta.measure.report.page import facts, fill, mood, page, tiles
from pta.measure.reproduce.table import NO_DATA, NOTHING, Cell, Line, Source, Table, said, words
from pta.measure.texts import number, with_minus

_SHORT = 12  # digits of a fingerprint, enough to find it by
_DIGITS = {"fixed": 1, "broken": 1, "seconds": 3}  # of what is counted, where it is not what the experiment declares


def render_report(tables: Sequence[Table], figures: Mapping[str, Sequence[str]], *, made: Mapping[str, str]) -> str:
    """The whole page, which loads nothing.

    Figures are SVG by experiment, drawn for a phone and for a desktop; `made` is what the report was made with.
    """
    cells = [cell for table in tables for cell in table.cells]
    ours = sum(cell.ours is not None for cell in cells)
    no_data = sum(cell.missing == NO_DATA for cell in cells)
    headline = "The paper, reproduced" if all(table.comparable for table in tables) else "The paper in miniature"
    links = (f'<li><a href="#part-{at}">{escape(table.title)}</a></li>' for at, table in enumerate(tables, 1))
    sections = (_section(at, table, figures.get(table.experiment.id, ())) for at, table in enumerate(tables, 1))
    body = fill(
        "reproduction-report.html",
        headline=headline if all(table.experiment.place for table in tables) else "Experiments",
        measured=f"{ours:,}",
        all=f"{len(cells):,}",
        counts=tiles(
            (f"{ours:,}", f"of {len(cells):,} numbers measured"),
            (f"{no_data:,}", "missing data"),
            (f"{len(cells) - ours - no_data:,}", "missing for another reason"),
        ),
        contents="\n".join(links),
        sections="\n".join(sections),
        origin=facts(made),
    )
    return page("PTA, reproduced", body.rstrip(), kind="tables")


def _section(at: int, table: Table, figures: Sequence[str]) -> str:
    experiment = table.experiment
    notes = "\n".join(f"<li>{escape(note)}</li>" for note in table.remarks)
    parts = (
        f'<p class="kicker">{escape(experiment.place)}</p>' if experiment.place else "",
        f"<h2>{escape(experiment.title)}</h2>",
        f'<p class="soft">{escape(experiment.note)}</p>' if experiment.note else "",
        facts({name: words(value) for name, value in table.about.items()}) if table.about else "",
        f"<figure>{''.join(figures)}</figure>" if figures else "",
        _scrolling(table.title, [experiment.unit, *table.headings], _rows(table)),
        f'<ul class="notes">\n{notes}\n</ul>' if notes else "",
        _details("Where these numbers come from", [one for line in table.lines for one in _origins(table, line)]),
        _details(
            "Worst class, calibration, changes against zero-shot, time and state",
            [one for line in table.lines for one in _counted(line, experiment.digits)],
        ),
    )
    return f'<section id="part-{at}">\n' + "\n".join(filter(None, parts)) + "\n</section>"


def _rows(table: Table) -> str:
    """Ours large, the paper's number and the difference small below it."""
    written = []
    for section, line in table.sections:
        if section is not None:
            rest = f'<td colspan="{len(table.headings)}"></td>'
            written.append(f'<tr class="section"><th scope="rowgroup">{_name(section)}</th>{rest}</tr>')
        cells = "".join(f"<td>{_cell(cell, is_accuracy=line.is_accuracy(cell))}</td>" for cell in line.cells)
        written.append(f'<tr><th scope="row">{_name(line.row.label)}</th>{cells}</tr>')
    return "\n".join(written)


def _cell(cell: Cell, *, is_accuracy: bool) -> str:
    ours, difference = with_minus(cell.ours_text), cell.difference_text
    if cell.ours is None and ours:
        ours = f'<span class="missing">{escape(cell.ours_text)}</span>'
    below = [starred] if (starred := cell.starred(with_minus(cell.paper_text), "paper: ")) else []
    if difference:
        kind = mood(float(difference), cell.digits) if is_accuracy else ""
        below.append(f'<span class="{kind}">{with_minus(difference)}</span>')
    small = (f"<small>{text}</small>" for text in (" ".join(below), escape(cell.remark)) if text)
    return (f"<b>{ours}</b>" if cell.is_best else ours) + "".join(small)


def _name(text: str) -> str:
    """A heading, which may be broken between the parts of a file's name, but not inside a word."""
    return re.sub(r"(?<=[_/])(?=\w)", "<wbr>", escape(text))


def _scrolling(name: str, headings: Sequence[str], rows: str) -> str:
    """A table that a reader can scroll by finger and by keyboard, without the page getting wider."""
    head = "".join(f'<th scope="col">{_name(heading)}</th>' for heading in headings)
    return f"""<div class="scroll" role="region" aria-label="{escape(name)}" tabindex="0">
<table>
<thead><tr>{head}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>"""


def _details(summary: str, rows: Sequence[Mapping[str, str]]) -> str:
    """Rows of named texts, folded; the last text of a row that has fewer than others spans the rest."""
    if not rows:
        return ""
    headings = max(map(list, rows), key=len)
    written = []
    for row in rows:
        name, *texts = row.values()
        rest = f' colspan="{len(headings) - len(row) + 1}"' if len(row) < len(headings) else ""
        cells = [f"<td>{escape(text)}</td>" for text in texts[:-1]] + [f"<td{rest}>{escape(texts[-1])}</td>"]
        written.append(f'<tr><th scope="row">{_name(name)}</th>{"".join(cells)}</tr>')
    inside = _scrolling(summary, headings, "\n".join(written))
    return f"<details><summary>{summary}</summary>\n{inside}\n</details>"


def _origins(table: Table, line: Line) -> Iterator[dict[str, str]]:
    """All that each number of ours was made from, by dataset; what is listed already is named and not repeated."""
    listed: list[tuple[str, Source]] = []
    for heading, cell in zip(table.headings, line.cells, strict=True):
        place = {"row": line.row.name, "column": heading}
        if cell.ours is None:
            continue
        if cell.is_gain:
            baseline = table.experiment.baseline_of(line.row)
            yield place | {"": f"this row’s numbers less those of {baseline.name if baseline else 'the baseline'}"}
            continue
        new = [source for source in cell.sources if (cell.metric, source) not in listed]
        listed += [(cell.metric, source) for source in new]
        yield from (place | _facts(source, cell.metric) for source in new)
        if len(new) < len(cell.sources) or len(cell.sources) > 1:
            yield place | {"": f"mean of {', '.join(dict.fromkeys(source.dataset for source in cell.sources))}"}
        elif not cell.sources:
            yield place | {"": "no records"}


def _facts(source: Source, metric: str) -> dict[str, str]:
    def all_said(key: str, letters: int | None = None) -> str:
        return "; ".join(words(one)[:letters] for one in said(source.records, key))

    def exact(value: float | None) -> str:
        return NOTHING if value is None else f"{value:.4g}" if abs(value) < 1 else f"{value:.3f}"

    return {
        "dataset": source.dataset,
        "method": all_said("method"),
        "parameters": all_said("params"),
        "prompts": source.prompts,
        "views": source.views,
        "stream": all_said("stream"),
        "seed: value": ", ".join(f"{seed}: {exact(value)}" for seed, value in source.by_seed(metric).items()),
        "samples": all_said("n"),
        "features": all_said("features", _SHORT),
        "version": all_said("version"),
        "hardware": all_said("on"),
        "made": all_said("at"),
        "result": all_said("key", _SHORT),
    }


def _counted(line: Line, digits: int) -> Iterator[dict[str, str]]:
    """What else was counted wherever accuracy was measured, means over seeds, each dataset once."""
    sources = {source.dataset: source for cell in line.cells if line.is_accuracy(cell) for source in cell.sources}
    for source in sources.values():
        shown = {"row": line.row.name, "dataset": source.dataset}
        for metric in ("accuracy", "worst_class", "calibration_error", "raw_calibration_error", *_DIGITS):
            mean = source.mean(metric)
            written = NOTHING if mean is None else number(mean, _DIGITS.get(metric, digits))
            shown[metric.replace("_", " ")] = written
        worst = {record["worst_class"]["name"] for record in source.records if "worst_class" in record}
        shown["worst class"] += f" ({worst.pop()})" if len(worst) == 1 else ""
        size = source.mean("state_bytes")
        yield shown | {"state": NOTHING if size is None else f"{size:,.0f} bytes"}
