"""A filled table for programs: CSV in long form and JSON, one entry per cell with everything that is known about it."""

import csv
import io
import json
from typing import Any

from pta.door.safe_text import csv_cell
from pta.measure.reproduce.cell import Cell, said
from pta.measure.reproduce.declaration import Row
from pta.measure.reproduce.table import Table

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
    for line in table.lines:
        for heading, cell in zip(table.headings, line.cells, strict=True):
            if cell.ours_text:
                values = place | {"dataset": heading} | _csv_values(line.row, cell)
                writer.writerow({name: csv_cell(value) for name, value in values.items()})
    return out.getvalue()


def _csv_values(row: Row, cell: Cell) -> dict[str, Any]:
    records = cell.records
    ran = said(records, "params")
    params = ran[0] if len(ran) == 1 else dict(row.params)  # what was run, if it was the same on every dataset
    values = {
        "section": row.section,
        "row": row.label,
        "method": row.method,
        "params": json.dumps(params, ensure_ascii=False, sort_keys=True) if params else "",
        "metric": "gain" if cell.is_gain else cell.metric,
        "statistic": row.statistic,
        **_numbers(cell),
    }
    if not records:
        return values
    per_seed = {source.dataset: source.by_seed(cell.metric) for source in cell.sources}
    return values | {
        "prompts": ";".join(dict.fromkeys(source.prompts for source in cell.sources)),
        "views": ";".join(dict.fromkeys(source.views for source in cell.sources)),
        "seeds": " ".join(map(str, said(records, "seed"))),
        "per_seed": json.dumps(per_seed, ensure_ascii=False),
        "keys": ";".join(said(records, "key")),
        "features": ";".join(said(records, "features")),
        "version": ";".join(said(records, "version")),
        "hardware": ";".join(one.replace(";", ",") for one in said(records, "on")),
    }


def to_json(table: Table) -> dict[str, Any]:
    """All that a program may want to know of a table."""
    rows = []
    for line in table.lines:
        cells = dict(zip(table.headings, map(_json_cell, line.cells), strict=True))
        gains = [cells.pop(heading) for heading, cell in zip(table.headings, line.cells, strict=True) if cell.is_gain]
        declared = {name: getattr(line.row, name) for name in ("section", "label", "method")}
        rows.append({**declared, "cells": cells, "gain": gains[0] if gains else None})
    return {
        "experiment": table.experiment.id,
        **{name: getattr(table.experiment, name) for name in ("place", "title", "unit")},
        "comparable": table.comparable,
        "about": table.about,
        "notes": list(table.notes),
        "absent": table.absent,
        "rows": rows,
    }


def _json_cell(cell: Cell) -> dict[str, Any] | None:
    """None for the gain of the baseline."""
    numbers = {name: None if value == "" else value for name, value in _numbers(cell).items()}
    return {**numbers, "results": said(cell.records, "key")} if cell.ours_text else None


def _numbers(cell: Cell) -> dict[str, Any]:
    numbers = {name: getattr(cell, name) for name in ("ours", "paper", "printed", "difference")}
    return {
        **numbers,
        "erratum": cell.erratum.why if cell.erratum else "",
        "missing": cell.missing,
        "partial": cell.partial,
    }
