"""The subcommands by name; the module of one is imported when it is called or its own help is asked for."""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from pta.cli.message_options import add_message_options

COMMANDS = {
    "demo": "Label images or clouds under a shift by zero-shot, PTA and other methods, and write a report.",
    "eval": "Compare methods on feature files: accuracy, gain over zero-shot, calibration error and speed.",
    "compare": (
        "Compare two results on the same samples: the difference, its interval, and whether that is more than noise."
    ),
    "sweep": "Measure a method over a grid of parameters. Called again, it goes on where it was interrupted.",
    "reproduce": (
        "Run the paper's experiments on the data that is here. Goes on where it was stopped, and does nothing twice."
    ),
    "methods": "List the methods: what each is, what it needs, and its parameters with their defaults.",
    "predict": "Label images or point clouds and learn from them on the way; rows are written as each batch is done.",
    "state": "Look at a state: its classes and prototypes. Merge states, add a class, export prototypes.",
    "extract": "Turn images or point clouds into a feature file for pta eval. Resumes, and does nothing twice.",
    "verify": (
        "Check a model against published zero-shot accuracies, on the datasets that are here. Exit code 1: it differs."
    ),
    "serve": "Serve a model, classes and a method over HTTP: streams that learn, survive a crash and can be undone.",
    "stream": "List, show and change the streams of a running service.",
    "journal": "Check or back up the journal of a data folder.",
    "corrupt-points": "Make seven corruptions of point clouds in five severities, as ModelNet-C has them.",
    "datasets": "List the sets that are known by name, or check a copy of one.",
}
"""One line of help by name. The module in `pta.cli` has a function or a `typer.Typer` of the module's name."""


class LazyGroup(TyperGroup):
    """Lists the commands by the table above, and imports the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command's name, the command and its arguments; a name that is not in the table is an error."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed if name is None else load_command(name), rest


def module_of(name: str) -> str:
    """The module of a command, which is called like it unless that is a function of Python or has a hyphen."""
    return {"eval": "evaluate"}.get(name, name.replace("-", "_"))


def load_command(name: str) -> Any:
    """A command of the table with its options."""
    module = module_of(name)
    app = getattr(import_module(f"pta.cli.{module}"), module)
    if not isinstance(app, typer.Typer):
        function, app = app, typer.Typer(add_completion=False)
        app.command(name)(function)
    command = typer.main.get_command(app)
    add_message_options(command)
    return command


def register(app: typer.Typer) -> None:
    """Let an app whose group is a `LazyGroup` list the commands."""
    for name, line in COMMANDS.items():
        app.command(name, help=line)(lambda: None)
