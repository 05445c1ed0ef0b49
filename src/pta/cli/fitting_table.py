"""A table in the terminal that cuts no number and no name: columns that do not fit go below."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import TextType

from pta.cli.output import tables

_BORDER = 3  # characters per column beside its text
_WIDEST_KEY, _WIDEST_WORD = 24, 40  # longer names are wrapped


def print_table(table: Table, keys: int = 1) -> None:
    """Print a table. One that is too wide is split into parts, each of which begins with the first `keys` columns.

    Only left-aligned columns (names and texts) are wrapped.
    """
    console = tables()
    columns = [[_lines(console, cell) for cell in column.cells] for column in table.columns]
    least = [_least(column, cells) for column, cells in zip(table.columns, columns, strict=True)]
    least[:keys] = (min(width, _WIDEST_KEY) for width in least[:keys])
    most = [
        max(map(cell_len, [str(column.header), *(line for lines in cells for line in lines)]))
        for column, cells in zip(table.columns, columns, strict=True)
    ]
    room = console.width - 1 - sum(width + _BORDER for width in least[:keys])
    for number, block in enumerate(blocks(least[keys:], room)):
        chosen = [*range(keys), *(at + keys for at in block)]
        free = console.width - 1 - sum(least[at] + _BORDER for at in chosen)
        widths = spread([least[at] for at in chosen], [most[at] for at in chosen], free)
        console.print(_part(table, chosen, widths, "" if number else table.title))


def right(*headings: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(heading, justify="right") for heading in headings]


def blocks(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """Groups of columns that fit side by side.

    >>> list(blocks([7, 7, 9], room=20))
    [[0, 1], [2]]
    """
    block: list[int] = []
    for at, _ in enumerate(widths):
        if block and sum(widths[one] + _BORDER for one in (*block, at)) > room:
            yield block
            block = []
        block.append(at)
    yield block


def spread(least: Sequence[int], most: Sequence[int], free: int) -> list[int]:
    """Widths between least and most. Free space is shared equally; what a column does not need goes to the others.

    >>> spread([5, 5, 5], [6, 50, 50], free=11)
    [6, 10, 10]
    """
    widths = list(least)
    by_need = sorted(range(len(least)), key=lambda at: most[at] - least[at])
    for waiting, at in zip(range(len(by_need), 0, -1), by_need, strict=True):
        more = min(max(most[at] - least[at], 0), max(free, 0) // waiting)
        widths[at] += more
        free -= more
    return widths


def _part(table: Table, chosen: Sequence[int], widths: Sequence[int], title: TextType | None) -> Table:
    part = Table(title=title, title_justify="left", show_lines=table.show_lines)
    for at, width in zip(chosen, widths, strict=True):
        column = table.columns[at]
        part.add_column(column.header, justify=column.justify, width=width, overflow="fold")
    cells = zip(*(table.columns[at].cells for at in chosen), strict=True)
    for row, texts in zip(table.rows, cells, strict=True):
        part.add_row(*texts, end_section=row.end_section)
    return part


def _lines(console: Console, cell: object) -> list[str]:
    """A cell's visible text, without markup."""
    return console.render_str(str(cell)).plain.splitlines()


def _least(column: Column, cells: Sequence[Sequence[str]]) -> int:
    """The smallest width that cuts no number, and no name unless it is very long."""
    lines = [line for lines in cells for line in lines]
    words = [word for line in lines for word in line.split()]
    inside = lines if column.justify == "right" else words
    longest = max(map(cell_len, [*inside, *str(column.header).split()]), default=0)
    return longest if column.justify == "right" else min(longest, _WIDEST_WORD)
