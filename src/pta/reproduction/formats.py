"""The formats that a filled table can be written in."""

from collections.abc import Callable

from pta.reproduction.csv_cells import to_csv
from pta.reproduction.latex import to_latex
from pta.reproduction.markdown import to_markdown
from pta.reproduction.table import Table

__all__ = ["FORMATS", "to_csv", "to_latex", "to_markdown"]

FORMATS: dict[str, Callable[[Table], str]] = {"md": to_markdown, "csv": to_csv, "tex": to_latex}
"""What writes each, by the ending of its file's name."""
