"""A filled table as CSV in long form: one line a cell, with everything that is known about it."""

import csv
import io
import json
from typing import Any

from pta.reproduction import origins, text
from pta.reproduction.table import Cell, Line, Table

FIELDS = (
    "experiment",
    "place",
    "section",
    "row",
    "method",
    "params",
    "dataset",
    "metric",
    "statistic",
    "ours",
    "paper",
    "printed",
    "difference",
    "erratum",
    "missing",
    "partial",
    "prompts",
    "views",
    "seeds",
    "per_seed",
    "keys",
    "features",
    "version",
    "hardware",
)


def to_csv(table: Table) -> str:
    """One line a cell; numbers in full, nothing where there is nothing.

    `paper` is the number compared with, `printed` the one on paper. `params` is JSON, as is `per_seed`: dataset → seed
    → value. Several keys, fingerprints, versions or machines are parted by semicolons.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, FIELDS, restval="", lineterminator="\n")
    writer.writeheader()
    for line in table.lines:
        for heading, cell in zip(table.headings, line.cells, strict=True):
            writer.writerow(_line(table, line, heading, cell, cell.metric, comparable=table.comparable))
        if line.gain:
            writer.writerow(_line(table, line, text.gain_heading(table), line.gain, "gain", comparable=True))
    return out.getvalue()


def _line(table: Table, line: Line, heading: str, cell: Cell, metric: str, *, comparable: bool) -> dict[str, Any]:
    row = line.row
    return {
        "experiment": table.experiment.id,
        "place": table.experiment.place,
        "section": row.section,
        "row": row.label,
        "method": row.method,
        "params": _params(line, cell),
        "dataset": heading,
        "metric": metric,
        "statistic": row.statistic,
        "ours": cell.ours,
        "missing": cell.missing,
        "partial": cell.partial,
        **(_paper(cell) if comparable else {}),
        **_origin(cell),
    }


def _params(line: Line, cell: Cell) -> str:
    """What was run, if every dataset was run with the same; otherwise what the row declares."""
    found = origins.said(list(origins.records_of(cell)), "params")
    params = found[0] if len(found) == 1 else dict(line.row.params)
    return json.dumps(params, ensure_ascii=False, sort_keys=True) if params else ""


def _paper(cell: Cell) -> dict[str, Any]:
    return {
        "paper": cell.paper,
        "printed": cell.printed,
        "difference": cell.difference,
        "erratum": cell.erratum.why if cell.erratum else "",
    }


def _origin(cell: Cell) -> dict[str, str]:
    records = list(origins.records_of(cell))
    if not records:
        return {}
    per_seed = {source.dataset: origins.by_seed(source.records, cell.metric) for source in cell.sources}
    return {
        "prompts": ";".join(dict.fromkeys(source.prompts for source in cell.sources)),
        "views": ";".join(dict.fromkeys(source.views for source in cell.sources)),
        "seeds": " ".join(str(seed) for seed in origins.said(records, "seed")),
        "per_seed": json.dumps(per_seed, ensure_ascii=False),
        "keys": ";".join(origins.made(records, "key")),
        "features": ";".join(origins.made(records, "features")),
        "version": ";".join(origins.made(records, "version")),
        "hardware": ";".join(one.replace(";", ",") for one in origins.made(records, "on")),
    }
