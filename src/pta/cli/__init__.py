"""The command `pta`: one file per subcommand, which is imported when the command or its help is called.

Exit codes: 0 done, 1 what the machine cannot do, a failed check or a defect, 2 the user's mistake.
"""

import inspect
import logging
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pta import __version__
from pta.cli.messages import ReaderLeft, detail, keep_log, say, show_from, talking, warn, write_stdout
from pta.errors import MachineFailure, PtaError, UserMistake, family, reason

COMMANDS = {
    "demo": "Classify shifted images or point clouds with zero-shot, PTA and other methods, and write a report.",
    "eval": "Compare methods on feature files: accuracy, gain over zero-shot, calibration error and speed.",
    "compare": ("Compare two results on the same samples: difference, confidence interval and significance."),
    "sweep": "Measure a method over a grid of parameters. Resumes; finished results are cached.",
    "trial": "Find out whether adaptation helps on your own labelled samples, and by how much.",
    "audit": "Find out whether adaptation helped on recorded answers, by labelling a few of those that it changed.",
    "reproduce": ("Run the paper's experiments on the data you have. Resumes; finished results are cached."),
    "methods": "List the methods: summary, requirements, and parameters with their defaults.",
    "predict": "Classify images or point clouds and adapt to them; each batch's rows are written at once.",
    "watch": (
        "Watch regions of cameras, adapt to the pictures, and report each change of the answer once it is confirmed."
    ),
    "monitor": "Watch a stream of features for alarms, and make the reference that samples are compared with.",
    "state": "Show the classes and prototypes of a saved state, merge states, add a class, export it frozen.",
    "extract": "Encode images or point clouds into a feature file for pta eval. Resumes; finished parts are kept.",
    "verify": (
        "Compare a model's zero-shot accuracies with published ones on the datasets you have. Exit code 1: they differ."
    ),
    "serve": "Serve a model, classes and a method over HTTP: streams that learn, survive a crash and can be undone.",
    "stream": "List, show and change the streams of a running service.",
    "journal": "Check or back up the journal of a data folder.",
    "corrupt-points": "Make ModelNet-C's seven corruptions of point clouds in five severities.",
    "datasets": "List the datasets that are known by name, or check your copy of one.",
}
"""One line of help by name. The module in `pta.cli` has a function or a `typer.Typer` of the module's name."""


class LazyGroup(TyperGroup):
    """Lists the commands of the table above, and imports only the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command's name, the command and its arguments; a name that is not in the table is an error."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed if name is None else load_command(name), rest


def module_of(name: str) -> str:
    """The module of a command: its name, unless that is a Python built-in or has a hyphen."""
    return {"eval": "evaluate"}.get(name, name.replace("-", "_"))


def load_command(name: str) -> Any:
    """A command of the table with its options."""
    module = module_of(name)
    found = getattr(import_module(f"pta.cli.{module}"), module)
    command = typer.main.get_command(found) if isinstance(found, typer.Typer) else command_of(found, name)
    add_message_options(command)
    return command


def command_of(function: Callable[..., None], name: str | None = None) -> Any:
    """A command that calls a function with its options."""
    app = typer.Typer(add_completion=False)
    app.command(name)(expanded(function))
    return typer.main.get_command(app)


def expanded(function: Callable[..., None]) -> Callable[..., None]:
    """A command with all options of the dataclasses that the function takes, and of those inside them.

    The function is called with these dataclasses, whose constructors check what was given. The text of an annotation is
    the help of the option: `Annotated[int, "Random seed.", Option(min=0)]`.
    """
    parameters = list(_options_of(inspect.signature(function).parameters.values()))

    def command(**given: Any) -> None:
        function(**_grouped(inspect.signature(function).parameters.values(), given))

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def _options_of(parameters: Iterable[inspect.Parameter]) -> Iterator[inspect.Parameter]:
    for one in parameters:
        if inside := _inside(one):
            yield from _options_of(inside)
        else:
            yield _with_help(one).replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _with_help(one: inspect.Parameter) -> inspect.Parameter:
    """The option as typer declares it; what is False by default is a flag, without a `--no-` beside it."""
    help, *more = getattr(one.annotation, "__metadata__", (None,))
    if not isinstance(help, str):
        return one
    names = [f"--{one.name.strip('_').replace('_', '-')}"] if one.default is False else []
    option = copy(more[0]) if more else typer.Option(*names)
    option.help = help
    return one.replace(annotation=Annotated[one.annotation.__origin__, option])


def _grouped(parameters: Iterable[inspect.Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for one in parameters:
        inside = _inside(one)
        values[one.name] = one.annotation(**_grouped(inside, given)) if inside else given[one.name]
    return values


def _inside(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """The options of a group; none of what is an option itself."""
    group: Callable[..., Any] = parameter.annotation
    return [*inspect.signature(group).parameters.values()] if is_dataclass(parameter.annotation) else []


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


def _at_once(callback: Callable[..., None], *names: str) -> Any:
    return typer.Option(*names, callback=callback, expose_value=False, is_eager=True)


def _message_options(
    quiet: Annotated[bool, "Print only errors and warnings.", _at_once(_be_quiet, "--quiet", "-q")] = False,
    verbose: Annotated[bool, "Print more details.", _at_once(_be_verbose, "--verbose", "-v")] = False,
    log_file: Annotated[Path | None, "Append all messages to a file with timestamps.", _at_once(_keep_log)] = None,
) -> None:
    pass


def add_message_options(command: Any) -> None:
    """Add the three options to a command and to its subcommands."""
    command.params += command_of(_message_options).params
    for below in getattr(command, "commands", {}).values():
        add_message_options(below)


app = typer.Typer(
    name="pta",
    cls=LazyGroup,
    help="Test-time adaptation of vision-language models: better zero-shot predictions from an unlabelled stream.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},  # of the commands, too
    pretty_exceptions_enable=False,
)
for _name, _line in COMMANDS.items():
    app.command(_name, help=_line)(lambda: None)


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
            write_stdout()
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
        message = error.format_message().replace("Value error, ", "", 1)  # what pydantic puts before a choice
        code = UserMistake.exit_code
    elif isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # the latter is of a GPU
        message, code = "there is not enough memory for this", MachineFailure.exit_code
    elif isinstance(error, OSError) and family(error) is MachineFailure:
        what = "standard output cannot be written" if error.filename is None else f"{error.filename} cannot be used"
        message = f"{what}: {reason(error)}"
        code = MachineFailure.exit_code
    else:
        detail(traceback.format_exc())  # for the log file
        raise error
    if message:  # empty where the help was just shown
        say(message, logging.ERROR)
    sys.exit(code)
