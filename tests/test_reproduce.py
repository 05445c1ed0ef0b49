"""`pta reproduce`: what it fills in, and that it does nothing twice, whoever interrupts it."""

import json
import os
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from miniatures import build
from safetensors.numpy import save_file

from pta.measure.cached_evaluation import evaluate_once
from pta.measure.reproduce import plan  # noqa: F401  (imported before a test replaces load_profile, of which it has its own)
from pta.measure.reproduce.declaration import PACKAGED
from pta.measure.reproduce.profile import load_profile

CROSS_DOMAIN = load_profile("paper").members("cross-domain")
WRITTEN = ("md", "csv")
# The kernel refuses root, and `pta` looks first whether others may write there.
CANNOT_MAKE_A_FOLDER_IN_PROC = (
    "cannot make the folder /proc/none" if os.geteuid() == 0 else "cannot write to /proc: permission denied"
)

OWN = """
title = "Two methods"
place = "Table 0"
baseline = "CLIP"
usual = { seeds = 20 }
columns = [{ each = "cross-domain" }, { label = "Average", mean_of = "all" }]
rows = [
    { label = "CLIP", method = "clip" },
    { label = "PTA", method = "pta", params = { h = 3 } },
    { label = "spread", method = "pta", params = { h = 3 }, statistic = "deviation" },
]
figure = { kind = "bars", columns = "Average" }
"""


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


def table_of(done):
    assert done.returncode == 0, done.stderr
    (table,) = json.loads(done.stdout)
    return table


def extracted(out):
    """When each file of features was made."""
    return {path.stem: path.stat().st_mtime_ns for path in (out / "features").glob("*.safetensors")}


def refused(done, *words):
    """Exit code 2 and one line on stderr that holds the words."""
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert all(word in done.stderr for word in words)
    return True


# -- the paper's profile, from images ----------------------------------------------------------------------------------


@pytest.mark.extensive
def test_a_table_is_filled_in_where_there_is_data_and_nothing_is_done_twice(pta, root, own, tmp_path):
    out = tmp_path / "table1"
    options = ("--data", root, "--model", "embedded", "--out", out)
    done = pta("reproduce", "table1", *options, "--seeds", 1, "--json", "-")
    table = table_of(done)
    rows = {row["label"]: row for row in table["rows"]}
    for label in (
        "CLIP",
        "PTA",
        "MTA",
        "TCA",
        "TPT",
        "DiffTPT (no diffusion)",
        "DPE (CLIP's prompts)",
        "HisTPT",
        "GS-Bias",
    ):
        cells = rows[label]["cells"]
        for there in ("DTD", "EuroSAT"):
            assert 0 <= cells[there]["ours"] <= 100
            ours, paper = cells[there]["ours"], cells[there]["paper"]
            assert cells[there]["difference"] == (None if paper is None else ours - paper)
            assert len(cells[there]["results"]) == 1
        assert (cells["Flowers"]["ours"], cells["Flowers"]["missing"]) == (None, "no data")
        assert cells["Average"]["partial"] == "2 of 10"
    assert rows["PTA"]["cells"]["Average"]["paper"] == pytest.approx((47.70 + 61.57) / 2)
    impossible = {
        "Backpropagation-based: DiffTPT": "no generated pictures",
        "Backpropagation-based: DPE": "--descriptions",
    }
    for name, reason in impossible.items():
        cell = rows[name.split(": ")[1]]["cells"]["DTD"]
        assert (cell["missing"], cell["results"]) == ("cannot run", [])
        assert reason in table["absent"].pop(f"{name} on dtd")
        assert reason in table["absent"].pop(f"{name} on eurosat")
    assert set(table["absent"]) == set(CROSS_DOMAIN) - {"dtd", "eurosat"}
    assert table["comparable"] is True
    assert "At most 1 seeds per row, of 3." in table["notes"]
    assert "Made with embedded; the paper's numbers are those of ViT-B/16." in table["notes"]
    # what is asked for is written, and nothing else is left
    names = {path.name for path in out.iterdir()}
    assert names == {*(f"table1.{one}" for one in WRITTEN), "results.sqlite", "features", "claims"}
    kinds = sorted(name.split("-", 2)[2:] for name in extracted(out) if name.startswith("dtd-"))
    assert kinds == [[], ["128-augmix"], ["64-augmix"], ["64-crops"], ["patches"], ["pixels"]]
    assert not list((out / "features").glob("*.parts"))
    assert f"results are in {out}\n" in done.stderr
    # a second call does nothing, and another experiment shares what is there
    before, made, features = tables(out, "table1"), results(out), extracted(out)
    again = pta("reproduce", "table1", *options, "--seeds", 1)
    assert "no data" in again.stdout
    assert "cannot run" in again.stdout
    assert (tables(out, "table1"), results(out)) == (before, made)
    assert pta("reproduce", own, *options, "--seeds", 2).returncode == 0
    assert extracted(out) == features
    new = [method for key, (_, method) in results(out).items() if key not in made]
    assert sorted(new) == ["clip"] * 2 + ["pta"] * 4  # CLIP's seed 1 was there, PTA's with the paper's parameters was
    assert (out / "own.svg").read_text().startswith("<svg")


