"""A filled table on the screen: as many columns side by side as fit, the rest below."""

from collections.abc import Iterator, Sequence

from rich.table import Table as Screen

from pta.cli.output import plain, tables
from pta.reproduction.cell import Cell
from pta.reproduction.table import Table

_BORDER = 3  # what a column takes beside its text
_WIDEST_LABEL = 24


def show(table: Table) -> None:
    """Print the table with all that must be said below it."""
    console = tables()
    console.print(
        f"[bold]{plain(table.title)}[/bold] ({plain(table.experiment.unit)})", highlight=False, soft_wrap=True
    )
    labels = [text for line in table.lines for text in (line.row.label, line.row.section)]
    label = min(_WIDEST_LABEL, max(map(len, labels)))
    columns = zip(*(line.cells for line in table.lines), strict=True)
    widths = [_width(*one) for one in zip(table.headings, columns, strict=True)]
    for block in _blocks(widths, console.width - label - _BORDER - 1):
        screen = Screen()
        screen.add_column(width=label, overflow="fold")
        for at in block:
            screen.add_column(plain(table.headings[at]), justify="right", width=widths[at], overflow="fold")
        for section, line in table.sections:
            if section is not None:
                screen.add_section()
                screen.add_row(f"[italic]{plain(section)}[/italic]")
            screen.add_row(plain(line.row.label), *("\n".join(map(plain, line.cells[at].texts)) for at in block))
        console.print(screen)
    meaning = "A cell: ours, the paper's, the difference." if table.comparable and table.experiment.place else ""
    for note in filter(None, (table.experiment.note, meaning, *table.remarks)):
        console.print(plain(note), highlight=False, soft_wrap=True)
    console.print()


def _width(heading: str, cells: Sequence[Cell]) -> int:
    """Enough for every number, and for the longest word of the heading unless it is very long."""
    numbers = max(len(text) for cell in cells for text in cell.texts)
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
