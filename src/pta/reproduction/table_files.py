"""What a reproduction leaves in its folder: every table in every format, every figure, and one report of them all."""

from collections.abc import Sequence
from pathlib import Path

from pta import __version__
from pta.errors import MissingPackage
from pta.files import write_atomically
from pta.reproduction.figures import draw
from pta.reproduction.formats import FORMATS
from pta.reproduction.html_report import render_report
from pta.reproduction.origins import made, records_of
from pta.reproduction.table import Table

REPORT = "report.html"


def write_results(tables: Sequence[Table], folder: Path) -> tuple[Path, str]:
    """Write all of it; where the report is, and why it has no figures, if it has none."""
    figures, without = {}, ""
    for table in tables:
        id = table.experiment.id
        for ending, written_as in FORMATS.items():
            write_atomically(folder / f"{id}.{ending}", written_as(table).encode())
        try:
            if table.experiment.figure is not None:
                figures[id] = draw(table)
                write_atomically(folder / f"{id}.svg", figures[id].encode())
        except MissingPackage as error:
            without = str(error)
    report = folder / REPORT
    write_atomically(report, render_report(tables, figures, made=_made(tables)).encode())
    return report, without


def _made(tables: Sequence[Table]) -> dict[str, str]:
    cells = [cell for table in tables for line in table.lines for cell in line.cells]
    records = [record for cell in cells for record in records_of(cell)]
    return {"pta": __version__, "measured on": "; ".join(made(records, "on")) or "nothing was measured"}
