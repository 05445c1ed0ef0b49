"""`pta methods`: what there is to choose from."""

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pta.adapters import adapter_class, list_adapters
from pta.cli.messages import say
from pta.cli.output import require_place, tables, write_json
from pta.errors import UnknownAdapter


def methods(
    json: Annotated[Path | None, typer.Option(help="Write the list as JSON; - for stdout.")] = None,
) -> None:
    """List the methods: what each is, what it needs, and its parameters with their defaults."""
    require_place(json)
    records = []
    for name in list_adapters():
        try:
            records.append(_describe(name))
        except UnknownAdapter as error:  # of another package; the others can still be used
            say(str(error))
    if json is not None:
        return write_json(json, records)
    table = Table("method", "what it is", "needs", "parameters", show_lines=True)
    for record in records:
        defaults = {name: one["default"] for name, one in record["parameters"].items()}
        parameters = [name if default is None else f"{name}={default}" for name, default in defaults.items()]
        table.add_row(record["method"], record["summary"], ", ".join(record["needs"]), ", ".join(parameters) or "none")
    return tables().print(table)


def _describe(name: str) -> dict[str, Any]:
    method = adapter_class(name)
    return {
        "method": name,
        "summary": (inspect.getdoc(method) or name).splitlines()[0],
        "needs": sorted(method.needs_with({})),
        "parameters": {
            key: {"default": one.default, "bounds": one.bounds, "help": one.help}
            for key, one in method.declared.items()
        },
    }
