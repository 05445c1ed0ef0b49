"""`pta predict` as a practitioner uses it: real files, pipes, signals and interruptions."""

import csv
import json
import re
import signal
from pathlib import Path

import pytest
import torch
from photos import FASHION, write_classes, write_photos
from PIL import Image

import pta
from pta.claims import sole_writer
from pta.cli.options import read_classes
from pta.files import load_tensors


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    write_photos(folder / "photos", 60)
    write_classes(folder / "classes.txt")
    (folder / "one-line.txt").write_text("cat,dog\n")
    return folder


def call(*arguments):
    return ["predict", "--classes", "classes.txt", "--model", "embedded", "--device", "cpu", *arguments]


@pytest.fixture
def run(pta, place):
    def run(*arguments, stdin=b""):
        done = pta(*call(*arguments), stdin=stdin, cwd=place)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def start(commands, place):
    """The command in a process of its own."""

    def start(*arguments, **how):
        commands.start(*call(*arguments), folder=place, **how)
        return commands

    return start


def rows_of(text):
    return [json.loads(line) for line in text.splitlines()]


def about(state):
    return load_tensors(state, kind="state")[1]


def paths_in(folder):
    return sorted(folder.glob("*/*.jpg"))


@pytest.mark.parametrize("raw", [False, True])
def test_a_folder_is_labelled_as_in_python_picture_by_picture(run, place, raw):
    code, out, err = run("photos", "--batch", 7, *(["--raw-probability"] if raw else []))
    assert code == 0, err
    classifier = pta.Classifier("embedded", FASHION.class_names, cache=None, raw_probability=raw)
    rows, paths = rows_of(out), paths_in(place / "photos")
    for row, path in zip(rows, paths, strict=True):
        answer = classifier(path)
        assert row["path"] == str(path.relative_to(place))
        assert (row["label"], row["zero_shot_label"]) == (answer.label, answer.zero_shot_label)
        assert row["probability"] == pytest.approx(answer.probability, abs=1e-4)
        assert row["entropy"] == pytest.approx(answer.entropy, abs=1e-3)
    changed = sum(row["label"] != row["zero_shot_label"] for row in rows)
    assert "images: 60, " in err
    assert f"pta changed the answer for {changed} " in err


def test_csv_and_json_lines_say_the_same(run, tmp_path):
    out = tmp_path / "rows.csv"
    assert run("photos", "--top", 3, "--out", out)[0] == 0
    code, lines, _ = run("photos", "--top", 3)
    assert code == 0
    with out.open(newline="") as file:
        table = list(csv.DictReader(file))
    for row, line in zip(table, rows_of(lines), strict=True):
        assert row["path"] == line["path"]
        assert [row["label"], row["label_2"], row["label_3"]] == [one["label"] for one in line["top"]]
        assert float(row["probability_3"]) == line["top"][2]["probability"]


def test_paths_and_frames_from_a_pipe_give_what_the_folder_gives(run, place):
    _, folder, _ = run("photos")
    files = paths_in(place / "photos")
    listed = "\n".join(str(path.relative_to(place)) for path in files)
    _, paths, _ = run("-", stdin=listed.encode())
    _, frames, _ = run("-", "--frames", stdin=b"".join(path.read_bytes() for path in files))
    for row, expected in zip(rows_of(paths), rows_of(folder), strict=True):
        assert (row["path"], row["label"]) == (expected["path"], expected["label"])
        assert row["probability"] == pytest.approx(expected["probability"], abs=1e-4)
    assert [row["label"] for row in rows_of(frames)] == [row["label"] for row in rows_of(folder)]
    assert [row["path"] for row in rows_of(frames)[:2]] == ["frame 0", "frame 1"]


def test_rows_come_and_the_state_is_saved_while_the_pipe_is_still_open(start, place, tmp_path):
    state = tmp_path / "state.safetensors"
    process = start("-", "--state", state, "--save-every", 0)
    path = next((place / "photos").glob("bag/*.jpg"))
    for _ in range(2):
        process.stdin.write(f"{path}\n".encode())
        assert json.loads(process.stdout.readline())["path"] == str(path)
    while about(state)["position"] < 2:  # nothing more comes
        assert process.is_running()
    process.stdin.close()
    assert process.wait() == 0


