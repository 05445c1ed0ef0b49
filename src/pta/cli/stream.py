"""`pta stream`: the streams of a running service, listed, shown and changed."""

from datetime import UTC, datetime
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from pta.cli.fitting_table import right
from pta.cli.messages import say, warn
from pta.cli.output import CommandGroup, plain, print_lines, require_place, tables, write_json
from pta.cli.quantities import parse_moment
from pta.cli.stream_options import SERVER, Json, Name, Server, TokenFile, Yes, confirm, connect
from pta.cli.stream_samples import label, rows
from pta.door.files import exists, read_sample, write_atomically
from pta.errors import InvalidParameter, UnreadableFile
from pta.serve.operations import OPERATIONS, Argument, StreamOperation

stream = CommandGroup("stream")


@stream.command("list")
def list_(token_file: TokenFile = None, server: Server = SERVER, json: Json = None) -> None:
    """List the streams."""
    require_place(json)
    with connect(server, token_file) as client:
        found = client.streams()
    if write_json(json, found):
        table = Table("stream", "state", *right("learned", "last sequence"))
        for one in found:
            state = "frozen" if one["frozen"] else "learning"
            table.add_row(plain(one["name"]), state, f"{one['position']:,}", f"{one['sequence']:,}")
        tables().print(table)


@stream.command()
def show(name: Name, token_file: TokenFile = None, server: Server = SERVER, json: Json = None) -> None:
    """Show what is known of a stream."""
    require_place(json)
    with connect(server, token_file) as client:
        found = client.show(name)
    if write_json(json, found):
        _show(found)


@stream.command()
def create(name: Name, token_file: TokenFile = None, server: Server = SERVER, json: Json = None) -> None:
    """Make a stream unless it is there."""
    require_place(json)
    with connect(server, token_file) as client:
        created = client.create(name)
    if write_json(json, created):
        say(f"{name} is there")


@stream.command()
def export(
    name: Name,
    out: Annotated[Path, "A .safetensors file, as --state of pta predict reads it."],
    token_file: TokenFile = None,
    server: Server = SERVER,
) -> None:
    """Write the state of a stream to a file."""
    require_place(out)
    with connect(server, token_file) as client:
        write_atomically(out, client.export_state(name))
    say(f"wrote the state of {name} to {out}")


def _add_command(operation: StreamOperation) -> None:
    """The command of an operation, with its arguments as options."""

    def operate(
        name: str, token_file: Path | None, server: str, json: Path | None, yes: bool = False, **given: Any
    ) -> None:
        require_place(json)
        argument = {name: _content(value) for name, value in given.items() if value not in (None, [])}
        if operation.exactly_one and len(argument) != 1:
            raise InvalidParameter(f"give either {' or '.join(map(_option, operation.arguments))}")
        with connect(server, token_file) as client:
            if operation.confirm and not yes:
                counted = client.operate(name, operation.name, dry_run=True, **argument)
                confirm(f"{operation.name} {name}: {counted['samples']:,} samples concerned")
            done = client.operate(name, operation.name, **argument)
        if "warning" in done:
            warn(f"warning: {done['warning']}")
        if write_json(json, done):
            say(f"{done['operation']} {done['stream']}: {done['samples']:,} samples concerned")

    required = {one.name: (_declared(one), Parameter.empty) for one in operation.arguments if one.required}
    optional = {one.name: (_declared(one), None) for one in operation.arguments if not one.required}
    options: dict[str, tuple[Any, Any]] = {"name": (Name, Parameter.empty), **required, "token_file": (TokenFile, None)}
    options |= {**optional, "server": (Server, SERVER), "json": (Json, None)}
    options |= {"yes": (Yes, False)} if operation.confirm else {}
    declared = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in options.items()
    ]
    operate.__signature__ = Signature(declared)  # type: ignore[attr-defined]
    stream.command(operation.name, help=operation.summary)(operate)


def _option(argument: Argument) -> str:
    return argument.option or f"--{argument.name}"


def _declared(argument: Argument) -> Any:
    """An argument of an operation as one of the command: a file, a moment or a plain value."""
    if argument.kind is bytes:
        return Annotated[Path, typer.Argument(metavar="FILE", help=argument.help)]
    if argument.name == "time":
        moment = "A moment, e.g. 2026-05-01T12:00:00."
        return Annotated[
            float | None, typer.Option(_option(argument), parser=parse_moment, metavar="TIME", help=moment)
        ]
    if not _option(argument).startswith("--"):
        return Annotated[Literal[argument.choices], typer.Argument(help=argument.help)]
    option = typer.Option(_option(argument), help=argument.help, min=argument.bounds.get("minimum"))
    return Annotated[argument.kind if argument.required else argument.kind | None, option]


def _content(given: Any) -> Any:
    if isinstance(given, Path) and not exists(given):
        raise UnreadableFile(f"no such file: {given}")
    return read_sample(given) if isinstance(given, Path) else given


for _operation in OPERATIONS.values():
    if _operation.takes_labels:
        stream.command(_operation.name, help=_operation.summary)(label)
    else:
        _add_command(_operation)
stream.command()(rows)


def _show(found: dict[str, Any]) -> None:
    changed, entropy = found["changed"], found["entropy"]
    print_lines(
        f"{found['name']}: {'frozen' if found['frozen'] else 'learning'}, {found['answers']} answers",
        f"  samples in force  {found['position']:,}",
        f"  last sequence     {found['sequence']:,} at {_moment(found['time'])}",
        f"  answered          {found['answered']:,}, {found['rate']:.1f} per second",
        f"  changed           {_share(changed['100'])} of the last 100, {_share(changed['all'])} of all",
        f"  entropy           {_number(entropy['adapted'])}, zero-shot {_number(entropy['zero_shot'])}",
        *([_corrections(**found["corrections"])] if found["corrections"]["waiting"] else []),
        *(f"  source            {one['source']}: {one['samples']:,}" for one in found["sources"]),
        *(
            f"  {one['kind']:<17} {one['sequence']:,} at {_moment(one['time'])}"
            + ("" if one["in_force"] else ", undone")
            for one in found["timeline"]
        ),
    )


def _corrections(waiting: int, replayed: int, of: int) -> str:
    return f"  labels waiting    {waiting:,}; {replayed:,} of {of:,} samples are replayed"


def _moment(seconds: float | None) -> str:
    return "never" if not seconds else datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
