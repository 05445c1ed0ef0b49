"""`pta methods`: the list of methods and their parameters."""

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table
from typer import Argument

from pta.cli.fitting_table import print_table
from pta.cli.messages import say
from pta.cli.output import plain, require_place, write_json
from pta.errors import InvalidParameter
from pta.methods import adapter_class, list_adapters


def methods(
    name: Annotated[list[str] | None, "Show all parameters of these methods.", Argument()] = None,
    json: Annotated[Path | None, "Write the list as JSON; - for stdout."] = None,
) -> None:
    """List the methods: summary, requirements, and parameters with their defaults."""
    require_place(json)
    records = [describe(one) for one in name] if name else list(_all())
    if json is not None:
        write_json(json, records)
    else:
        for table in map(_parameters, records) if name else [_overview(records)]:
            print_table(table)


def describe(name: str) -> dict[str, Any]:
    """A method's summary, requirements and parameters."""
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


def _all() -> Iterator[dict[str, Any]]:
    for name in list_adapters():
        try:
            yield describe(name)
        except InvalidParameter as error:  # a plugin that cannot be imported; the other methods still work
            say(str(error))


def _overview(records: Sequence[dict[str, Any]]) -> Table:
    table = Table("method", "what it is", "needs", "parameters", show_lines=True)
    for record in records:
        defaults = {name: one["default"] for name, one in record["parameters"].items()}
        parameters = [name if default is None else f"{name}={default}" for name, default in defaults.items()]
        table.add_row(record["method"], record["summary"], ", ".join(record["needs"]), ", ".join(parameters) or "none")
    return table


def _parameters(record: dict[str, Any]) -> Table:
    table = Table("parameter", "default", "may be", "what it is", title=f"{record['method']}: {record['summary']}")
    for name, one in record["parameters"].items():
        table.add_row(name, plain(str(one["default"])), one["bounds"], plain(one["help"]))
    return table
