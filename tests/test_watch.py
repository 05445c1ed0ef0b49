"""`pta watch` on videos of a region that shows a boot or a shirt: each change once, also when it is killed."""

import csv
import json
import random
import shutil
import signal
import time

import pytest

pytest.importorskip("av", reason="PyAV is not installed")

from doors import BOX, CLASSES, door
from videos import write_video

HOLD, CHANGES = 20, 20
WATCH = ["watch", "door.mp4", "--region", f"door={BOX}", "--classes", CLASSES, "--model", "embedded", "--fps", 5]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watch")
    write_video(folder / "door.mp4", door(CHANGES, HOLD))
    return folder


def rows(path):
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    return [json.loads(line) for line in path.read_text().splitlines()]


def told(path):
    """What no kill may change, region by region; the last bits of probabilities depend on who is answered together."""
    found = [(one["region"], int(one["number"]), one["time"], one["label"], one["previous"]) for one in rows(path)]
    return sorted(found, key=lambda one: one[0])  # which keeps the order within a region


def size(path):
    return path.stat().st_size if path.exists() else 0


def test_every_change_is_told_once_within_confirm_pictures_and_nothing_flickers(pta, place, tmp_path):
    done = pta(*WATCH, "--confirm", 3, "--out", tmp_path / "rows.jsonl", cwd=place)
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "rows.jsonl")
    assert [one["label"] for one in found] == [CLASSES.split(",")[number % 2] for number in range(CHANGES + 1)]
    assert [one["number"] for one in found] == list(range(1, CHANGES + 2))
    for number, one in enumerate(found):
        happened = number * HOLD / 10
        assert 0 <= float(one["time"]) - happened <= 3 / 5  # three pictures, five a second
    assert [one["previous"] for one in found[1:]] == [one["label"] for one in found[:-1]]


def test_a_second_run_has_nothing_to_tell(pta, place, tmp_path):
    command = [*WATCH, "--state", tmp_path / "states", "--out", tmp_path / "rows.csv"]
    assert pta(*command, cwd=place).returncode == 0
    before = (tmp_path / "rows.csv").read_bytes()
    done = pta(*command, cwd=place)
    assert done.returncode == 0
    assert (tmp_path / "rows.csv").read_bytes() == before
    assert "0 changes" in done.stderr


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.extensive)])
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
def test_no_change_is_lost_or_written_twice_when_it_is_killed(commands, pta, place, tmp_path, kills, name):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir(), killed.mkdir()
    twice = [*WATCH, "--region", "again=101,21,118,118"]  # a second stream, whose states are saved at other times
    assert pta(*twice, "--out", whole / name, cwd=place).returncode == 0
    command = [*twice, "--state", killed / "states", "--save-every", 0, "--out", killed / name]
    random_numbers = random.Random(kills)
    while kills:
        wanted, wait = size(killed / name) + random_numbers.randrange(1, 400), random_numbers.uniform(0, 0.1)
        commands.start(*command, folder=place)
        while commands.is_running(0.0005) and size(killed / name) < wanted:
            pass
        time.sleep(wait)
        code, said = commands.kill(), commands.stderr.read()
        assert code in (0, -signal.SIGKILL), said
        kills -= code != 0
        if code == 0:  # it was quicker
            assert told(killed / name) == told(whole / name)
            (killed / name).unlink()
            shutil.rmtree(killed / "states")
    assert pta(*command, cwd=place).returncode == 0
    assert told(killed / name) == told(whole / name)
