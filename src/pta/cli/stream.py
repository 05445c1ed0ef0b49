"""`pta stream`: the streams of a running service, listed, shown and changed."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pta.cli.messages import say
from pta.cli.output import plain, print_lines, require_place, tables, write_json
from pta.door.files import read_sample, write_atomically
from pta.errors import InvalidParameter
from pta.serve.client import Client
from pta.serve.http.security import read_token

stream = typer.Typer(
    name="stream",
    help="List, show and change the streams of a running service.",
    add_completion=False,
    no_args_is_help=True,
)

Server = Annotated[str, typer.Option(envvar="PTA_SERVER", help="Address of the service.")]
TokenFile = Annotated[
    Path | None, typer.Option(envvar="PTA_TOKEN_FILE", help="File with its token: token in its data folder; required.")
]
Json = Annotated[Path | None, typer.Option(help="Write the answer as JSON; - for stdout.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Name = Annotated[str, typer.Argument(metavar="STREAM")]

SERVER = "http://127.0.0.1:8080"


@stream.command("list")
def list_(token_file: TokenFile = None, server: Server = SERVER, json: Json = None) -> None:
    """List the streams."""
    require_place(json)
    with _client(server, token_file) as client:
        found = client.streams()
    if write_json(json, found):
        table = Table("stream", "state")
        table.add_column("learned", justify="right")
        table.add_column("last sequence", justify="right")
        for one in found:
            state = "frozen" if one["frozen"] else "learning"
            table.add_row(plain(one["name"]), state, f"{one['position']:,}", f"{one['sequence']:,}")
        tables().print(table)


@stream.command()
def show(name: Name, token_file: TokenFile = None, server: Server = SERVER, json: Json = None) -> None:
    """Show what is known of a stream."""
    require_place(json)
    with _client(server, token_file) as client:
        found = client.show(name)
    if write_json(json, found):
        _show(found)


@stream.command()
def create(name: Name, token_file: TokenFile = None, server: Server = SERVER, json: Json = None) -> None:
    """Make a stream unless it is there."""
    require_place(json)
    with _client(server, token_file) as client:
        created = client.create(name)
    if write_json(json, created):
        say(f"{name} is there")


@stream.command()
def freeze(name: Name, token_file: TokenFile = None, server: Server = SERVER, json: Json = None) -> None:
    """Let a stream answer and learn nothing."""
    _operate(name, "freeze", {}, server, token_file, json, yes=True)


@stream.command()
def thaw(name: Name, token_file: TokenFile = None, server: Server = SERVER, json: Json = None) -> None:
    """Let a stream learn again."""
    _operate(name, "thaw", {}, server, token_file, json, yes=True)


@stream.command()
def reset(
    name: Name,
    token_file: TokenFile = None,
    class_: Annotated[list[str] | None, typer.Option("--class", help="Only this class; may be repeated.")] = None,
    server: Server = SERVER,
    json: Json = None,
    yes: Yes = False,
) -> None:
    """Forget what a stream has learned, or what it has learned about some classes."""
    _operate(name, "reset", {"classes": class_} if class_ else {}, server, token_file, json, yes)


@stream.command()
def rewind(
    name: Name,
    token_file: TokenFile = None,
    sequence: Annotated[int | None, typer.Option(min=0, help="The last sample that stays.")] = None,
    to: Annotated[str | None, typer.Option(metavar="TIME", help="A moment, e.g. 2026-05-01T12:00:00.")] = None,
    server: Server = SERVER,
    json: Json = None,
    yes: Yes = False,
) -> None:
    """Bring a stream back to a moment."""
    if (sequence is None) == (to is None):
        raise InvalidParameter("give either --sequence or --to")
    moment = {"sequence": sequence} if to is None else {"time": _seconds(to)}
    _operate(name, "rewind", moment, server, token_file, json, yes)


@stream.command()
def unlearn(
    name: Name,
    source: Annotated[str, typer.Option(help="Whose samples.")],
    token_file: TokenFile = None,
    erase: Annotated[
        bool, typer.Option("--erase", help="Also remove them from the files, which cannot be undone.")
    ] = False,
    server: Server = SERVER,
    json: Json = None,
    yes: Yes = False,
) -> None:
    """Make a stream as if the samples of a source had never come."""
    _operate(name, "unlearn", {"source": source, "erase": erase}, server, token_file, json, yes)


@stream.command()
def undo(
    name: Name, token_file: TokenFile = None, server: Server = SERVER, json: Json = None, yes: Yes = False
) -> None:
    """Undo the last reset, rewind, unlearn or import; samples learned since then stay."""
    _operate(name, "undo", {}, server, token_file, json, yes)


@stream.command()
def export(
    name: Name,
    out: Annotated[Path, typer.Option(help="A .safetensors file, as --state of pta predict reads it.")],
    token_file: TokenFile = None,
    server: Server = SERVER,
) -> None:
    """Write the state of a stream to a file."""
    require_place(out)
    with _client(server, token_file) as client:
        write_atomically(out, client.export_state(name))
    say(f"wrote the state of {name} to {out}")


@stream.command("import")
def import_(
    name: Name,
    file: Annotated[Path, typer.Argument(help="A state that was exported, or that pta predict --state wrote.")],
    token_file: TokenFile = None,
    server: Server = SERVER,
    json: Json = None,
    yes: Yes = False,
) -> None:
    """Let a stream go on from the state in a file."""
    content = read_sample(file)
    require_place(json)
    with _client(server, token_file) as client:
        if not yes:
            _confirm("import", name, client.import_state(name, content, dry_run=True)["samples"])
        _report(client.import_state(name, content), json)


@stream.command()
def delete(
    name: Name, token_file: TokenFile = None, server: Server = SERVER, json: Json = None, yes: Yes = False
) -> None:
    """Erase a stream and its files, which cannot be undone."""
    require_place(json)
    with _client(server, token_file) as client:
        if not yes:
            _confirm("delete", name, client.delete(name, dry_run=True)["samples"])
        _report(client.delete(name), json)


def _client(server: str, token_file: Path | None) -> Client:
    if token_file is None:
        raise InvalidParameter(
            "--token-file (or PTA_TOKEN_FILE) is required: the file token in the data folder of a running pta serve, "
            f"whose address is --server (or PTA_SERVER), now {server}"
        )
    return Client(server, read_token(token_file), retries=0)


def _operate(
    name: str,
    operation: str,
    argument: dict[str, Any],
    server: str,
    token_file: Path | None,
    json: Path | None,
    yes: bool,
) -> None:
    require_place(json)
    with _client(server, token_file) as client:
        if not yes:
            _confirm(operation, name, client.operate(name, operation, dry_run=True, **argument)["samples"])
        _report(client.operate(name, operation, **argument), json)


def _confirm(operation: str, name: str, samples: int) -> None:
    """Ask whether to go on; nobody to ask is an error."""
    concerned = f"{operation} {name}: {samples:,} samples concerned"
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidParameter(f"{concerned}; --yes does it without asking")
    typer.confirm(f"{concerned}. Go on?", abort=True, err=True)


def _report(done: dict[str, Any], json: Path | None) -> None:
    if write_json(json, done):
        say(f"{done['operation']} {done['stream']}: {done['samples']:,} samples concerned")


def _seconds(given: str) -> float:
    """Seconds since 1970 of a moment, in local time unless it names another zone."""
    try:
        return datetime.fromisoformat(given).timestamp()
    except (ValueError, OverflowError, OSError):
        raise InvalidParameter(f"--to {given}: expected a moment such as 2026-05-01T12:00:00") from None


def _show(found: dict[str, Any]) -> None:
    changed, entropy = found["changed"], found["entropy"]
    print_lines(
        f"{found['name']}: {'frozen' if found['frozen'] else 'learning'}",
        f"  samples in force  {found['position']:,}",
        f"  last sequence     {found['sequence']:,} at {_moment(found['time'])}",
        f"  answered          {found['answered']:,}, {found['rate']:.1f} per second",
        f"  changed           {_share(changed['100'])} of the last 100, {_share(changed['all'])} of all",
        f"  entropy           {_number(entropy['adapted'])}, zero-shot {_number(entropy['zero_shot'])}",
        *(f"  source            {one['source']}: {one['samples']:,}" for one in found["sources"]),
        *(
            f"  {one['kind']:<17} {one['sequence']:,} at {_moment(one['time'])}"
            + ("" if one["in_force"] else ", undone")
            for one in found["timeline"]
        ),
    )


def _moment(seconds: float | None) -> str:
    return "never" if not seconds else datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
