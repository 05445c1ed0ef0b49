"""Every operation of the table has a route, a call of the client, a command, an entry in both documents."""

import inspect
import json
from pathlib import Path

import pytest
from serving import open_service
from typer.main import get_command

from pta.cli.stream import stream
from pta.serve.client import Client
from pta.serve.http.app import create_app
from pta.serve.http.security import HttpSettings
from pta.serve.operations import LABELS, OPERATIONS
from pta.serve.streams.operating import Operating

PAGE = Path(__file__).parent.parent / "docs" / "serve.md"


@pytest.fixture(scope="module")
def document():
    with open_service(None) as service:
        app = create_app(service, HttpSettings("correct-horse-battery"))
        return json.loads(app.endpoints["/openapi.json"]["GET"].answer.body)


@pytest.fixture(params=OPERATIONS.values(), ids=OPERATIONS)
def operation(request):
    return request.param


def test_it_has_a_route_that_the_document_describes(document, operation):
    described = document["paths"][operation.path][operation.method.lower()]
    assert described["summary"] == operation.summary
    assert "dry_run" in [parameter["name"] for parameter in described["parameters"]]
    body = described.get("requestBody", {"content": {}})["content"]
    if operation.takes_file:
        assert [*body] == ["application/octet-stream"]
    elif operation.arguments:
        schema = document["components"]["schemas"][operation.name.title()]
        assert {*schema["properties"]} == {argument.name for argument in operation.arguments}
        assert {*schema.get("required", [])} == {one.name for one in operation.arguments if one.required}
        assert schema["additionalProperties"] is False
        is_needed = operation.exactly_one or any(argument.required for argument in operation.arguments)
        assert described["requestBody"].get("required", False) is is_needed
        assert "$ref" in body["application/json"]["schema"]
    else:
        assert body == {}


def test_the_client_sends_it_to_its_route(operation, monkeypatch):
    sent = []
    monkeypatch.setattr(Client, "_json", lambda self, method, path, *body: sent.append((method, path)))
    given = {argument.name: b"" if argument.kind is bytes else None for argument in operation.arguments}
    Client("http://localhost", "token").operate("a.b", operation.name, dry_run=True, **given)
    assert sent == [(operation.method, operation.path.format(name="a.b") + "?dry_run=true")]


def with_options(operation):
    """The arguments that are no files; samples and labels have options or a file of their own."""
    return [argument for argument in operation.arguments if argument.kind not in (bytes, LABELS)]


def test_it_has_a_command_with_its_arguments(operation):
    command = get_command(stream).commands[operation.name]
    assert command.help == operation.summary
    names = {parameter.name: parameter.opts for parameter in command.params}
    for argument in with_options(operation):
        assert names[argument.name] == [argument.option or f"--{argument.name}"]
    assert ("yes" in names) == operation.confirm


def test_the_service_does_it(operation):
    taken = [*inspect.signature(getattr(Operating, f"_{operation.name}")).parameters][1:]
    assert taken == [argument.name for argument in operation.arguments]


def test_the_page_lists_it(operation):
    options = [argument.option or f"--{argument.name}" for argument in with_options(operation)]
    told = ", ".join(f"`{option}`" for option in options)
    assert f"| `{operation.name}` | {operation.summary} | {told} |" in PAGE.read_text(encoding="utf-8")


def test_the_page_lists_no_other():
    table = PAGE.read_text(encoding="utf-8").partition("| operation | what it does |")[2].partition("\n\n")[0]
    assert [line.split("`")[1] for line in table.splitlines() if "`" in line] == [*OPERATIONS]
