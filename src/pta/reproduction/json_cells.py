"""A table as JSON: every cell with its numbers and the keys of the results behind them."""

from typing import Any

from pta.reproduction import text
from pta.reproduction.table import Cell, Table


def to_json(table: Table) -> dict[str, Any]:
    """All that a program may want to know of a table; numbers of other data do not stand beside ours here either."""
    experiment = table.experiment
    return {
        "experiment": experiment.id,
        "place": experiment.place,
        "title": experiment.title,
        "unit": experiment.unit,
        "comparable": table.comparable,
        "about": table.about,
        "notes": list(table.notes),
        "absent": table.absent or {},
        "rows": [
            {
                "section": line.row.section,
                "label": line.row.label,
                "method": line.row.method,
                "cells": {
                    heading: _cell(cell, text.paper_number(table, cell), text.difference_from_paper(table, cell))
                    for heading, cell in zip(table.headings, line.cells, strict=True)
                },
                "gain": None if line.gain is None else _cell(line.gain, line.gain.paper, line.gain.difference),
            }
            for line in table.lines
        ],
    }


def _cell(cell: Cell, paper: float | None, difference: float | None) -> dict[str, Any]:
    return {
        "ours": cell.ours,
        "paper": paper,
        "printed": None if paper is None else cell.printed,
        "difference": difference,
        "erratum": cell.erratum.why if cell.erratum else None,
        "missing": cell.missing or None,
        "partial": cell.partial or None,
        "results": [record["made"]["key"] for source in cell.sources for record in source.records],
    }
