"""The leaderboard: its streams, its rows against other ways to count, the file that resumes, and the page."""

import csv
import re
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pages import Balance, looking, needs_browser

from pta.core.labels import UNKNOWN
from pta.data.features import load_features
from pta.measure.evaluate import evaluate
from pta.measure.leaderboard import MEASURED, STREAMS, fill, measured, played, read_board
from pta.measure.stream import Stream
from pta.methods import Adapter, create_adapter, registry

ROOT = Path(__file__).parents[1]
PAGE = runpy.run_path(str(ROOT / "docs" / "leaderboard_page.py"))
Board, sentences, html, left_out = (PAGE[name] for name in ("Board", "sentences", "html", "left_out"))
TIMED = "of_product"


@pytest.fixture(scope="module")
def files(pets, tmp_path_factory):
    """Two feature files of one model."""
    data = load_features(pets)
    with np.load(pets) as file:
        arrays = dict(file)
    other = tmp_path_factory.mktemp("features") / "birds.npz"
    np.savez(other, **arrays | {"image_features": arrays["image_features"][::-1] + 1})
    return data, load_features(other)


def rows_of(samples):
    return [row.tobytes() for row in samples.features.numpy()]


# -- the streams -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("title", STREAMS)
def test_every_stream_has_the_samples_that_the_seed_draws_once(files, title):
    data, other = files
    stream, shuffled = (played(data, name, 3, 100, other) for name in (title, "shuffled"))
    own = stream.labels != UNKNOWN
    assert own.sum() == 100
    assert sorted(stream.labels[own]) == sorted(shuffled.labels)
    if title != "drift":
        assert sorted(np.array(rows_of(stream.samples))[own]) == sorted(rows_of(shuffled.samples))
    assert rows_of(stream.samples) != rows_of(played(data, title, 4, 100, other).samples)


def test_sorted_streams_and_halves_bring_classes_together(files):
    by_class, halves = (played(files[0], title, 1, 300, files[1]).labels for title in ("sorted", "half then half"))
    assert np.count_nonzero(np.diff(by_class)) == 3
    turns = [number for number in range(1, 300) if not set(halves[:number]) & set(halves[number:])]
    assert len(turns) == 1  # the classes of one half all come before those of the other
    assert len(set(halves[: turns[0]])) == 2


def test_drift_adds_one_direction_more_and_more(files):
    drifted, shuffled = (played(files[0], title, 1, 300, files[1]).samples.features for title in ("drift", "shuffled"))
    added = (drifted / (drifted * shuffled).sum(dim=1, keepdim=True) - shuffled).norm(dim=1)
    assert added[0] < 1e-6
    assert added[200:].mean() > 1.5 * added[100:200].mean() > 1.5 * added[:100].mean()


def test_junk_comes_first_is_of_another_file_and_is_not_counted(files):
    data, other = files
    stream = played(data, "junk first", 1, 100, other)
    assert (stream.labels[:50] == UNKNOWN).all()
    assert (stream.labels[50:] != UNKNOWN).all()
    cosines = stream.samples.features[:50] @ other.samples.features.T
    assert cosines.amax(dim=1).numpy() == pytest.approx(1)
    assert (
        measured(stream, "clip", {})["accuracy"]
        == measured(played(data, "shuffled", 1, 100, other), "clip", {})["accuracy"]
    )


# -- a row -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("title", ["shuffled", "junk first"])
@pytest.mark.parametrize("method", ["clip", "pta", "tda", "stata", "transclip"])
def test_a_row_counts_as_pta_eval_does_and_frozen_answers_learn_nothing(files, method, title):
    stream = played(files[0], title, 1, 200, files[1])
    row = measured(stream, method, {})
    (whole,) = evaluate(stream, {method: {}}, [1], stream=Stream("given"))
    record = whole.record()
    for name in ("accuracy", "calibration_error"):
        assert float(row[name]) == pytest.approx(record[name], abs=0.0051)
    assert float(row["zero_shot"]) == pytest.approx(record["zero_shot_accuracy"], abs=0.0051)
    assert float(row["worst_class"]) == pytest.approx(record["worst_class"]["accuracy"], abs=0.0051)
    assert int(row["state_bytes"]) == record["state_bytes"]
    assert float(row[TIMED]) > 0
    if whole.run.method in ("stata", "transclip"):
        assert row["frozen"] == ""
        return
    adapter, half = create_adapter(method, stream.classifier), len(stream.samples) // 2
    for at in range(half):
        adapter.step(stream.samples[at : at + 1])
    answers = [int(adapter.predict(stream.samples[at : at + 1]).argmax()) for at in range(half, len(stream.samples))]
    assert float(row["frozen"]) == pytest.approx(100 * np.mean(answers == stream.labels[half:]), abs=0.0051)


