"""`pta journal`: whether the journal of a data folder is whole, and a copy of it while it is in use."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Exit

from pta.cli.messages import say
from pta.cli.output import CommandGroup, print_lines, require_place, write_json
from pta.serve.journal.check import back_up, check_folder

journal = CommandGroup("journal")

Data = Annotated[Path, "The data folder of the service, which may be running."]


@journal.command()
def check(
    data: Data,
    json: Annotated[Path | None, "Write what was found as JSON; - for stdout."] = None,
) -> None:
    """Say which rows are damaged. Exit code 0: none, 1: some."""
    require_place(json)
    problems = check_folder(data)
    if write_json(json, {"folder": str(data), "problems": problems}):
        print_lines(*(problems or [f"the journal of {data} is whole"]))
    if problems:
        raise Exit(1)


@journal.command()
def backup(
    folder: Annotated[Path, "Where the copy goes; it becomes a data folder.", Argument(metavar="DIR")],
    data: Data,
) -> None:
    """Copy the journal as it is at one moment, also while it is written."""
    back_up(data, folder)
    say(f"copied the journal of {data} to {folder}")