# -- feature files -----------------------------------------------------------------------------------------------------


def test_feature_files_of_the_papers_datasets_fill_its_columns(pta, features, own, tmp_path):
    files = ("--features", features / "dtd.npz", "--features", features / "eurosat.npz")
    table = table_of(pta("reproduce", own, *files, "--out", tmp_path / "out", "--seeds", 1, "--json", "-"))
    assert {path.suffix for path in (tmp_path / "out").glob("own.*")} == {".md", ".csv", ".svg"}
    clip, moved, spread = table["rows"]
    assert {clip["cells"][name]["ours"] for name in ("DTD", "EuroSAT", "Average")} == {70.0}
    assert moved["gain"]["ours"] == pytest.approx(moved["cells"]["Average"]["ours"] - 70.0)
    assert spread["cells"]["DTD"]["missing"] == "one seed"
    assert table["about"] == {"feature files": "dtd (by an unknown model), eurosat (by an unknown model)"}
    assert len(results(tmp_path / "out")) == 4


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("md,csv,html,tex", {"own.md", "own.csv", "own.svg", "own.tex", "report.html"}),
        ("tex, csv", {"own.tex", "own.csv"}),
        ("html", {"own.svg", "report.html"}),
    ],
)
def test_the_formats_that_are_asked_for_are_written(pta, features, own, tmp_path, given, written):
    call = ("reproduce", own, "--features", features / "dtd.npz", "--seeds", 1, "--out", "out", "--format", given)
    done = pta(*call)
    assert done.returncode == 0, done.stderr
    found = {path.name for path in (tmp_path / "out").iterdir() if path.is_file()}
    assert found - {"results.sqlite"} == written
    assert ("open out/report.html" in done.stderr) == ("report.html" in written)


def test_offline_they_join_the_columns_and_only_gains_are_compared(pta, features, own, tmp_path, monkeypatch):
    offline = load_profile("offline")
    tiny = replace(offline, groups={**offline.groups, "cross-domain": ("fashion/rotate/3/6",)})
    monkeypatch.setattr("pta.measure.reproduce.profile.load_profile", {"offline": tiny}.__getitem__)
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


def test_an_interrupted_run_goes_on_to_the_tables_of_an_undisturbed_one(pta, features, own, tmp_path, monkeypatch):
    call = ("reproduce", own, "--features", features / "dtd.npz", "--out")
    assert pta(*call, tmp_path / "whole").returncode == 0

    def interrupted(*arguments, **options):
        for count, record in enumerate(evaluate_once(*arguments, **options)):
            if count == 5:
                raise KeyboardInterrupt
            yield record

    with monkeypatch.context() as patch:
        patch.setattr("pta.measure.reproduce.outcomes.evaluate_once", interrupted)
        stopped = pta(*call, tmp_path / "stopped")
    assert stopped.returncode == 130
    assert "finished results are saved, and the same command resumes" in stopped.stderr
    assert not (tmp_path / "stopped" / "own.md").exists()
    made = results(tmp_path / "stopped")
    assert len(made) == 6
    assert pta(*call, tmp_path / "stopped").returncode == 0
    assert tables(tmp_path / "stopped") == tables(tmp_path / "whole")
    assert made.items() <= results(tmp_path / "stopped").items()  # nothing that was there has been made again
    assert len(results(tmp_path / "stopped")) == 40  # the spread's are those of the row above it


# -- options and mistakes ----------------------------------------------------------------------------------------------


