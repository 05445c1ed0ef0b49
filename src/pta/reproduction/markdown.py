"""A filled table as Markdown, as GitHub reads it."""

import re
from collections.abc import Sequence

from pta.reproduction import text
from pta.reproduction.table import Line, Table


def to_markdown(table: Table) -> str:
    """Heading, what the numbers were made with, the table, and what must be said below it."""
    above = [f"## {_plain(text.title_of(table))}"]
    above += [_plain(part) for part in (table.experiment.note, text.about_text(table)) if part]
    notes = "\n".join(f"- {_plain(note)}" for note in text.footnotes(table))
    return "\n\n".join([*above, _rows(table), *([notes] if notes else [])]) + "\n"


def _rows(table: Table) -> str:
    headings = [_plain(table.experiment.unit), *map(_plain, table.headings)]
    headings += [_plain(text.gain_heading(table))] if text.has_gains(table) else []
    written = [_joined(headings), _joined([":--", *["--:"] * (len(headings) - 1)])]
    best, section = text.best_cells(table), ""
    for at, line in enumerate(table.lines):
        if line.row.section != section:
            section = line.row.section
            written.append(_joined([f"**{_plain(section)}**" if section else "", *[""] * (len(headings) - 1)]))
        written.append(_joined(_cells(table, line, {column for own, column in best if own == at})))
    return "\n".join(written)


def _cells(table: Table, line: Line, bold: set[int]) -> list[str]:
    cells = [_plain(line.row.label)]
    for column, cell in enumerate(line.cells):
        ours, *rest = text.cell_text(table, cell).split(" (", 1)
        ours = f"**{_plain(ours)}**" if column in bold else _plain(ours)
        cells.append(ours + "".join(f" ({_plain(beside)}" for beside in rest))
    if text.has_gains(table):
        cells.append(_plain(text.gain_text(line.gain, table.experiment.digits)) if line.gain else "")
    return cells


def _joined(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(given: str) -> str:
    r"""A text that Markdown shows as it is.

    >>> _plain("a_b | <i>*")
    'a\\_b \\| &lt;i&gt;\\*'
    """
    escaped = re.sub(r"([\\`*_\[\]|~$#])", r"\\\1", " ".join(given.split()))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
