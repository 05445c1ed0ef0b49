"""A filled table for programs: CSV in long form and JSON, one entry per cell with everything that is known about it."""

import csv
import io
import json
from typing import Any

from pta.reproduction.declaration import Row
from pta.reproduction.table import Table, said
from pta.reproduction.view import CellView, view_of
from pta.safe_text import csv_cell

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
        lines = (place | _csv_line(row.row, view) for view in row.cells if view.ours)
        writer.writerows({name: csv_cell(value) for name, value in line.items()} for line in lines)
    return out.getvalue()


def _csv_line(row: Row, view: CellView) -> dict[str, Any]:
    cell, sources, records = view.cell, view.cell.sources, view.cell.records
    ran = said(records, "params")
    params = ran[0] if len(ran) == 1 else dict(row.params)  # what was run, if it was the same on every dataset
    line = {
        "section": row.section,
        "row": row.label,
        "method": row.method,
        "params": json.dumps(params, ensure_ascii=False, sort_keys=True) if params else "",
        "dataset": view.heading,
        "metric": "gain" if view.is_gain else cell.metric,
        "statistic": row.statistic,
        **_numbers(view),
    }
    if not records:
        return line
    per_seed = {source.dataset: source.by_seed(cell.metric) for source in sources}
    return line | {
        "prompts": ";".join(dict.fromkeys(source.prompts for source in sources)),
        "views": ";".join(dict.fromkeys(source.views for source in sources)),
        "seeds": " ".join(map(str, said(records, "seed"))),
        "per_seed": json.dumps(per_seed, ensure_ascii=False),
        "keys": ";".join(said(records, "key")),
        "features": ";".join(said(records, "features")),
        "version": ";".join(said(records, "version")),
        "hardware": ";".join(one.replace(";", ",") for one in said(records, "on")),
    }


def to_json(table: Table) -> dict[str, Any]:
    """All that a program may want to know of a table; numbers of other data do not stand beside ours here either."""
    experiment = table.experiment
    about = {name: getattr(experiment, name) for name in ("place", "title", "unit")}
    rows = []
    for row in view_of(table).rows:
        shown = {view.heading: _json_cell(view) for view in row.cells if not view.is_gain}
        gain = next((_json_cell(view) for view in row.cells if view.is_gain and view.ours), None)
        declared = {name: getattr(row.row, name) for name in ("section", "label", "method")}
        rows.append({**declared, "cells": shown, "gain": gain})
    made = {"about": table.about, "notes": list(table.notes), "absent": table.absent}
    return {"experiment": experiment.id, **about, "comparable": table.comparable, **made, "rows": rows}


def _json_cell(view: CellView) -> dict[str, Any]:
    numbers = {name: None if value == "" else value for name, value in _numbers(view).items()}
    return {**numbers, "results": said(view.cell.records, "key")}


def _numbers(view: CellView) -> dict[str, Any]:
    cell = view.cell
    return {
        "ours": cell.ours,
        "paper": cell.paper,
        "printed": cell.printed,
        "difference": cell.difference,
        "erratum": cell.erratum.why if cell.erratum else "",
        "missing": cell.missing,
        "partial": cell.partial,
    }
