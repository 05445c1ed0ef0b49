"""A filled table as HTML: ours large, the paper's number and the difference small below it."""

from html import escape

from pta.evaluation.html_page import mood
from pta.evaluation.number_text import number, signed, with_minus
from pta.reproduction import text
from pta.reproduction.table import Cell, Line, Table


def table_html(table: Table) -> str:
    """The table in a box of its own, in which it scrolls sideways below its first column."""
    gains = [text.gain_heading(table)] if text.has_gains(table) else []
    headings = [table.experiment.unit, *table.headings, *gains]
    return scrolling(text.title_of(table), headings, _rows(table, len(headings)))


def scrolling(name: str, headings: list[str], rows: str) -> str:
    """A table that a reader can scroll by finger and by keyboard, without the page getting wider."""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    return f"""<div class="scroll" role="region" aria-label="{escape(name)}" tabindex="0">
<table>
<thead><tr>{head}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>"""


def _rows(table: Table, columns: int) -> str:
    written, section, best = [], "", text.best_cells(table)
    for at, line in enumerate(table.lines):
        if line.row.section != section:
            section = line.row.section
            rest = f'<td colspan="{columns - 1}"></td>'
            written.append(f'<tr class="section"><th scope="rowgroup">{escape(section)}</th>{rest}</tr>')
        cells = "".join(
            f"<td>{_cell(table, line, cell, bold=(at, column) in best)}</td>" for column, cell in enumerate(line.cells)
        )
        gain = f"<td>{_gain(line.gain, table.experiment.digits)}</td>" if text.has_gains(table) else ""
        written.append(f'<tr><th scope="row">{escape(line.row.label)}</th>{cells}{gain}</tr>')
    return "\n".join(written)


def _cell(table: Table, line: Line, cell: Cell, *, bold: bool) -> str:
    digits = text.digits_of(table, cell)
    paper, difference = text.paper_number(table, cell), text.difference_from_paper(table, cell)
    ours = _ours(cell, text.ours_text(table, cell))
    below = [] if paper is None else [with_minus(number(paper, digits)) + text.star(cell)]
    if difference is not None:
        kind = mood(difference, digits) if text.is_accuracy(line.row, cell) else ""
        below.append(f'<span class="{kind}">{with_minus(signed(difference, digits))}</span>')
    return (f"<b>{ours}</b>" if bold else ours) + _small(" ".join(below)) + _partial(cell)


def _gain(cell: Cell | None, digits: int) -> str:
    if cell is None:
        return ""
    ours = _ours(cell, text.missing_text(cell) if cell.ours is None else with_minus(signed(cell.ours, digits)))
    paper = "" if cell.paper is None else f"paper: {with_minus(signed(cell.paper, digits))}{text.star(cell)}"
    return ours + _small(paper) + _partial(cell)


def _ours(cell: Cell, said: str) -> str:
    return f'<span class="missing">{escape(said)}</span>' if cell.ours is None else with_minus(said)


def _small(said: str) -> str:
    return f"<small>{said}</small>" if said else ""


def _partial(cell: Cell) -> str:
    return _small(escape(cell.partial))
