"""The output of a reproduction: every table in every format, every figure, and one report."""

from collections.abc import Sequence
from pathlib import Path

from pta import __version__
from pta.door.files import write_atomically
from pta.errors import MissingPackage
from pta.measure.report.data_files import to_csv
from pta.measure.report.figures import draw
from pta.measure.report.latex import to_latex
from pta.measure.report.markdown import to_markdown
from pta.measure.report.reproduction_page import render_report
from pta.measure.reproduce.cell import said
from pta.measure.reproduce.table import Table


def write_results(tables: Sequence[Table], folder: Path) -> tuple[Path, str]:
    """Write all of it; where the report is, and why it has no figures, if it has none."""
    figures, without = {}, ""
    for table in tables:
        id = table.experiment.id
        try:
            if table.experiment.figure is not None:
                figures[id] = [draw(table, across=across) for across in (1, 2)]
                write_atomically(folder / f"{id}.svg", figures[id][0].encode())
        except MissingPackage as error:
            without = str(error)
        markdown = to_markdown(table, figure=f"{id}.svg" if id in figures else "")
        for ending, text in (("md", markdown), ("csv", to_csv(table)), ("tex", to_latex(table))):
            write_atomically(folder / f"{id}.{ending}", text.encode())
    records = [record for table in tables for cell in table.cells for record in cell.records]
    origin = {"pta": __version__, "measured on": "; ".join(said(records, "on")) or "nothing was measured"}
    report = folder / "report.html"
    write_atomically(report, render_report(tables, figures, made=origin).encode())
    return report, without
