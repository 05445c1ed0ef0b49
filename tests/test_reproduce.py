"""`pta reproduce` as a real command: what it fills in, that it does nothing twice, and that a kill changes nothing."""

import csv
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from miniatures import build

from pta.reproduction.declaration import packaged_experiments
from pta.reproduction.world import load_world

CROSS_DOMAIN = load_world("paper").members("cross-domain")
WRITTEN = ("md", "csv", "tex")

PTA = [sys.executable, "-c", "from pta.cli import main; main()"]

COUNTED = '''
import sys, time
from pathlib import Path
from pta.adapters import CLIP, register
from pta.cli import main
from pta.parameters import number


@register
class Counted(CLIP):
    """CLIP that takes its time, and writes a line for every stream."""

    name = "counted"

    bias: float = number(0.0, 0.0, 9.0, "not used")

    def _step(self, samples):
        if len(samples) > 16:  # more than a warm-up
            with Path(sys.argv[0]).with_suffix(".lines").open("a") as file:
                file.write(f"{samples.features[0, 0].item():.9g}\\n")
            time.sleep(0.05)
        return super()._step(samples)


main()
'''

OWN = """
title = "Two methods"
place = "Table 0"
baseline = "CLIP"
usual = { seeds = 40 }
columns = [{ each = "cross-domain" }, { label = "Average", mean_of = "all" }]
rows = [
    { label = "CLIP", method = "clip" },
    { label = "PTA", method = "pta", params = { h = 3 } },
    { label = "spread", method = "pta", params = { h = 3 }, statistic = "deviation" },
]
figure = { kind = "bars", columns = "Average" }
"""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A cache of texts and one thread, for this process and those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTA_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """Feature files of two of the paper's datasets and one other; of every ten samples, zero-shot gets seven right."""
    folder = tmp_path_factory.mktemp("features")
    rng = np.random.default_rng(3)
    anchors = np.eye(4, 8)
    for name in ("dtd", "eurosat", "kitchen"):
        labels = rng.integers(4, size=50)
        shown = np.where(np.arange(50) % 10 < 7, labels, (labels + 1) % 4)
        images = anchors[shown] + 0.2 * rng.random((50, 8))
        names = np.array(list("abcd"))
        np.savez(folder / f"{name}.npz", image_features=images, text_features=anchors, labels=labels, classnames=names)
    return folder


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    return path


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Two of the ten sets, as tiny JPEG files."""
    folder = tmp_path_factory.mktemp("data")
    for source in ("dtd", "eurosat"):
        build(source, folder)
    return folder


def tables(out, id="own"):
    return {ending: (out / f"{id}.{ending}").read_bytes() for ending in WRITTEN}


def results(out):
    """Key → (when it was made, method)."""
    with sqlite3.connect(out / "results.sqlite") as store:
        rows = store.execute("SELECT key, made, json_extract(inputs, '$.method') FROM results").fetchall()
    return {key: (made, method) for key, made, method in rows}


def count_of(out):
    try:
        return len(results(out))
    except sqlite3.OperationalError:  # not there yet, or just being made
        return 0


def refused(done, *words):
    """Exit code 2 and one line on stderr that holds the words."""
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr
    return True


# -- the paper's world, from images ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table1(root, tmp_path_factory):
    """A real process that fills in Table 1 from the two sets that are there."""
    out = tmp_path_factory.mktemp("table1") / "out"
    command = [*PTA, "reproduce", "table1", "--data", root, "--model", "embedded", "--out", out, "--seeds", 1]
    done = subprocess.run([*map(str, command), "--json", "-"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (table,) = json.loads(done.stdout)
    return SimpleNamespace(out=out, table=table, err=done.stderr)


def test_a_table_is_filled_in_where_there_is_data_and_says_what_there_is_not(table1):
    rows = {row["label"]: row for row in table1.table["rows"]}
    for label in ("CLIP", "PTA", "MTA", "TCA"):
        cells = rows[label]["cells"]
        for there in ("DTD", "EuroSAT"):
            assert 0 <= cells[there]["ours"] <= 100
            assert cells[there]["difference"] == cells[there]["ours"] - cells[there]["paper"]
            assert len(cells[there]["results"]) == 1
        assert (cells["Flowers"]["ours"], cells["Flowers"]["missing"]) == (None, "no data")
        assert cells["Average"]["partial"] == "2 of 10"
    assert rows["PTA"]["cells"]["Average"]["paper"] == pytest.approx((47.70 + 61.57) / 2)
    assert rows["TPT"]["cells"]["DTD"] | {"paper": 0, "printed": 0} == {
        **dict.fromkeys(("ours", "difference", "erratum", "partial")),
        **{"paper": 0, "printed": 0, "missing": "not yet", "results": []},
    }
    assert set(table1.table["absent"]) == set(CROSS_DOMAIN) - {"dtd", "eurosat"}
    assert table1.table["comparable"] is True
    assert "At most 1 seeds a row, of 3." in table1.table["notes"]
    assert "Made with embedded; the paper's numbers are those of ViT-B/16." in table1.table["notes"]


def test_every_format_and_the_report_are_written_and_nothing_else_is_left(table1):
    names = {path.name for path in table1.out.iterdir()}
    assert names == {*(f"table1.{one}" for one in WRITTEN), "report.html", "results.sqlite", "features", "claims"}
    kinds = sorted(path.stem.split("-", 2)[2:] for path in (table1.out / "features").glob("dtd-*.safetensors"))
    assert kinds == [[], ["64-crops"], ["pixels"]]
    assert not list((table1.out / "features").glob("*.parts"))
    assert str(table1.out / "report.html") in table1.err


def test_a_second_call_does_nothing_and_another_experiment_shares_what_is_there(table1, root, pta, own):
    before, made = tables(table1.out, "table1"), results(table1.out)
    extracted = {path: path.stat().st_mtime_ns for path in (table1.out / "features").glob("*.safetensors")}
    options = ("--data", root, "--model", "embedded", "--out", table1.out)
    again = pta("reproduce", "table1", *options, "--seeds", 1)
    assert again.returncode == 0
    assert "no data" in again.stdout
    assert "not yet" in again.stdout
    assert tables(table1.out, "table1") == before
    assert results(table1.out) == made
    assert pta("reproduce", own, *options, "--seeds", 2).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in (table1.out / "features").glob("*.safetensors")} == extracted
    new = [method for key, (_, method) in results(table1.out).items() if key not in made]
    assert sorted(new) == ["clip"] * 2 + ["pta"] * 4  # CLIP's seed 1 was there, PTA's with the paper's parameters was
    assert (table1.out / "own.svg").read_text().startswith("<svg")


# -- feature files -----------------------------------------------------------------------------------------------------


def test_feature_files_of_the_papers_datasets_fill_its_columns(pta, features, own, tmp_path):
    out = tmp_path / "out"
    files = ("--features", features / "dtd.npz", "--features", features / "eurosat.npz")
    done = pta("reproduce", own, *files, "--out", out, "--seeds", 1, "--json", "-")
    assert done.returncode == 0, done.stderr
    (table,) = json.loads(done.stdout)
    clip, moved, spread = table["rows"]
    assert clip["cells"]["DTD"]["ours"] == clip["cells"]["EuroSAT"]["ours"] == clip["cells"]["Average"]["ours"] == 70.0
    assert moved["gain"]["ours"] == pytest.approx(moved["cells"]["Average"]["ours"] - 70.0)
    assert spread["cells"]["DTD"]["missing"] == "one seed"
    assert table["about"] == {"model": "none was needed", "feature files": "dtd, eurosat"}
    assert len(results(out)) == 4


def test_other_feature_files_are_refused_with_advice(pta, features, tmp_path):
    done = pta("reproduce", "table1", "--features", features, "--out", tmp_path / "out")
    assert refused(done, "kitchen is not one of the paper's datasets; --offline runs the experiments on it")
    assert not (tmp_path / "out").exists()


def test_offline_they_join_the_columns_and_only_gains_are_compared(pta, features, own, tmp_path, monkeypatch):
    offline = load_world("offline")
    tiny = replace(offline, groups={**offline.groups, "cross-domain": ("fashion/rotate/3/6",)})
    monkeypatch.setattr("pta.reproduction.world.load_world", {"offline": tiny}.__getitem__)
    printed = OWN.replace('"clip"', f'"clip", printed = {[50] * 11}')
    own.write_text(printed.replace('"pta"', f'"pta", printed = {[53] * 11}', 1))
    call = ("reproduce", own, "--offline", "--features", features / "kitchen.npz", "--seeds", 1)
    done = pta(*call, "--out", tmp_path / "out", "--json", tmp_path / "own.json")
    assert done.returncode == 0, done.stderr
    (table,) = json.loads((tmp_path / "own.json").read_text())
    clip, moved, _ = table["rows"]
    assert list(clip["cells"]) == ["fashion/rotate/3/6", "kitchen", "Average"]
    assert clip["cells"]["kitchen"]["ours"] == 70.0
    assert table["comparable"] is False
    assert moved["gain"]["paper"] == 3
    assert "53" not in done.stdout
    assert "paper +3.00" in done.stdout
    assert set(table["about"]) == {"model", "architecture", "model fingerprint", "feature files"}


# -- once, whatever happens --------------------------------------------------------------------------------------------


def started(*arguments):
    return subprocess.Popen(list(map(str, arguments)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def test_a_killed_run_goes_on_to_the_tables_of_an_undisturbed_one(pta, features, own, tmp_path):
    files = ("--features", features / "dtd.npz", "--features", features / "eurosat.npz")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert pta("reproduce", own, *files, "--out", whole).returncode == 0
    process = started(*PTA, "reproduce", own, *files, "--out", killed)
    while count_of(killed) < 5 and process.poll() is None:
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    made = results(killed)
    assert 5 <= len(made) < len(results(whole)) == 160
    assert not (killed / "own.md").exists()
    assert pta("reproduce", own, *files, "--out", killed).returncode == 0
    assert tables(killed) == tables(whole)
    assert made.items() <= results(killed).items()  # nothing that was there has been made again
    assert results(killed).keys() == results(whole).keys()


def test_two_processes_share_the_work_and_write_the_same_tables(features, own, tmp_path):
    own.write_text(OWN.replace("seeds = 40", "seeds = 15").replace('"pta", params = { h = 3 }', '"counted"'))
    script, out = tmp_path / "counted.py", tmp_path / "out"
    script.write_text(COUNTED)
    command = [sys.executable, script, "reproduce", own, "--features", features / "dtd.npz", "--out", out, "--json"]
    both = [started(*command, tmp_path / f"{number}.json") for number in range(2)]
    for process in both:
        _, complaint = process.communicate(timeout=120)
        assert process.returncode == 0, complaint
    lines = (tmp_path / "counted.lines").read_text().splitlines()
    assert len(lines) == 15  # the spread's are those of the row above it
    assert (tmp_path / "0.json").read_bytes() == (tmp_path / "1.json").read_bytes()
    with (out / "own.csv").open() as file:
        accuracies = {line["row"]: line["ours"] for line in csv.DictReader(file) if line["dataset"] == "DTD"}
    assert float(accuracies["PTA"]) == 70.0
    assert float(accuracies["spread"]) == 0.0


def test_another_parameter_makes_its_own_cells_again_and_no_others(pta, features, own, tmp_path):
    out = tmp_path / "out"
    call = ("reproduce", own, "--features", features / "dtd.npz", "--out", out, "--seeds", 2)
    assert pta(*call).returncode == 0
    first = results(out)
    own.write_text(OWN.replace("params = { h = 3 }", "params = { h = 4 }", 1))
    assert pta(*call).returncode == 0
    second = results(out)
    assert first.items() <= second.items()
    assert [second[key][1] for key in second.keys() - first.keys()] == ["pta", "pta"]
    own.write_text(OWN)
    assert pta(*call).returncode == 0
    assert results(out) == second


# -- options and mistakes ----------------------------------------------------------------------------------------------


def test_the_list_is_whole_and_says_what_is_awaited(pta):
    done = pta("reproduce", "--list", "--json", "-")
    listed = json.loads(done.stdout)
    assert [one["id"] for one in listed] == list(packaged_experiments())
    assert "tpt" in listed[packaged_experiments().index("table1")]["not_yet"]
    assert all(one["rows"] for one in listed)
    assert pta("reproduce", "--list").stdout.count("\n") > len(listed)


def test_mistakes_are_one_line_and_leave_nothing_behind(pta, features, own, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    damaged = tmp_path / "pets.npz"
    damaged.write_bytes((features / "dtd.npz").read_bytes()[:500])
    (tmp_path / "table1.toml").write_text(OWN)
    (tmp_path / "wrong.toml").write_text(OWN.replace('"clip"', '"clip", printed = [1, 2]'))
    (tmp_path / "none").mkdir()
    before = sorted(tmp_path.rglob("*"))
    dtd = ("--features", features / "dtd.npz")
    for arguments, *words in (
        (("tabel1", *dtd), "no experiment is called 'tabel1'; did you mean 'table1'?"),
        (dtd, "which experiment?", "--list", "--all"),
        (("table1",), "nothing to run on", "--data", "--features", "--offline"),
        (("table1", "--data", "nowhere"), "--data nowhere: no such folder"),
        (("table1", "--data", damaged), "no such folder"),
        (("table1", "--features", damaged), "pets.npz cannot be read"),
        (("table1", "--features", "none"), "no feature files"),
        (("table1", *dtd, *dtd), "two feature files are called dtd"),
        (("table1", "table1.toml", *dtd), "two experiments are called table1"),
        (("wrong.toml", *dtd), "experiment wrong: CLIP has 2 printed numbers for 11 columns"),
        ((own, *dtd, "--out", damaged), "cannot make the folder"),
        ((own, *dtd, "--out", "/proc/none"), "cannot make the folder /proc/none"),
        ((own, *dtd, "--json", "nowhere/x.json"), "nowhere does not exist"),
        ((own, *dtd, "--seeds", "0"), "--seeds"),
    ):
        assert refused(pta("reproduce", *arguments), *words)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_model_that_is_not_here_stops_the_run_and_not_a_table_of_feature_files(pta, root, features, own, tmp_path):
    missing = ("--model", "hf:nobody/nothing", "--seeds", 1)
    assert pta("reproduce", own, "--features", features / "dtd.npz", *missing, "--out", tmp_path / "a").returncode == 0
    assert refused(pta("reproduce", own, "--data", root, *missing, "--out", tmp_path / "b"), "nobody/nothing")
    assert not (tmp_path / "b" / "own.md").exists()


def test_ones_own_experiment_is_about_ones_own_files_and_its_numbers_are_theirs(pta, features, tmp_path):
    mine = tmp_path / "mine.toml"
    rows = 'rows = [{ label = "CLIP", method = "clip", seeds = 1, printed = [69.5, 69.0] }]'
    mine.write_text(f'title = "t"\ncolumns = [{{ each = "own" }}, {{ label = "Average", mean_of = "all" }}]\n{rows}')
    call = ("reproduce", mine, "--offline", "--out", tmp_path / "out", "--json", tmp_path / "mine.json")
    done = pta(*call, "--features", features / "kitchen.npz")
    assert done.returncode == 0, done.stderr
    (table,) = json.loads((tmp_path / "mine.json").read_text())
    cells = table["rows"][0]["cells"]
    assert list(cells) == ["kitchen", "Average"]
    assert (cells["kitchen"]["ours"], cells["kitchen"]["difference"]) == (70.0, 0.5)
    assert table["notes"] == []
    assert "nothing is in the group 'own'; name feature files" in pta(*call).stderr