def test_yesterdays_state_goes_on_today(run, place, tmp_path):
    files = paths_in(place / "photos")
    state = tmp_path / "state.safetensors"
    first = run(*files[:25], "--state", state)
    second = run(*files[25:], "--state", state)
    assert (first[0], second[0]) == (0, 0)
    whole = run(*files)
    for row, expected in zip(rows_of(first[1]) + rows_of(second[1]), rows_of(whole[1]), strict=True):
        assert (row["path"], row["label"]) == (expected["path"], expected["label"])
        assert row["probability"] == pytest.approx(expected["probability"], abs=1e-4)
    frozen = state.read_bytes()
    assert run(*files, "--state", state, "--freeze")[0] == 0
    assert state.read_bytes() == frozen


@pytest.mark.parametrize(
    ("by", "frames"),
    [(signal.SIGINT, False), (signal.SIGTERM, True), (signal.SIGHUP, False), (signal.SIGQUIT, True)],
)
def test_an_interrupted_stream_is_saved_as_far_as_it_was_answered(start, by, frames, place, tmp_path):
    state = tmp_path / "state.safetensors"
    process = start("-", "--state", state, *(["--frames"] if frames else []))
    files = paths_in(place / "photos")[:3]
    for path in files:
        process.stdin.write(path.read_bytes() if frames else f"{path}\n".encode())
    answered = [json.loads(process.stdout.readline()) for _ in files]
    if frames:
        process.stdin.write(files[0].read_bytes()[:300])  # half a picture, and no more
    process.send_signal(by)  # the pipe stays open: it is still waiting
    assert process.wait() == 128 + by
    assert f"state saved to {state}; stopped by {by.name}" in process.stderr.read()
    expected = [f"frame {number}" for number in range(3)] if frames else [str(path) for path in files]
    assert [row["path"] for row in answered] == expected
    classifier = pta.Classifier("embedded", FASHION.class_names, cache=None)
    classifier([str(path) for path in files])
    saved = pta.load_adapter(state, classifier.classifier)
    for name, tensor in saved.state().items():
        torch.testing.assert_close(tensor, getattr(classifier.adapter, name), atol=1e-5, rtol=1e-5)


def test_an_unreadable_image_stops_after_what_came_before_it_or_is_skipped(run, tmp_path):
    write_photos(tmp_path / "photos", 12)
    bad = paths_in(tmp_path / "photos")[4]
    bad.write_bytes(b"no picture")
    code, out, err = run(tmp_path / "photos")
    assert code == 2
    assert len(rows_of(out)) == 4
    assert f"{bad}: no image" in err
    assert "--on-error skip" in err
    code, out, err = run(tmp_path / "photos", "--on-error", "skip")
    assert code == 0
    assert len(rows_of(out)) == 11
    assert f"skipped: {bad}: no image" in err
    assert "1 skipped" in err


def test_a_picture_that_cannot_be_resized_is_skipped_like_one_that_cannot_be_read(run, tmp_path):
    write_photos(tmp_path / "photos", 3)
    Image.new("LAB", (30, 30)).save(tmp_path / "photos" / "lab.tif")
    (tmp_path / "photos" / "loop.jpg").symlink_to("loop.jpg")
    (tmp_path / "photos" / "self").symlink_to("self")
    code, out, err = run(tmp_path / "photos", "--on-error", "skip")
    assert (code, len(rows_of(out))) == (0, 3)
    assert "lab.tif: conversion from LAB" in err
    assert "loop.jpg cannot be read" in err


def test_whoever_reads_the_rows_may_stop_early(start):
    process = start("photos", "--batch", 1, to_the_end=True)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait() == 0
    assert process.stderr.read().count("\n") == 1  # what was done until then


def test_rows_are_added_to_a_file_only_when_asked(run, tmp_path):
    out = tmp_path / "rows.csv"
    assert run("photos", "--out", out)[0] == 0
    code, _, err = run("photos", "--out", out)
    assert code == 2
    assert "--append" in err
    assert run("photos", "--out", out, "--append")[0] == 0
    lines = out.read_text().splitlines()
    assert len(lines) == 1 + 2 * 60
    assert sum(line.startswith("path,") for line in lines) == 1
    code, _, err = run("photos", "--out", out, "--append", "--top", 3)
    assert code == 2
    assert "other columns" in err
    assert out.read_text().splitlines() == lines
    with out.open("a") as file:
        file.write("half a row")  # as a kill leaves it
    assert run("photos", "--out", out, "--append")[0] == 0
    assert out.read_text().splitlines()[: len(lines) + 1] == [*lines, "half a row"]
    assert len(out.read_text().splitlines()) == len(lines) + 1 + 60


def test_rows_that_cannot_be_printed_end_the_work_with_one_line_and_a_saved_state(start, tmp_path):
    with Path("/dev/full").open("w") as full:
        process = start(
            "photos", "--batch", 16, "--state", tmp_path / "state.safetensors", stdout=full, to_the_end=True
        )
    assert process.wait() == 2
    assert process.stderr.read().splitlines()[1:] == ["pta: standard output cannot be written: no space left on device"]
    assert about(tmp_path / "state.safetensors")["position"] == 2  # the first batch has been learnt


