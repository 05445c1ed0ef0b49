"""`--quiet`, `--verbose` and `--log-file`, the same for every command."""

import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pta import __version__
from pta.cli.messages import detail, keep_log, show_from


def _be_quiet(wanted: bool) -> None:
    if wanted:
        show_from(logging.WARNING)


def _be_verbose(wanted: bool) -> None:
    if wanted:
        show_from(logging.DEBUG)


def _keep_log(path: Path | None) -> None:
    if path is not None:
        keep_log(path)
        detail(f"pta {__version__} {' '.join(sys.argv[1:])}")


def _options(
    quiet: Annotated[
        bool,
        typer.Option(
            *("--quiet", "-q"),
            callback=_be_quiet,
            expose_value=False,
            is_eager=True,
            help="Print only errors and warnings.",
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            *("--verbose", "-v"), callback=_be_verbose, expose_value=False, is_eager=True, help="Print more details."
        ),
    ] = False,
    log_file: Annotated[
        Path | None,
        typer.Option(
            callback=_keep_log, expose_value=False, is_eager=True, help="Append all messages to a file with timestamps."
        ),
    ] = None,
) -> None:
    pass


def add_message_options(command: Any) -> None:
    """Add the three options to a command and to its subcommands."""
    app = typer.Typer(add_completion=False)
    app.command()(_options)
    own = typer.main.get_command(app).params
    command.params += [option for option in own if option.name in ("quiet", "verbose", "log_file")]
    for below in getattr(command, "commands", {}).values():
        add_message_options(below)
