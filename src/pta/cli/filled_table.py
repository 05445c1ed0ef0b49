"""A filled table on the screen: as many columns side by side as fit, the rest below."""

from collections.abc import Iterator, Sequence

from rich.table import Table as Screen

from pta.cli.output import plain, tables
from pta.reproduction.table import Line, Table
from pta.reproduction.text import cell_lines, footnotes, gain_heading, gain_lines, has_gains, title_of

_BORDER = 3  # what a column takes beside its text
_WIDEST_LABEL = 24


def show(table: Table) -> None:
    """Print the table with all that must be said below it."""
    console = tables()
    console.print(
        f"[bold]{plain(title_of(table))}[/bold] ({plain(table.experiment.unit)})", highlight=False, soft_wrap=True
    )
    headings = [*table.headings, *([gain_heading(table)] if has_gains(table) else [])]
    cells = [_cells(table, line) for line in table.lines]
    labels = [text for line in table.lines for text in (line.row.label, line.row.section)]
    label = min(_WIDEST_LABEL, max(map(len, labels)))
    widths = [_width(heading, [row[at] for row in cells]) for at, heading in enumerate(headings)]
    for block in _blocks(widths, console.width - label - _BORDER - 1):
        screen = Screen()
        screen.add_column(width=label, overflow="fold")
        for at in block:
            screen.add_column(plain(headings[at]), justify="right", width=widths[at], overflow="fold")
        _add_rows(screen, table, cells, block)
        console.print(screen)
    meaning = "A cell: ours, the paper's, the difference." if table.comparable and table.experiment.place else ""
    for note in filter(None, (table.experiment.note, meaning, *footnotes(table))):
        console.print(plain(note), highlight=False, soft_wrap=True)
    console.print()


def _cells(table: Table, line: Line) -> list[list[str]]:
    """The lines of text of each cell, the gain's at the end."""
    gain = [gain_lines(line.gain, table.experiment.digits) if line.gain else []] if has_gains(table) else []
    return [*(cell_lines(table, cell) for cell in line.cells), *gain]


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


def _add_rows(screen: Screen, table: Table, cells: Sequence[Sequence[Sequence[str]]], block: Sequence[int]) -> None:
    section = ""
    for line, row in zip(table.lines, cells, strict=True):
        if line.row.section != section:
            section = line.row.section
            screen.add_section()
            screen.add_row(f"[italic]{plain(section)}[/italic]")
        screen.add_row(plain(line.row.label), *(plain("\n".join(row[at])) for at in block))