def test_rows_that_do_not_fit_on_the_disk_are_kept_in_the_state_and_written_by_the_next_run(run, start, tmp_path):
    def stream(name):
        return ["photos", "--batch", 8, "--top", 10, "--state", tmp_path / name, "--out", tmp_path / f"{name}.jsonl"]

    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))"
    process = start(*stream("cut"), first=limit)
    assert process.wait() == 2
    said = process.stderr.read().splitlines()
    assert said[-1] == "pta: rows cannot be written: file too large"
    assert len(said) == 2  # the other says what was done until then
    written = len(rows_of((tmp_path / "cut.jsonl").read_text()))
    assert written % 8 == 1  # whole batches, of which the first is small
    assert about(tmp_path / "cut")["position"] == written + 8
    code, _, err = run(*stream("cut"), "--resume")
    assert code == 0, err
    assert "8 rows that could not be written before are written now" in err
    assert run(*stream("whole"))[0] == 0
    found, expected = (rows_of((tmp_path / f"{name}.jsonl").read_text()) for name in ("cut", "whole"))
    assert [(row["path"], row["label"]) for row in found] == [(row["path"], row["label"]) for row in expected]
    assert about(tmp_path / "cut")["position"] == 60


# -- going on after a stop --------------------------------------------------------------------------------------------


@pytest.fixture
def stopped(run, place, tmp_path):
    """A stream of 60 photographs that ended after 20: the call that goes on, its rows, its state, and all 60 rows."""
    paths = sorted(str(path.relative_to(place)) for path in (place / "photos").glob("*/*.jpg"))
    rows, state = tmp_path / "rows.csv", tmp_path / "state.safetensors"
    assert run(*paths[:20], "--state", state, "--out", rows)[0] == 0
    whole = place / "whole.csv"
    if not whole.exists():
        assert run("photos", "--out", whole)[0] == 0
    return ["photos", "--state", state, "--out", rows, "--resume"], rows, state, paths_and_labels(whole)


def paths_and_labels(rows):
    return [line.split(",")[:2] for line in rows.read_text().splitlines()]


def test_a_resumed_stream_skips_what_was_seen_and_writes_each_row_once(run, stopped):
    call, rows, state, whole = stopped
    code, _, err = run(*call)
    assert code == 0, err
    assert "images: 40, " in err
    assert paths_and_labels(rows) == whole
    assert about(state)["position"] == about(state)["stream"]["taken"] == 60
    assert about(state)["stream"]["last"] == whole[-1][0]
    before = rows.read_bytes(), state.read_bytes()
    assert run(*call)[0] == 0
    assert (rows.read_bytes(), state.read_bytes()) == before


def test_a_stream_without_a_state_begins_anew_with_resume(run, stopped, tmp_path):
    code, _, err = run("photos", "--state", tmp_path / "new.safetensors", "--out", tmp_path / "new.csv", "--resume")
    assert code == 0, err
    assert paths_and_labels(tmp_path / "new.csv") == stopped[3]


def test_rows_after_the_last_saved_state_are_written_again(run, stopped):
    call, rows, state, whole = stopped
    with rows.open("a") as file:
        file.write(f"{whole[21][0]},bag,1,bag,1,0\n{whole[22][0]},ba")  # as a kill leaves them
    code, _, err = run(*call)
    assert code == 0, err
    assert "pta: 2 rows after the last saved state are written again\n" in err
    assert paths_and_labels(rows) == whole
    assert about(state)["position"] == 60


def test_rows_that_the_state_has_not_learnt_from_are_named_when_more_are_added(run, stopped):
    call, rows, state, whole = stopped
    with rows.open("a") as file:
        file.write(f"{whole[21][0]},bag,1,bag,1,0\n")
    code, _, err = run(*call[:-1], "--append")
    assert code == 0, err
    assert f"{rows} has 1 rows that were written after {state} was saved; it has not learned from them" in err
    assert len(paths_and_labels(rows)) == 1 + 21 + 60


def test_a_list_of_paths_can_be_piped_again(run, stopped):
    call, rows, _, whole = stopped
    listed = "\n".join(path for path, _ in whole[1:]).encode()
    code, _, err = run("-", *call[1:], stdin=listed)
    assert code == 0, err
    assert paths_and_labels(rows) == whole


