"""The output of a reproduction: every table in the formats asked for, every figure, and one page."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pta import __version__
from pta.door.files import write_atomically
from pta.errors import MissingPackage
from pta.measure.report.figures import draw
from pta.measure.report.formats import to_csv, to_latex, to_markdown
from pta.measure.report.reproduction_page import render_report
from pta.measure.reproduce.declaration import require_known
from pta.measure.reproduce.table import Table, said

FORMATS = ("md", "csv", "html", "tex")
"""Markdown, CSV, one page of all tables (`report.html`), and LaTeX."""

_WITH_FIGURES = {"md", "html"}


def parse_formats(given: str) -> tuple[str, ...]:
    """The formats that are named, parted by commas.

    >>> parse_formats("tex, csv")
    ('tex', 'csv')
    """
    formats = tuple(name.strip() for name in given.split(","))
    for name in formats:
        require_known("format", name, FORMATS)
    return formats


def write_results(tables: Sequence[Table], folder: Path, formats: Sequence[str]) -> str:
    """Write the tables, and the figures where a format shows them; why there are no figures, if there are none."""
    figures, without = {}, ""
    for table in tables:
        id = table.experiment.id
        try:
            if table.experiment.figure is not None and _WITH_FIGURES.intersection(formats):
                figures[id] = [draw(table, across=across) for across in (1, 2)]
                write_atomically(folder / f"{id}.svg", figures[id][0].encode())
        except MissingPackage as error:
            without = str(error)
        with_figure = partial(to_markdown, figure=f"{id}.svg" if id in figures else "")
        writers: dict[str, Callable[[Table], str]] = {"md": with_figure, "csv": to_csv, "tex": to_latex}
        for ending in writers.keys() & set(formats):
            write_atomically(folder / f"{id}.{ending}", writers[ending](table).encode())
    if "html" in formats:
        records = [record for table in tables for cell in table.cells for record in cell.records]
        origin = {"pta": __version__, "measured on": "; ".join(said(records, "on")) or "nothing was measured"}
        write_atomically(folder / "report.html", render_report(tables, figures, made=origin).encode())
    return without
