"""What the commands of `pta stream` share: their options, the client, and the question before a change."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from pta.errors import InvalidParameter
from pta.serve.client import Client
from pta.serve.http.security import read_token

Server = Annotated[str, "Address of the service.", typer.Option(envvar="PTA_SERVER")]
TokenFile = Annotated[
    Path | None, "File with its token: token in its data folder; required.", typer.Option(envvar="PTA_TOKEN_FILE")
]
Json = Annotated[Path | None, "Write the answer as JSON; - for stdout."]
Yes = Annotated[bool, "Do not ask."]
Name = Annotated[str, typer.Argument(metavar="STREAM")]

SERVER = "http://127.0.0.1:8080"


def connect(server: str, token_file: Path | None) -> Client:
    """A client of the service."""
    if token_file is None:
        raise InvalidParameter(
            "--token-file (or PTA_TOKEN_FILE) is required: the file token in the data folder of a running pta serve, "
            f"whose address is --server (or PTA_SERVER), now {server}"
        )
    return Client(server, read_token(token_file), retries=0)


def confirm(concerned: str) -> None:
    """Ask whether to go on; nobody to ask is an error."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidParameter(f"{concerned}; --yes does it without asking")
    typer.confirm(f"{concerned}. Go on?", abort=True, err=True)