# -- the file ----------------------------------------------------------------------------------------------------------


def without_times(board):
    return [{name: value for name, value in row.items() if name != TIMED} for row in read_board(board)]


def test_an_interrupted_board_resumes_and_is_that_of_an_undisturbed_run(files, tmp_path, monkeypatch):
    work = [(data, {"clip": {}, "pta": {"h": 5}}) for data in files]
    fill(tmp_path / "whole.csv", work, [1], 60)
    board, done = tmp_path / "stopped.csv", []

    def interrupted(*arguments):
        if len(done) == 9:
            raise KeyboardInterrupt
        done.append(arguments)
        return measured(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("pta.measure.leaderboard.measured", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fill(board, work, [1], 60)
    first = read_board(board)
    assert len(first) == 9
    fill(board, work, [1], 60)
    assert read_board(board)[:9] == first  # with their times: they were not measured again
    assert without_times(board) == without_times(tmp_path / "whole.csv")
    assert {row["settings"] for row in read_board(board)} == {"", "h=5"}


def test_rows_of_other_code_are_made_anew_and_rows_of_others_stay(files, tmp_path):
    board, work = tmp_path / "board.csv", [(data, {"clip": {}}) for data in files]
    fill(board, work, [1], 60)
    text = board.read_text()
    board.write_text(re.sub(r"[^,]+$", "old", text, count=0, flags=re.M).replace("old", "version", 1))
    fill(board, [(data, {"pta": {}}) for data in files], [1], 60)
    assert [row["version"] for row in read_board(board)[:14]] == ["old"] * 14
    fill(board, work, [1], 60, keep_old=True)
    assert [row["version"] for row in read_board(board)[:14]] == ["old"] * 14
    fill(board, work, [1], 60)
    assert "old" not in [row["version"] for row in read_board(board)]
    assert len(read_board(board)) == 28


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def places(files, pets, tmp_path):
    """The files where the command finds them."""
    (tmp_path / "pets.npz").write_bytes(pets.read_bytes())
    with np.load(pets) as file:
        np.savez(tmp_path / "birds.npz", **dict(file) | {"image_features": file["image_features"] + 1})
    return ["--features", "pets.npz", "--features", "birds.npz"]


def test_a_method_of_ones_own_gets_its_rows_by_one_command(pta, places, tmp_path, monkeypatch):
    class Contrary(Adapter):
        """Prefers what zero-shot likes least."""

        name = "contrary"

        def _predict(self, samples):
            return -self.classifier.logits(samples.features)

        _step = _predict

    monkeypatch.setitem(registry._registered, Contrary.name, Contrary)
    done = pta("eval", *places, "--method", "contrary", "--method", "clip", "--leaderboard", "board.csv")
    assert done.returncode == 0, done.stderr
    rows = read_board(tmp_path / "board.csv")
    assert len(rows) == 2 * 2 * len(STREAMS)
    assert "contrary" in done.stdout
    for row in rows:
        assert (row["accuracy"] == row["zero_shot"]) == (row["method"] == "clip")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--leaderboard", "board.txt"], "a leaderboard is a file that ends in .csv"),
        (["--leaderboard", "nowhere/board.csv"], "does not exist"),
        (["--leaderboard", "other.csv"], "the first line must name file and features"),
        (["--leaderboard", "board.csv", "--stream", "separate"], "--leaderboard has its own streams"),
        (["--leaderboard", "board.csv", "--json", "-"], "--leaderboard has its own streams"),
        (["--leaderboard", "board.csv", "--method", "mta"], "views"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(pta, places, tmp_path, given, complaint):
    (tmp_path / "other.csv").write_text("path,label\na,b\n")
    before = sorted(tmp_path.iterdir())
    done = pta("eval", *places, "--method", "clip", *given)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert complaint in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_one_file_alone_has_no_junk(pta, places):
    done = pta("eval", *places[:2], "--leaderboard", "board.csv")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "a leaderboard needs two feature files of 16 dimensions" in done.stderr


# -- the page ----------------------------------------------------------------------------------------------------------


def row(method, stream, file, accuracy, **others):
    usual = {
        "settings": "",
        "seed": "1",
        "zero_shot": "50",
        "worst_class": "10",
        "calibration_error": "5",
        "frozen": "40",
    }
    told = {"method": method, "stream": stream, "file": file, "accuracy": str(accuracy)}
    return usual | {"of_product": "10", "state_bytes": "2000"} | told | others


def board_of(gains, **others):
    """A board of methods with their gains on two streams, on two files."""
    return Board(
        [
            row(method, stream, file, 50 + gain, **others.get(method, {}))
            for method, own in gains.items()
            for stream, gain in zip(("shuffled", "sorted"), own, strict=True)
            for file in ("a", "b")
        ]
    )


def test_the_sentences_follow_from_the_table():
    board = board_of(
        {"clip": (0, 0), "pta": (3, -2), "tda": (1, 2)}, pta={"of_product": "20"}, tda={"of_product": "70"}
    )
    first, second, third = sentences(board)
    assert first == (
        "Of the 3 methods that answer each sample when it comes and were measured on all 2 files, these gain most over "
        "zero-shot, in points: `pta` on shuffled (+3.0); `tda` on sorted (+2.0)."
    )
    assert second == (
        "On its weakest stream, shuffled, `tda` has +1.0: more than any other method on its own weakest one. "
        "It is below zero-shot in 0 of 4 cells."
    )
    assert third.startswith(
        "The largest mean gain is that of `tda` (+1.5), which takes the time of 70 zero-shot products"
    )
    assert (
        "the cheapest within 1 point of it is `pta` (+0.5), which takes the time of 20" not in third
    )  # exactly 1 apart
    assert "no method within 1 point of it is cheaper" in third


def test_methods_that_wait_and_methods_that_lack_a_cell_do_not_win():
    board = board_of({"clip": (0, 0), "transclip": (9, 9), "pta": (8, 8), "tda": (1, 1)})
    del board.cells["pta", "sorted", "b"]
    assert board.ranked == ["tda", "clip"]
    table = {cells[0]: cells for cells in board.table(board.streams, board.files)}
    assert table["transclip*"][1:3] == ["59.0", "59.0"]
    assert table["pta"][1:3] == ["58.0", ""]
    assert "`pta` was not measured on b" in left_out(board)
    assert "`mta` needs views, which the files do not have" in left_out(board)


def test_the_table_needs_no_network_and_names_are_text():
    board = board_of({"clip": (0, 0), "pta": (3, -2)}, pta={"settings": "</script><b>"})
    page = html(board)
    Balance(re.sub(r"<script.*?</script>", "", page))
    assert not re.search(r"https?:|src=|href=|@import", page)
    assert page.count("</script>") == 2
    assert "<b>" not in page


@needs_browser
def test_a_reader_sorts_by_a_column_and_chooses_a_stream(tmp_path):
    page = tmp_path / "page.html"
    board = board_of({"clip": (0, 0), "pta": (30, -2), "tda": (1, 2)})
    board.cells["tda", "shuffled", "a"][0]["of_product"] = board.cells["tda", "shuffled", "b"][0]["of_product"] = "30"
    page.write_text(f'<h1 id="leaderboard">Leaderboard</h1>{html(board)}', encoding="utf-8")
    script = """() => {
      const table = document.querySelector("table"), heads = [...table.tHead.rows[0].cells];
      const seen = () => [[...table.rows].slice(1).map((row) => row.cells[0].innerText), heads[1].ariaSort];
      const click = (at) => { heads[at].querySelector("button").click(); return seen(); };
      const found = [seen(), click(1), click(1), click(2)], stream = document.getElementById("leaderboard-stream");
      const times = () => [...table.rows].slice(1).map((row) => row.cells[6].innerText);
      heads[6].querySelector("button").click();
      const of_all = times();
      stream.value = "shuffled";
      stream.dispatchEvent(new Event("change"));
      return [...found, [of_all, times()]];
    }"""
    with looking(1200) as look:
        opened, rising, falling, other, shown = look(page.as_uri(), script)
    assert opened == falling == [["pta", "tda", "clip"], "descending"]  # as numbers: 80 before 51
    assert rising == [["clip", "tda", "pta"], "ascending"]
    assert other == [["tda", "clip", "pta"], "none"]
    assert shown == [["20", "10", "10"], ["30", "10", "10"]]


def test_the_page_of_the_site_is_made_of_the_committed_rows():
    page = PAGE["filled"]((ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8"))
    assert PAGE["MARK"] not in page
    with (ROOT / "benchmarks" / "results" / "leaderboard.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {one["stream"] for one in rows} == set(STREAMS)
    assert set(MEASURED) <= set(rows[0])
    for method in {one["method"] for one in rows}:
        assert re.search(rf"<td>{method}(:[^<]*)?\*?</td>", page)


def test_a_file_without_labels_is_refused(files):
    data, other = files
    with pytest.raises(Exception, match="pets has no labels; a leaderboard needs feature files with labels"):
        played(replace(data, labels=None), "shuffled", 1, 10, other)
