"""The report of a reproduction: one self-contained HTML file, with the provenance of every number."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from pta.measure.report.page import render
from pta.measure.reproduce.table import NO_DATA, NOTHING, Line, Source, Table, said, words
from pta.measure.texts import number

_SHORT = 12  # digits of a fingerprint, enough to find it by
_DIGITS = {"fixed": 1, "broken": 1, "seconds": 3}  # of what is counted, where it is not what the experiment declares


def render_report(tables: Sequence[Table], figures: Mapping[str, Sequence[str]], *, made: Mapping[str, str]) -> str:
    """The whole page, which loads nothing.

    Figures are SVG by experiment, drawn for a phone and for a desktop; `made` is what the report was made with.
    """
    cells = [cell for table in tables for cell in table.cells]
    headline = "The paper, reproduced" if all(table.comparable for table in tables) else "The paper in miniature"
    return render(
        "reproduction-report.html",
        tables=tables,
        figures=figures,
        made=made,
        headline=headline if all(table.experiment.place for table in tables) else "Experiments",
        ours=sum(cell.ours is not None for cell in cells),
        no_data=sum(cell.missing == NO_DATA for cell in cells),
        all=len(cells),
        longest=partial(max, key=len),
        origins=lambda table: [row for line in table.lines for row in _origins(table, line)],
        counted=lambda table: [row for line in table.lines for row in _counted(line, table.experiment.digits)],
    )


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
