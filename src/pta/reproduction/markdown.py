"""A filled table as Markdown, as GitHub reads it."""

import re
from collections.abc import Sequence

from pta.reproduction.table import Table
from pta.reproduction.view import CellView, view_of


def to_markdown(table: Table) -> str:
    """Heading, what the numbers were made with, the table, and what must be said below it."""
    view = view_of(table)
    width = 1 + len(view.headings)
    rows = [_row([_plain(table.experiment.unit), *map(_plain, view.headings)]), _row([":--", *["--:"] * (width - 1)])]
    for row in view.rows:
        if row.section is not None:
            rows.append(_row([f"**{_plain(row.section)}**" if row.section else "", *[""] * (width - 1)]))
        rows.append(_row([_plain(row.row.label), *map(_cell, row.cells)]))
    above = [f"## {_plain(view.title)}", _plain(table.experiment.note), _plain(view.about)]
    notes = "\n".join(f"- {_plain(note)}" for note in view.notes)
    return "\n\n".join(filter(None, [*above, "\n".join(rows), notes])) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(view: CellView) -> str:
    ours = f"**{_plain(view.ours)}**" if view.is_best else _plain(view.ours)
    paper = f"{'paper: ' if view.is_gain else ''}{view.paper}{view.star}" if view.paper else ""
    beside = ", ".join(filter(None, (paper, view.difference)))
    return " ".join(filter(None, (ours, _plain(f"({beside})") if beside else "", _plain(view.remark))))


def _plain(given: str) -> str:
    r"""A text that Markdown shows as it is.

    >>> _plain("a_b | <i>*")
    'a\\_b \\| &lt;i&gt;\\*'
    """
    escaped = re.sub(r"([\\`*_\[\]|~$#])", r"\\\1", " ".join(given.split()))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
