"""A filled table on the screen: as many columns side by side as fit, the rest below."""

from collections.abc import Iterator, Sequence

from rich.table import Table as Screen

from pta.cli.output import plain, tables
from pta.reproduction.table import Table
from pta.reproduction.view import RowView, view_of

_BORDER = 3  # what a column takes beside its text
_WIDEST_LABEL = 24


def show(table: Table) -> None:
    """Print the table with all that must be said below it."""
    console, view = tables(), view_of(table)
    console.print(f"[bold]{plain(view.title)}[/bold] ({plain(table.experiment.unit)})", highlight=False, soft_wrap=True)
    labels = [text for row in view.rows for text in (row.row.label, row.row.section)]
    label = min(_WIDEST_LABEL, max(map(len, labels)))
    widths = [_width(heading, [row.cells[at].lines for row in view.rows]) for at, heading in enumerate(view.headings)]
    for block in _blocks(widths, console.width - label - _BORDER - 1):
        screen = Screen()
        screen.add_column(width=label, overflow="fold")
        for at in block:
            screen.add_column(plain(view.headings[at]), justify="right", width=widths[at], overflow="fold")
        _add_rows(screen, view.rows, block)
        console.print(screen)
    meaning = "A cell: ours, the paper's, the difference." if table.comparable and table.experiment.place else ""
    for note in filter(None, (table.experiment.note, meaning, *view.notes)):
        console.print(plain(note), highlight=False, soft_wrap=True)
    console.print()


def _width(heading: str, cells: Sequence[Sequence[str]]) -> int:
    """Enough for every number, and for the longest word of the heading unless it is very long."""
    numbers = max((len(text) for cell in cells for text in cell), default=0)
    return max(numbers, min(max(map(len, heading.split()), default=0), 12))


def _blocks(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """The positions of columns that fit beside each other.

    >>> list(_blocks([7, 7, 9], room=20))
    [[0, 1], [2]]
    """
    block: list[int] = []
    for at, _ in enumerate(widths):
        if block and sum(widths[one] + _BORDER for one in (*block, at)) > room:
            yield block
            block = []
        block.append(at)
    yield block


def _add_rows(screen: Screen, rows: Sequence[RowView], block: Sequence[int]) -> None:
    for row in rows:
        if row.section is not None:
            screen.add_section()
            screen.add_row(f"[italic]{plain(row.section)}[/italic]")
        screen.add_row(plain(row.row.label), *("\n".join(map(plain, row.cells[at].lines)) for at in block))
