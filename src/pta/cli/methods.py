"""`pta methods`: what there is to choose from."""

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pta.adapters.registry import adapter_class, list_adapters, parameters_of
from pta.cli.output import require_place, tables, write_json


def methods(
    json: Annotated[Path | None, typer.Option(help="Write the list as JSON; - for stdout.")] = None,
) -> None:
    """List the methods: what each is, what it needs, and its parameters with their defaults."""
    require_place(json)
    records = [_describe(name) for name in list_adapters()]
    if json is not None:
        return write_json(json, records)
    table = Table("method", "what it is", "needs", "parameters", show_lines=True)
    for record in records:
        parameters = ", ".join(
            key if value is None else f"{key}={value}" for key, value in record["parameters"].items()
        )
        table.add_row(record["method"], record["summary"], ", ".join(record["needs"]), parameters or "none")
    return tables().print(table)


def _describe(name: str) -> dict[str, Any]:
    method = adapter_class(name)
    return {
        "method": name,
        "summary": (inspect.getdoc(method) or name).splitlines()[0],
        "needs": sorted(method.needs),
        "parameters": {key: parameter.default for key, parameter in parameters_of(name).items()},
    }
