"""The commands and examples of docs/serve.md, with a running service in the place of the reader's."""

import re
import shlex
import shutil
import subprocess

import pytest
from photos import FASHION, write_photos
from serve_load import TOKEN, Server
from snippets import ROOT, commands, python_blocks

from pta.models import EmbeddedEncoder

PAGE = ROOT / "docs" / "serve.md"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """The service, and the folder in which the reader sits: with the data folder `state` and a picture."""
    folder = tmp_path_factory.mktemp("reader")
    classes = ("--model", "embedded", "--classes", ",".join(FASHION.class_names))
    with Server(folder / "service", *classes) as server:
        (folder / "state").symlink_to(server.data)
        (server.data / "token").write_text(TOKEN)
        shutil.copy(write_photos(folder / "photos", 1)[0][0], folder / "photo.jpg")
        yield server, folder


def at(service, text):
    """An example for this service: its port, and the features of its model."""
    text = text.replace("8080", str(service[0].port))
    return re.sub(r"\b512\b", str(EmbeddedEncoder.load().dim), text)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_the_request_with_curl_is_answered(service):
    (block,) = re.findall(r"^```\n(curl .*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    done = subprocess.run(["bash", "-c", at(service, block)], cwd=service[1], capture_output=True, text=True)
    assert '"learned":true' in done.stdout, done


@pytest.mark.parametrize("example", [one for one in python_blocks() if one.page == PAGE.name], ids=str)
def test_an_example_is_answered(service, example, monkeypatch, capsys):
    if "tritonclient" in example.text:
        pytest.importorskip("tritonclient.http", reason="tritonclient is not installed")
    monkeypatch.chdir(service[1])
    exec(compile(at(service, example.text), str(example), "exec"), {})
    printed = capsys.readouterr().out
    assert any(name in printed for name in FASHION.class_names)


def test_the_commands_for_streams_and_the_journal_run(service, pta, monkeypatch):
    server, folder = service
    label = FASHION.class_names[0]
    monkeypatch.setenv("PTA_SERVER", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("PTA_TOKEN_FILE", str(folder / "state" / "token"))
    (folder / "labels.csv").write_text(f"id,label\ndoor-1-000017,{FASHION.class_names[1]}\n")
    for command in (one for one in commands() if one.page == PAGE.name and not one.text.startswith("pta serve")):
        arguments = shlex.split(command.text.replace("12000", "0").replace("17 --label cat", f"1 --label '{label}'"))[
            1:
        ]
        asked = arguments[1] in ("rewind", "unlearn", "undo", "label")
        done = pta(*arguments, *(["--yes"] if asked else []), cwd=folder)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
