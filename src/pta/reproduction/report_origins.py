"""Where the numbers of a table come from, and what else was counted, as HTML below it."""

from collections.abc import Iterator, Sequence
from html import escape
from statistics import fmean
from typing import Any

from pta.evaluation.number_text import number
from pta.evaluation.record import Record
from pta.reproduction import origins, text
from pta.reproduction.report_table import scrolling
from pta.reproduction.table import Cell, Line, Source, Table

_SHORT = 12  # digits of a fingerprint, enough to find it by
_ORIGIN = (
    "row|column|dataset|method|parameters|prompts|views|stream|"
    "seed: value|samples|features|version|hardware|made|result"
)
_METRICS = "row|dataset|accuracy|worst class|calibration error|fixed|broken|seconds|state"
_PARAMETERS = 2  # their place among the facts; they are long, and may break


def origin_details(table: Table) -> str:
    """For every number of ours, all that it was made from."""
    rows = "\n".join(row for line in table.lines for row in _origins(table, line))
    return _details("Where these numbers come from", _ORIGIN, rows)


def metrics_details(table: Table) -> str:
    """What else was counted wherever accuracy was measured, means over seeds, each row and dataset once."""
    rows = []
    for line in table.lines:
        measured = [source for cell in line.cells if text.is_accuracy(line.row, cell) for source in cell.sources]
        rows += [_metrics(table, line, source) for source in {one.dataset: one for one in measured}.values()]
    return _details("Worst class, calibration, changes against zero-shot, time and state", _METRICS, "\n".join(rows))


def _details(summary: str, headings: str, rows: str) -> str:
    if not rows:
        return ""
    return f"<details><summary>{summary}</summary>\n{scrolling(summary, headings.split('|'), rows)}\n</details>"


def _origins(table: Table, line: Line) -> Iterator[str]:
    """A line for each dataset's share in each number; what is listed already is named and not repeated."""
    listed: list[tuple[str, Source]] = []
    for heading, cell in zip(table.headings, line.cells, strict=True):
        if cell.ours is None:
            continue
        new = [source for source in cell.sources if (cell.metric, source) not in listed]
        listed += [(cell.metric, source) for source in new]
        for source in new:
            yield _row(line, heading, _facts(source, cell.metric))
        if len(new) < len(cell.sources) or len(cell.sources) > 1:
            yield _row(line, heading, [_mean_of(cell)])
        elif not cell.sources:
            yield _row(line, heading, ["no records"])
    if line.gain and line.gain.ours is not None:
        baseline = table.experiment.baseline_of(line.row)
        less = baseline.name if baseline else "the baseline"
        yield _row(line, text.gain_heading(table), [f"this row’s numbers less those of {less}"])


def _mean_of(cell: Cell) -> str:
    return f"mean of {', '.join(dict.fromkeys(source.dataset for source in cell.sources))}"


def _facts(source: Source, metric: str) -> list[str]:
    records = source.records
    values = ", ".join(
        f"{seed}: {text.NOTHING if value is None else f'{value:.4g}' if abs(value) < 1 else f'{value:.3f}'}"
        for seed, value in origins.by_seed(records, metric).items()
    )
    return [
        source.dataset,
        _all(origins.said(records, "method")),
        _all(origins.said(records, "params")),
        source.prompts,
        source.views,
        _all(origins.said(records, "stream")),
        values,
        _all(origins.said(records, "n")),
        _all(one[:_SHORT] for one in origins.made(records, "features")),
        _all(origins.made(records, "version")),
        _all(origins.made(records, "on")),
        _all(origins.made(records, "at")),
        _all(one[:_SHORT] for one in origins.made(records, "key")),
    ]


def _all(values: Any) -> str:
    return "; ".join(map(text.words, values))


def _metrics(table: Table, line: Line, source: Source) -> str:
    records = source.records
    worst = origins.mean_of(records, "worst_class")
    names = {record["worst_class"]["name"] for record in records if "worst_class" in record}
    name = f" ({names.pop()})" if len(names) == 1 else ""
    digits = table.experiment.digits
    shown = [
        _number(origins.mean_of(records, "accuracy"), digits),
        _number(worst, digits) + name,
        _number(origins.mean_of(records, "calibration_error"), digits),
        _number(origins.mean_of(records, "fixed"), 1),
        _number(origins.mean_of(records, "broken"), 1),
        _number(origins.mean_of(records, "seconds"), 3),
        _state(records),
    ]
    numbers = "".join(f'<td class="number">{escape(one)}</td>' for one in shown)
    return f'<tr><th scope="row">{escape(line.row.name)}</th><td>{escape(source.dataset)}</td>{numbers}</tr>'


def _number(value: float | None, digits: int) -> str:
    return text.NOTHING if value is None else number(value, digits)


def _state(records: Sequence[Record]) -> str:
    sizes = [record["state_bytes"] for record in records if "state_bytes" in record]
    return f"{fmean(sizes):,.0f} bytes" if sizes else text.NOTHING


def _row(line: Line, heading: str, facts: list[str]) -> str:
    span = f' colspan="{len(_ORIGIN.split("|")) - 2}"' if len(facts) == 1 else ""
    cells = "".join(
        f'<td class="{"wide" if at == _PARAMETERS else ""}"{span}>{escape(fact)}</td>' for at, fact in enumerate(facts)
    )
    return f'<tr><th scope="row">{escape(line.row.name)}</th><td>{escape(heading)}</td>{cells}</tr>'
