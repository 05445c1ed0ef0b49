"""The subcommands by name. A command's module is imported when the command or its help is called."""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from pta.cli.message_options import add_message_options

COMMANDS = {
    "demo": "Classify shifted images or point clouds with zero-shot, PTA and other methods, and write a report.",
    "eval": "Compare methods on feature files: accuracy, gain over zero-shot, calibration error and speed.",
    "compare": ("Compare two results on the same samples: difference, confidence interval and significance."),
    "sweep": "Measure a method over a grid of parameters. Resumes; finished results are cached.",
    "reproduce": ("Run the paper's experiments on the data you have. Resumes; finished results are cached."),
    "methods": "List the methods: summary, requirements, and parameters with their defaults.",
    "predict": "Classify images or point clouds and adapt to them; each batch's rows are written at once.",
    "state": "Show the classes and prototypes of a saved state, merge states, add a class, export prototypes.",
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
    app = getattr(import_module(f"pta.cli.{module}"), module)
    if not isinstance(app, typer.Typer):
        function, app = app, typer.Typer(add_completion=False)
        app.command(name)(function)
    command = typer.main.get_command(app)
    add_message_options(command)
    return command


def register(app: typer.Typer) -> None:
    """Add the commands to an app whose group is a `LazyGroup`."""
    for name, line in COMMANDS.items():
        app.command(name, help=line)(lambda: None)