def test_what_is_advised_where_rows_are_lost_works(run, tmp_path):
    photos, rows, state = tmp_path / "photos", tmp_path / "rows.csv", tmp_path / "state.safetensors"
    write_photos(photos, 4)
    assert run(photos, "--state", state, "--out", rows)[0] == 0
    call = (photos, "--state", state, "--out", tmp_path / "other.csv")
    assert "leave --resume out and choose another --out" in run(*call, "--resume")[2]
    assert run(*call)[0] == 0
    assert len((tmp_path / "other.csv").read_text().splitlines()) == 1 + 4


def forget_the_stream(rows, state, photos):
    classifier = pta.Classifier("embedded", FASHION.class_names, cache=None)
    classifier.load(state)
    classifier.save(state)


STREAMS_THAT_CANNOT_GO_ON = {
    "rows are lost": (
        lambda rows, state, photos: rows.write_bytes(rows.read_bytes()[:-50]),
        r"rows\.csv has .* bytes, not the .* that .* was saved with: rows are missing",
    ),
    "all rows are lost": (
        lambda rows, state, photos: rows.unlink(),
        r"rows\.csv is not there, and .*state\.safetensors was saved with rows in a file called rows\.csv",
    ),
    "other rows": (
        lambda rows, state, photos: rows.write_text(rows.read_text().replace(".jpg", ".png") + "\n"),
        r"rows\.csv is not the file that .*state\.safetensors was saved with, which was called rows\.csv",
    ),
    "rows of other samples": (
        lambda rows, state, photos: rows.write_text(rows.read_text() + "elsewhere.jpg,bag,1,bag,1,0\n"),
        r"holds a row for elsewhere\.jpg, which is none of the samples that come next",
    ),
    "a picture is lost": (
        lambda rows, state, photos: paths_in(photos)[3].unlink(),
        r"has seen \S+\.jpg as sample 6, which now is \S+\.jpg",
    ),
    "another picture": (
        lambda rows, state, photos: paths_in(photos)[3].rename(paths_in(photos)[3].with_suffix(".b.jpg")),
        r"has seen other samples before \S+\.jpg",
    ),
    "most pictures are lost": (
        lambda rows, state, photos: [path.unlink() for path in paths_in(photos)[5:]],
        r"has seen 6 samples, but there are 5",
    ),
    "the state is lost": (
        lambda rows, state, photos: state.unlink(),
        r"rows\.csv holds rows, but there is no .*state\.safetensors",
    ),
    "a state without a stream": (forget_the_stream, r"state\.safetensors records no stream with rows in a file"),
}


@pytest.mark.parametrize(
    ("change", "complaint"), STREAMS_THAT_CANNOT_GO_ON.values(), ids=STREAMS_THAT_CANNOT_GO_ON.keys()
)
def test_a_stream_that_cannot_go_on_is_refused_in_one_line_and_left_as_it_is(run, tmp_path, change, complaint):
    photos, rows, state = tmp_path / "photos", tmp_path / "rows.csv", tmp_path / "state.safetensors"
    write_photos(photos, 10)
    assert run(*paths_in(photos)[:6], "--state", state, "--out", rows)[0] == 0
    change(rows, state, photos)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    code, out, err = run(photos, "--state", state, "--out", rows, "--resume")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.search(complaint, err)
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_one_process_writes_a_state_and_one_a_file_of_rows(run, tmp_path):
    state, rows = tmp_path / "state.safetensors", tmp_path / "rows.csv"
    for file in (state, rows):
        with sole_writer(file):
            code, out, err = run("photos", "--state", state, "--out", rows)
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert f"another process is writing {file} now" in err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".state.safetensors.4711.0123abcd").touch()  # as a killed process leaves it
    assert run("photos/bag", "--state", state, "--out", rows)[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv", "state.safetensors"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere"], "no such file or folder: 'nowhere'"),
        (["classes.txt", "-"], "cannot be mixed"),
        (["photos", "--frames"], "--frames reads pictures from standard input"),
        (["photos", "--out", "rows.txt"], "ends in .jsonl or .csv"),
        (["photos", "--method", "ptaa"], "did you mean 'pta'"),
        (["photos", "--state", "none/x.safetensors"], "the folder none does not exist"),
        (["photos", "--state", "classes.txt"], "not a readable state file"),
        (["photos", "--state", "none.safetensors", "--freeze"], "answers from a state, but there is none"),
        (["photos", "--classes", "cat"], "no such file of class names: cat"),
        (["photos", "--classes", "x" * 5000], "no such file of class names"),
        (["photos", "--classes", "cat,"], "at least two"),
        (["photos", "--classes", "one-line.txt"], "stand one a line"),
        (["", "photos"], "none of them empty"),
        (["photos", "--csv", "--out", "rows.csv"], "--csv is for standard output"),
        (["photos", "--append"], "--append adds to a file"),
        (["photos", "--resume", "--out", "r.csv"], "say which with --state"),
        (["photos", "--resume", "--state", "s.safetensors"], "say which with --out"),
        (["-", "--frames", "--resume", "--state", "s.safetensors", "--out", "r.csv"], "--frames cannot"),
        (["photos", "--resume", "--freeze", "--state", "s.safetensors", "--out", "r.csv"], "leave one of them out"),
        (["photos", "--out", "same.csv", "--state", "same.csv"], "must be two files"),
        (["photos", "--device", "mps"], "torch cannot use the device 'mps' here"),
        (["photos", "--templates", "photo"], "photo"),
        (["photos", "--dtype", "float8"], "float8"),
        (["photos", "--on-error", "ignore"], "ignore"),
        (["photos", "--model", "hf:"], "no model is called 'hf:'"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(run, place, arguments, complaint):
    before = sorted(place.rglob("*.*"))
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert complaint in err
    assert sorted(place.rglob("*.*")) == before


def test_a_class_file_may_come_from_another_system(place, tmp_path, monkeypatch):
    odd = tmp_path / "classes.txt"
    odd.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(["coat", "", " bag "]).encode())
    assert read_classes(str(odd)) == ["coat", "bag"]
    assert read_classes("coat, bag") == ["coat", "bag"]


