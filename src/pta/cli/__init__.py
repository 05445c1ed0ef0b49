"""The command `pta`: one file per subcommand. Exit codes: 0 done, 2 the user's mistake, 1 anything else."""

import errno
import logging
import sys
import traceback
import warnings
from typing import Annotated

import typer

from pta import __version__
from pta.cli.commands import LazyGroup, register
from pta.cli.messages import ReaderLeft, detail, say, talking, warn, writing_stdout
from pta.errors import PtaError, reason

app = typer.Typer(
    name="pta",
    cls=LazyGroup,
    help="Test-time adaptation of vision-language models: better zero-shot predictions from an unlabelled stream.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},  # of the commands, too
    pretty_exceptions_enable=False,
)
register(app)

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
    """Run the command; a user's mistake becomes one line on stderr and exit code 2."""
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
    except PtaError as error:
        _complain(str(error))
    except MemoryError:
        _complain("there is not enough memory for this")
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            _complain(f"standard output cannot be written: {reason(error)}")
        # errors of the parser, whose class depends on the release of typer
        if not hasattr(error, "format_message"):
            detail(traceback.format_exc())  # for the log file
            raise
        _complain(error.format_message())
    else:
        sys.exit(code or 0)


def _complain(message: str) -> None:
    if message:  # empty where the help was just shown
        say(message, logging.ERROR)
    sys.exit(2)