@pytest.mark.extensive
def test_offline_the_tables_of_clouds_hold_packaged_shapes_and_say_why_there_are_no_scans(pta, tmp_path, monkeypatch):
    offline = load_profile("offline")
    tiny = {
        "clouds": ("{set}/rotate/{severity}",),
        "modelnet-c": ("modelnet_c/rotate/{severity}",),
        "furniture": ("point_shapes/furniture/rotate/{severity}",),
    }
    stand_ins = {"modelnet_c": "point_shapes/procedural/{}/16", "point_shapes": "point_shapes/{}/16"}
    tiny_profile = replace(offline, groups={**offline.groups, **tiny}, stand_ins=stand_ins)
    monkeypatch.setattr("pta.measure.reproduce.profile.load_profile", {"offline": tiny_profile}.__getitem__)
    call = ("reproduce", "table3", "figure4", "--offline", "--out", "out", "--seeds", 1)
    done = pta(*call, "--json", "tables.json")
    assert done.returncode == 0, done.stderr
    table, figure = json.loads((tmp_path / "tables.json").read_text())
    assert table["absent"] == figure["absent"] == {"sonn_c": "no scans of real rooms ship with the package"}
    assert table["about"]["model"] == figure["about"]["model"] == "embedded-points"
    labels = ["ULIP", "Point-Cache", "Point-Cache, not prefilled (ours)", "PTA", "PTA, h = 20 (ours)", "wpta (ours)"]
    sections = {}
    for row in table["rows"]:
        sections.setdefault(row["section"], []).append(row)
    assert {tuple(row["label"] for row in rows) for rows in sections.values()} == {tuple(labels)}
    assert {row["cells"]["Average"]["missing"] for row in table["rows"]} == {None}
    assert "**520 procedural shapes, for ModelNet-C**" in (tmp_path / "out" / "table3.md").read_text()
    severity_2 = [row["cells"] for row in figure["rows"] if row["section"] == "Severity 2"]
    for section, heading in (("ModelNet-C", "520 procedural shapes"), ("Furniture (ours)", "Furniture (ours)")):
        in_table = [row["cells"]["Average"]["ours"] for row in sections[section]]
        assert [cells[heading]["ours"] for cells in severity_2] == in_table
        assert in_table[0] > 50  # zero-shot knows them


def test_the_list_is_whole(pta, tmp_path):
    done = pta("reproduce", "--list", "--json", "list.json")
    listed = json.loads((tmp_path / "list.json").read_text())
    assert [one["id"] for one in listed] == list(PACKAGED)
    assert all(one["rows"] for one in listed)
    assert all(id in done.stdout for id in PACKAGED)
    assert json.loads(pta("reproduce", "--list", "--json", "-").stdout) == listed


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
        (dtd, "name an experiment", "--list", "--all"),
        (("table1",), "nothing to run on", "--data", "--features", "--offline"),
        (("table1", "--data", "nowhere"), "--data nowhere: no such folder"),
        (("table1", "--data", damaged), "no such folder"),
        (("table1", "--features", damaged), "pets.npz cannot be read"),
        (("table1", "--features", "none"), "no feature files"),
        (("table1", "--features", features), "kitchen is not one of the paper's datasets; --offline runs"),
        (("table1", *dtd, *dtd), "two feature files are called dtd"),
        (("table1", "table1.toml", *dtd), "two experiments are called 'table1'"),
        (("wrong.toml", *dtd), "experiment wrong: CLIP has 2 printed numbers for 11 columns"),
        ((own, *dtd, "--out", damaged), "cannot make the folder"),
        ((own, *dtd, "--out", "/proc/none"), CANNOT_MAKE_A_FOLDER_IN_PROC),
        ((own, *dtd, "--json", "nowhere/x.json"), "nowhere does not exist"),
        ((own, *dtd, "--seeds", "0"), "--seeds"),
        ((own, *dtd, "--format", "md,pdf"), "no format is called 'pdf'"),
    ):
        assert refused(pta("reproduce", *arguments), *words)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_model_that_is_not_here_stops_the_run_and_not_a_table_of_feature_files(pta, root, features, own, tmp_path):
    call = ("reproduce", own, "--model", "file:nowhere.pt", "--seeds", 1, "--out")
    assert pta(*call, tmp_path / "a", "--features", features / "dtd.npz").returncode == 0
    assert refused(pta(*call, tmp_path / "b", "--data", root), "nowhere.pt")
    assert not (tmp_path / "b" / "own.md").exists()


def test_ones_own_experiment_is_about_ones_own_files_and_its_numbers_are_theirs(pta, features, tmp_path):
    mine = tmp_path / "mine.toml"
    rows = 'rows = [{ label = "CLIP", method = "clip", seeds = 1, printed = [69.5, 69.0] }]'
    mine.write_text(f'title = "t"\ncolumns = [{{ each = "own" }}, {{ label = "Average", mean_of = "all" }}]\n{rows}')
    with np.load(features / "kitchen.npz") as file:
        arrays = {name: file[name] for name in ("image_features", "text_features", "labels")}
    about = json.dumps({"kind": "features", "images": {"architecture": "ViT-L/14"}})
    save_file(arrays, tmp_path / "kitchen.safetensors", {"classnames": '["a", "b", "c", "d"]', "about": about})
    call = ("reproduce", mine, "--offline", "--out", tmp_path / "out", "--json", "-")
    table = table_of(pta(*call, "--features", tmp_path / "kitchen.safetensors"))
    cells = table["rows"][0]["cells"]
    assert list(cells) == ["kitchen", "Average"]
    assert (cells["kitchen"]["ours"], cells["kitchen"]["difference"]) == (70.0, 0.5)
    assert table["notes"] == []
    assert table["about"] == {"feature files": "kitchen (by ViT-L/14)"}  # the packaged model is loaded and not used
    assert "the group 'own' is empty; name feature files" in pta(*call).stderr
