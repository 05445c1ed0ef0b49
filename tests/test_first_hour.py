"""Your first hour leads where it says, with the packaged model and pictures; daily commands run every day."""

import csv
import shlex
from pathlib import Path

import pytest
from photos import FASHION
from snippets import commands, python_blocks

MAKE_PICTURES, LOAD_STATE = (one.text for one in python_blocks() if one.page == "first-hour.md")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder with the pictures of the page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTA_MODEL", "embedded")
    exec(compile(MAKE_PICTURES, "first-hour.md", "exec"), {})


def read(path):
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_page_leads_from_pictures_to_an_answer(pta, capsys):
    said = {}
    for command in (one for one in commands() if one.page == "first-hour.md"):
        name, *arguments = shlex.split(command.text)[1:]
        done = pta(name, *arguments)
        assert done.returncode == 0, done.stderr
        said[name] = done.stdout
    assert len(read("labels.csv")) == 400
    rows = read("answers/pta-1.csv")
    assert len(rows) == 100
    assert all(Path("labelled", row["path"]).is_file() for row in rows)
    assert all(row["path"].startswith(f"{row['true_class']}/") for row in rows)
    assert {row["predicted_class"] for row in rows} <= set(FASHION.class_names)
    assert "labelled, A clip, B pta:" in said["compare"]
    exec(compile(LOAD_STATE, "first-hour.md", "exec"), {})
    assert capsys.readouterr().out.startswith("wpta 400 ")


@pytest.mark.extensive
@pytest.mark.parametrize("command", [one for one in commands() if "--append" in one.text], ids=str)
def test_a_daily_command_runs_every_day(command, pta):
    text = command.text.replace("PHOTOS/", "photos").replace("hf:openai/clip-vit-base-patch16", "embedded")
    _, *arguments = shlex.split(text)
    out = Path(arguments[arguments.index("--out") + 1])
    for day in (1, 2):
        assert pta(*arguments).returncode == 0
        assert len(read(out)) == 400 * day
