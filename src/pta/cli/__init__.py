"""The command `pta`: one file per subcommand.

Exit codes: 0 done, 1 what the machine cannot do, a failed check or a defect, 2 the user's mistake.
"""

import logging
import sys
import traceback
import warnings
from typing import Annotated

import typer

from pta import __version__
from pta.cli.commands import LazyGroup, register
from pta.cli.messages import ReaderLeft, detail, say, talking, warn, writing_stdout
from pta.errors import MachineFailure, PtaError, UserMistake, family, reason

app = typer.Typer(
    name="pta",
    cls=LazyGroup,
    help="Test-time adaptation of vision-language models: better zero-shot predictions from an unlabelled stream.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},  # of the commands, too
    pretty_exceptions_enable=False,
)
register(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"pta {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command; an error of either family becomes one line on stderr and the exit code of the family."""
    logging.getLogger("PIL").addHandler(logging.NullHandler())  # its exceptions say the same
    warnings.showwarning = lambda message, *where, **more: warn(f"warning: {message}")
    with talking():
        _run()


def _run() -> None:
    try:
        try:
            code = app(standalone_mode=False)
        finally:
            with writing_stdout():
                pass
    except ReaderLeft:
        sys.exit(0)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except Exception as error:
        _complain(error)
    else:
        sys.exit(code or 0)


def _complain(error: Exception) -> None:
    """Exit with one line for an error of one of the two families, of the parser, or of too little room."""
    if isinstance(error, PtaError):
        message, code = str(error), error.exit_code
    elif hasattr(error, "format_message"):  # of the parser, whose class depends on the release of typer
        message, code = error.format_message(), UserMistake.exit_code
    elif (
        isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    ):  # the latter is torch's, of a GPU
        message, code = "there is not enough memory for this", MachineFailure.exit_code
    elif isinstance(error, OSError) and family(error) is MachineFailure:
        message = f"{error.filename or 'standard output'} cannot be written: {reason(error)}"
        code = MachineFailure.exit_code
    else:
        detail(traceback.format_exc())  # for the log file
        raise error
    if message:  # empty where the help was just shown
        say(message, logging.ERROR)
    sys.exit(code)