def test_the_default_model_is_never_replaced_silently(commands, place, tmp_path):
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    commands.start("predict", "photos", "--classes", "classes.txt", folder=place, environment=environment)
    assert (commands.wait(), commands.stdout.read()) == (2, "")
    said = commands.stderr.read()
    assert all(word in said for word in ("hf:openai/clip-vit-base-patch16", "--model embedded", "clothing only"))


# -- methods that need more than features ------------------------------------------------------------------------------


def test_the_command_runs_methods_of_pixels_and_of_views(run, place):
    for method in (["tca"], ["mta", "--views", "16"]):
        code, out, err = run("photos/bag", "--method", *method)
        assert code == 0, err
        rows = rows_of(out)
        assert len(rows) == len(list((place / "photos" / "bag").iterdir()))
        assert f"{method[0]} changed the answer" in err


def test_cutting_and_resuming_changes_no_answer_of_a_method_of_views(run, place):
    whole = rows_of(run("photos/bag", "--method", "zero", "--views", 16)[1])
    paths = sorted(str(path.relative_to(place)) for path in (place / "photos" / "bag").iterdir())
    parts = [rows_of(run(*half, "--method", "zero", "--views", 16)[1]) for half in (paths[:2], paths[2:])]
    for row, expected in zip(parts[0] + parts[1], whole, strict=True):
        assert (row["path"], row["label"]) == (expected["path"], expected["label"])
        assert row["probability"] == pytest.approx(expected["probability"], abs=1e-4)


def test_parameters_can_be_set_and_the_length_of_a_folder_is_known(run, place):
    code, _, err = run("photos/bag", "--method", "onzeta", "--state", "onzeta.safetensors")
    assert code == 0, err
    about = load_tensors(place / "onzeta.safetensors", kind="state")[1]
    assert about["parameters"]["length"] == len(list((place / "photos" / "bag").iterdir()))
    code, _, err = run("photos/bag", "--state", "h.safetensors", "--set", "pta.h=50")
    assert code == 0, err
    assert load_tensors(place / "h.safetensors", kind="state")[1]["parameters"]["h"] == 50
    for wrong, complaint in {
        ("--set", "tda.positive_beta=3"): "the method is pta",
        ("--set", "pta.hh=3"): "pta has no parameter 'hh'",
        ("--set", "pta.h=3", "--state", "h.safetensors"): "leave --set out",
        ("--method", "transclip"): "answers a whole set at once",
        ("--method", "mta", "--views", "4"): "views",
    }.items():
        code, out, err = run("photos/bag", *wrong)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert complaint in err


def test_the_command_says_when_answers_depend_on_the_batch(run):
    code, _, err = run("photos/bag", "--method", "stata", "--batch", 16)
    assert code == 0, err
    assert "pta: stata answers a batch at a time: its answers depend on --batch 16\n" in err
    assert "batch at a time" not in run("photos/bag")[2]


def test_views_are_not_made_of_pictures_decoded_at_a_fraction(run):
    code, _, err = run("photos/bag", "--method", "mta", "--fast-decode")
    assert code == 2
    assert "whole picture" in err
