"""Every command and every snippet of "Your first hour" runs as printed, with the packaged model and pictures."""

import csv
import re
import shlex
from pathlib import Path

import pytest
from photos import FASHION

PAGE = (Path(__file__).parents[1] / "docs" / "first-hour.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(python)?\n(.*?)```", PAGE, flags=re.DOTALL)
NOT_RUN = {"make": "installs", "pip": "installs", ".": "is for a shell", "export": "is set by the test"}


@pytest.fixture(scope="module")
def commands():
    """The commands of `pta` on the page, in their order."""
    lines = [shlex.split(line, comments=True) for kind, block in BLOCKS if not kind for line in block.splitlines()]
    assert {line[0] for line in lines} == {"pta", *NOT_RUN}
    return [line[1:] for line in lines if line[0] == "pta"]


def run_snippet(number, capsys):
    exec(compile([block for kind, block in BLOCKS if kind][number], "first-hour.md", "exec"), {})
    return capsys.readouterr().out


def test_the_page_leads_from_pictures_to_an_answer(commands, pta, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTA_MODEL", "embedded")
    run_snippet(0, capsys)
    assert len(list(Path("labelled").rglob("*.png"))) == 100
    done = {}
    for command in commands:
        done[command[0]] = pta(*command)
        assert done[command[0]].returncode == 0, done[command[0]].stderr
    with open("labels.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == 400
    assert "pta 400" in run_snippet(1, capsys)
    with open("answers/pta-1.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(Path("labelled", row["path"]).is_file() for row in rows)
    assert all(row["path"].startswith(f"{row['true_class']}/") for row in rows)
    assert {row["predicted_class"] for row in rows} <= set(FASHION.class_names)
    assert "labelled, A clip, B pta:" in done["compare"].stdout


def test_the_daily_command_runs_every_day(commands, pta, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTA_MODEL", "embedded")
    run_snippet(0, capsys)
    (daily,) = (command for command in commands if "--append" in command)
    for day in (1, 2):
        assert pta(*daily).returncode == 0
        assert len(Path("daily.csv").read_text().splitlines()) == 1 + 400 * day
    assert "pta 800" in run_snippet(1, capsys)
