"""`pta methods`: what there is to choose from."""

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pta.adapters.base import adapter_class, create_adapter, list_adapters
from pta.classifier import ZeroShotClassifier
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
        parameters = ", ".join(f"{key}={value}" for key, value in record["parameters"].items())
        table.add_row(record["method"], record["summary"], ", ".join(record["needs"]), parameters or "none")
    return tables().print(table)


def _describe(name: str) -> dict[str, Any]:
    method = adapter_class(name)
    any_classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["one", "other"])
    return {
        "method": name,
        "summary": (inspect.getdoc(method) or name).splitlines()[0],
        "needs": sorted(method.needs),
        "parameters": create_adapter(name, any_classifier).parameters,
    }
