"""A filled table as Markdown, as GitHub reads it."""

import re
from collections.abc import Iterable

from pta.measure.reproduce.cell import Cell
from pta.measure.reproduce.table import Table


def to_markdown(table: Table, figure: str = "") -> str:
    """Heading, what the numbers were made with, the figure if it has a file, the table, and what must be said below."""
    width = len(table.headings)
    rows = [_row(map(_plain, (table.experiment.unit, *table.headings))), _row([":--", *["--:"] * width])]
    for section, line in table.sections:
        if section is not None:
            rows.append(_row([f"**{_plain(section)}**" if section else "", *[""] * width]))
        rows.append(_row([_plain(line.row.label), *map(_cell, line.cells)]))
    above = [f"# {_plain(table.title)}", _plain(table.experiment.note), _plain(table.made_with)]
    above += [f"![{_plain(table.title)}]({figure})"] if figure else []
    notes = "\n".join(f"- {_plain(note)}" for note in table.remarks)
    return "\n\n".join(filter(None, [*above, "\n".join(rows), notes])) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    ours = f"**{_plain(cell.ours_text)}**" if cell.is_best else _plain(cell.ours_text)
    paper = f"{'paper: ' if cell.is_gain else ''}{cell.paper_text}{cell.star}" if cell.paper_text else ""
    beside = ", ".join(filter(None, (paper, cell.difference_text)))
    return " ".join(filter(None, (ours, _plain(f"({beside})") if beside else "", _plain(cell.remark))))


def _plain(given: str) -> str:
    r"""A text that Markdown shows as it is.

    >>> _plain("a_b | <i>*")
    'a\\_b \\| &lt;i&gt;\\*'
    """
    escaped = re.sub(r"([\\`*_\[\]|~$#])", r"\\\1", " ".join(given.split()))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
