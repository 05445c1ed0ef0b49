"""A filled table in the terminal, with its notes."""

from rich.table import Table as Screen

from pta.cli.fitting_table import print_table
from pta.cli.output import plain, print_lines, tables
from pta.measure.reproduce.table import Table


def show(table: Table) -> None:
    """Print the table with its notes."""
    console = tables()
    console.print(
        f"[bold]{plain(table.title)}[/bold] ({plain(table.experiment.unit)})", highlight=False, soft_wrap=True
    )
    screen = Screen("")
    for heading in table.headings:
        screen.add_column(plain(heading), justify="right")
    for section, line in table.sections:
        if section is not None:
            screen.add_section()
            screen.add_row(f"[italic]{plain(section)}[/italic]")
        screen.add_row(plain(line.row.label), *("\n".join(map(plain, cell.texts)) for cell in line.cells))
    print_table(screen)
    meaning = "Each cell: ours, the paper's, the difference." if table.comparable and table.experiment.place else ""
    print_lines(*filter(None, (table.experiment.note, meaning, *table.remarks)), "")
