"""A filled table for programs: CSV in long form and JSON, one entry per cell with everything that is known about it."""

import csv
import io
import json
from typing import Any

from pta.reproduction import origins
from pta.reproduction.declaration import Row
from pta.reproduction.table import Table
from pta.reproduction.view import CellView, view_of

FIELDS = (
    *("experiment", "place", "section", "row", "method", "params", "dataset", "metric", "statistic"),
    *("ours", "paper", "printed", "difference", "erratum", "missing", "partial"),
    *("prompts", "views", "seeds", "per_seed", "keys", "features", "version", "hardware"),
)


def to_csv(table: Table) -> str:
    """One line per cell; numbers in full, nothing where there is nothing.

    `paper` is the number compared with, `printed` the one on paper. `params` is JSON, as is `per_seed`: dataset → seed
    → value. Several keys, fingerprints, versions or machines are parted by semicolons.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, FIELDS, restval="", lineterminator="\n")
    writer.writeheader()
    place = {"experiment": table.experiment.id, "place": table.experiment.place}
    for row in view_of(table).rows:
        writer.writerows(place | _csv_line(row.row, view) for view in row.cells if view.ours)
    return out.getvalue()


def _csv_line(row: Row, view: CellView) -> dict[str, Any]:
    cell = view.cell
    ran = origins.said(cell.records, "params")
    params = ran[0] if len(ran) == 1 else dict(row.params)  # what was run, if it was the same on every dataset
    line = {
        "section": row.section,
        "row": row.label,
        "method": row.method,
        "params": json.dumps(params, ensure_ascii=False, sort_keys=True) if params else "",
        "dataset": view.heading,
        "metric": "gain" if view.is_gain else cell.metric,
        "statistic": row.statistic,
        "ours": cell.ours,
        "missing": cell.missing,
        "partial": cell.partial,
    }
    if view.is_comparable:
        line |= {"paper": cell.paper, "printed": cell.printed, "difference": cell.difference}
        line |= {"erratum": cell.erratum.why if cell.erratum else ""}
    return line | _origin(view) if cell.records else line


def _origin(view: CellView) -> dict[str, str]:
    sources, records = view.cell.sources, view.cell.records
    per_seed = {source.dataset: origins.by_seed(source.records, view.cell.metric) for source in sources}
    return {
        "prompts": ";".join(dict.fromkeys(source.prompts for source in sources)),
        "views": ";".join(dict.fromkeys(source.views for source in sources)),
        "seeds": " ".join(str(seed) for seed in origins.said(records, "seed")),
        "per_seed": json.dumps(per_seed, ensure_ascii=False),
        "keys": ";".join(origins.made(records, "key")),
        "features": ";".join(origins.made(records, "features")),
        "version": ";".join(origins.made(records, "version")),
        "hardware": ";".join(one.replace(";", ",") for one in origins.made(records, "on")),
    }


def to_json(table: Table) -> dict[str, Any]:
    """All that a program may want to know of a table; numbers of other data do not stand beside ours here either."""
    experiment = table.experiment
    rows = []
    for row in view_of(table).rows:
        shown = {view.heading: _json_cell(view) for view in row.cells if not view.is_gain}
        gain = next((_json_cell(view) for view in row.cells if view.is_gain and view.ours), None)
        about = {"section": row.row.section, "label": row.row.label, "method": row.row.method}
        rows.append({**about, "cells": shown, "gain": gain})
    return {
        "experiment": experiment.id,
        "place": experiment.place,
        "title": experiment.title,
        "unit": experiment.unit,
        "comparable": table.comparable,
        "about": table.about,
        "notes": list(table.notes),
        "absent": table.absent,
        "rows": rows,
    }


def _json_cell(view: CellView) -> dict[str, Any]:
    cell, shown = view.cell, view.is_comparable
    return {
        "ours": cell.ours,
        "paper": cell.paper if shown else None,
        "printed": cell.printed if shown and cell.paper is not None else None,
        "difference": cell.difference if shown else None,
        "erratum": cell.erratum.why if cell.erratum else None,
        "missing": cell.missing or None,
        "partial": cell.partial or None,
        "results": [record["made"]["key"] for record in cell.records],
    }
