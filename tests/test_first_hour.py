"""Your first hour leads where it says, with the packaged model and pictures; daily commands run every day."""

import csv
import shlex
from pathlib import Path

import pytest
from snippets import ROOT, commands, python_blocks

MAKE_PICTURES, LOAD_STATE = (one.text for one in python_blocks() if one.page == "first-hour.md")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder with the pictures of the page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTA_MODEL", "embedded")
    monkeypatch.setenv("COLUMNS", "120")
    exec(compile(MAKE_PICTURES, "first-hour.md", "exec"), {})


def read(path):
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def accuracies(text):
    """Of the methods in the table of a trial; an answer may differ between machines."""
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line.startswith("│")]
    return {name: [float(cell.split()[0]) for cell in cells] for name, *cells in rows if len(cells) == 3}


def test_the_page_leads_from_pictures_to_an_answer(pta, capsys):
    said = {}
    for command in (one for one in commands() if one.page == "first-hour.md" and one.text != "pta demo"):
        name, *arguments = shlex.split(command.text)[1:]
        done = pta(name, *arguments)
        assert done.returncode == 0, done.stderr
        said[name] = done.stdout
    assert len(read("labels.csv")) == 500
    page = accuracies((ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8"))
    assert accuracies(said["trial"]) == {name: pytest.approx(shown, abs=1) for name, shown in page.items()}
    assert "<h2>Class by class</h2>" in Path("trial.html").read_text(encoding="utf-8")
    exec(compile(LOAD_STATE, "first-hour.md", "exec"), {})
    assert capsys.readouterr().out.startswith("wpta 500 ")


@pytest.mark.extensive
@pytest.mark.parametrize("command", [one for one in commands() if "--append" in one.text], ids=str)
def test_a_daily_command_runs_every_day(command, pta):
    text = command.text.replace("PHOTOS/", "photos").replace("hf:openai/clip-vit-base-patch16", "embedded")
    _, *arguments = shlex.split(text)
    out = Path(arguments[arguments.index("--out") + 1])
    for day in (1, 2):
        assert pta(*arguments).returncode == 0
        assert len(read(out)) == 500 * day
