"""`pta predict` as a practitioner uses it: real files, pipes, signals and interruptions."""

import csv
import json
import os
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from photos import FASHION, write_classes, write_photos
from PIL import Image

import pta
from pta.cli.options import read_classes
from pta.data.open import open_places
from pta.door.claims import sole_writer
from pta.door.files import load_tensors


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
    """The rows of a command that succeeds, and what it says beside them."""

    def run(*arguments, stdin=b""):
        done = pta(*call(*arguments), stdin=stdin, cwd=place)
        assert done.returncode == 0, done.stderr
        return rows_of(done.stdout), done.stderr

    return run


@pytest.fixture
def refused(pta, place):
    """The line of a command that ends with exit code 2 and prints no row."""

    def refused(*arguments):
        done = pta(*call(*arguments), cwd=place)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        return done.stderr

    return refused


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


def assert_same(found, expected):
    """The same samples and labels, and the same probabilities, up to what the size of a batch changes."""
    for row, other in zip(found, expected, strict=True):
        assert (row["path"], row["label"]) == (other["path"], other["label"])
        assert row["probability"] == pytest.approx(other["probability"], abs=1e-4)


@pytest.mark.parametrize("raw", [False, True])
def test_a_folder_is_labelled_as_in_python_picture_by_picture(run, place, raw):
    rows, err = run("photos", "--batch", 7, *(["--raw-probability"] if raw else []))
    classifier = pta.Classifier("embedded", FASHION.class_names, cache=None, raw_probability=raw)
    for row, path in zip(rows, paths_in(place / "photos"), strict=True):
        answer = classifier(path)
        assert row["path"] == str(path.relative_to(place))
        assert (row["label"], row["zero_shot_label"]) == (answer.label, answer.zero_shot_label)
        assert row["probability"] == pytest.approx(answer.probability, abs=1e-4)
        assert row["entropy"] == pytest.approx(answer.entropy, abs=1e-3)
    changed = sum(row["label"] != row["zero_shot_label"] for row in rows)
    assert "images: 60, " in err
    assert f"pta changed {changed} labels " in err


def test_csv_and_json_lines_say_the_same(run, tmp_path):
    out = tmp_path / "rows.csv"
    run("photos", "--top", 3, "--out", out)
    lines, _ = run("photos", "--top", 3)
    with out.open(newline="") as file:
        table = list(csv.DictReader(file))
    for row, line in zip(table, lines, strict=True):
        assert row["path"] == line["path"]
        assert [row["label"], row["label_2"], row["label_3"]] == [one["label"] for one in line["top"]]
        assert float(row["probability_3"]) == line["top"][2]["probability"]


def test_paths_and_frames_from_a_pipe_give_what_the_folder_gives(run, place):
    folder, _ = run("photos")
    files = paths_in(place / "photos")
    paths, _ = run("-", stdin="\n".join(str(path.relative_to(place)) for path in files).encode())
    frames, _ = run("-", "--frames", stdin=b"".join(path.read_bytes() for path in files))
    assert_same(paths, folder)
    assert_same([row | {"path": one["path"]} for row, one in zip(frames, folder, strict=True)], folder)
    assert [row["path"] for row in frames[:2]] == ["frame 0", "frame 1"]


@pytest.mark.parametrize("frames", [False, True])
def test_standard_input_that_was_read_is_closed(frames, monkeypatch, tmp_path):
    opened, fdopen = [], os.fdopen
    monkeypatch.setattr(os, "fdopen", lambda *args, **given: opened.append(fdopen(*args, **given)) or opened[-1])
    (tmp_path / "piped").touch()
    with (tmp_path / "piped").open() as piped:
        monkeypatch.setattr(sys, "stdin", piped)
        assert list(open_places(["-"], frames=frames)[0]) == []
    assert [file.closed for file in opened] == [True]


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
    first, _ = run(*files[:25], "--state", state)
    second, _ = run(*files[25:], "--state", state)
    assert_same(first + second, run(*files)[0])
    frozen = state.read_bytes()
    run(*files, "--state", state, "--freeze")
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


def test_what_cannot_be_read_or_resized_stops_after_what_came_before_it_or_is_skipped(run, pta, place, tmp_path):
    write_photos(tmp_path / "photos", 12)
    bad = paths_in(tmp_path / "photos")[4]
    bad.write_bytes(b"no picture")
    stopped = pta(*call(tmp_path / "photos"), cwd=place)
    assert (stopped.returncode, len(rows_of(stopped.stdout))) == (2, 4)
    assert f"{bad}: not an image" in stopped.stderr
    assert "--on-error skip" in stopped.stderr
    Image.new("LAB", (30, 30)).save(tmp_path / "photos" / "lab.tif")
    (tmp_path / "photos" / "loop.jpg").symlink_to("loop.jpg")
    (tmp_path / "photos" / "self").symlink_to("self")
    rows, err = run(tmp_path / "photos", "--on-error", "skip")
    assert len(rows) == 11
    for told in (
        f"skipped: {bad}: not an image",
        "lab.tif: conversion from LAB",
        "loop.jpg cannot be read",
        "3 skipped",
    ):
        assert told in err


def test_whoever_reads_the_rows_may_stop_early(start):
    process = start("photos", "--batch", 1, to_the_end=True)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait() == 0
    assert process.stderr.read().count("\n") == 1  # what was done until then


def test_rows_are_added_to_a_file_only_when_asked(run, refused, tmp_path):
    out = tmp_path / "rows.csv"
    run("photos", "--out", out)
    assert "--append" in refused("photos", "--out", out)
    run("photos", "--out", out, "--append")
    lines = out.read_text().splitlines()
    assert len(lines) == 1 + 2 * 60
    assert sum(line.startswith("path,") for line in lines) == 1
    assert "other columns" in refused("photos", "--out", out, "--append", "--top", 3)
    assert out.read_text().splitlines() == lines
    with out.open("a") as file:
        file.write("half a row")  # as a kill leaves it
    run("photos", "--out", out, "--append")
    assert out.read_text().splitlines()[: len(lines) + 1] == [*lines, "half a row"]
    assert len(out.read_text().splitlines()) == len(lines) + 1 + 60


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_improbable_answers_are_marked_as_rejected_and_keep_their_label(run, refused, tmp_path, ending):
    out = tmp_path / f"rows.{ending}"
    plain, _ = run("photos")
    marked, err = run("photos", "--reject-below", 0.6)
    rejected = [row.pop("rejected") for row in marked]
    assert_same(marked, plain)
    assert rejected == [row["probability"] < 0.6 for row in marked]
    assert 0 < sum(rejected) < 60
    assert f"; {sum(rejected)} rejected\n" in err
    stream = ("--state", tmp_path / "state", "--out", out, "--reject-below", 0.6)
    run(*(row["path"] for row in plain[:20]), *stream)
    assert "--reject-below" in refused("photos", *stream[:-2], "--resume")
    run("photos", *stream, "--resume")
    text = out.read_text()
    rows = list(csv.DictReader(text.splitlines())) if ending == "csv" else rows_of(text)
    assert [row["rejected"] in (True, "true") for row in rows] == rejected
    assert [row["label"] for row in rows] == [row["label"] for row in plain]


def test_rows_that_cannot_be_printed_end_the_work_with_one_line_and_a_saved_state(start, tmp_path):
    with Path("/dev/full").open("w") as full:
        process = start(
            "photos", "--batch", 16, "--state", tmp_path / "state.safetensors", stdout=full, to_the_end=True
        )
    assert process.wait() == 1
    assert process.stderr.read().splitlines()[1:] == ["pta: standard output cannot be written: no space left on device"]
    assert about(tmp_path / "state.safetensors")["position"] == 2  # the first batch has been learned


def test_rows_that_do_not_fit_on_the_disk_are_kept_in_the_state_and_written_by_the_next_run(run, start, tmp_path):
    def stream(name):
        rows = tmp_path / f"{name}.jsonl"
        small = ("--method", "pta", "--state", tmp_path / name)  # a state of wpta is larger than all rows
        return ["photos", "--batch", 8, "--top", 10, *small, "--out", rows, "--append"]

    run(*stream("whole"))
    earlier = 4 * (tmp_path / "whole.jsonl").read_bytes()  # so that a state fits even if it keeps all rows
    (tmp_path / "cut.jsonl").write_bytes(earlier)
    limit = len(earlier) + 20_000
    process = start(
        *stream("cut"), first=f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))"
    )
    assert process.wait() == 1
    said = [line for line in process.stderr.read().splitlines() if "sorted by class" not in line]
    assert said[-1] == "pta: rows cannot be written: file too large"
    assert all("photos" in line or "images" in line for line in said[:-1])  # what was done until then
    written = len(rows_of((tmp_path / "cut.jsonl").read_text())) - 240
    assert written % 8 == 1  # whole batches, of which the first is small
    kept = about(tmp_path / "cut")["position"] - written
    assert kept >= 8  # the batch that did not fit, and those that were answered meanwhile
    assert f"{kept} rows that could not be written before will be written now" in run(*stream("cut"), "--resume")[1]
    rows = rows_of((tmp_path / "cut.jsonl").read_text())
    assert_same(rows[240:], rows[:60])
    assert about(tmp_path / "cut")["position"] == 60


# -- going on after a stop --------------------------------------------------------------------------------------------


@pytest.fixture
def stopped(run, tmp_path):
    """A stream of 10 photographs that ended after 6: `photos`, `rows`, `state`, and the options to go on with it."""
    rows, state = tmp_path / "rows.csv", tmp_path / "state.safetensors"
    files = ("--state", state, "--out", rows)
    write_photos(tmp_path / "photos", 10)
    run(*paths_in(tmp_path / "photos")[:6], *files)
    return SimpleNamespace(photos=tmp_path / "photos", rows=rows, state=state, files=files)


@pytest.fixture
def whole(run, stopped, tmp_path):
    """The paths and labels of all 10, below the header."""
    run(stopped.photos, "--out", tmp_path / "whole.csv")
    return paths_and_labels(tmp_path / "whole.csv")


def paths_and_labels(rows):
    return [line.split(",")[:2] for line in rows.read_text().splitlines()]


@pytest.mark.parametrize("piped", [False, True])
def test_a_resumed_stream_skips_what_was_seen_and_writes_each_row_once(run, stopped, whole, piped):
    source, listed = "-" if piped else stopped.photos, "\n".join(path for path, _ in whole[1:]).encode()
    assert "images: 4, " in run(source, *stopped.files, "--resume", stdin=listed)[1]
    assert paths_and_labels(stopped.rows) == whole
    assert about(stopped.state)["position"] == about(stopped.state)["stream"]["taken"] == 10
    assert about(stopped.state)["stream"]["last"] == whole[-1][0]
    before = stopped.rows.read_bytes(), stopped.state.read_bytes()
    run(source, *stopped.files, "--resume", stdin=listed)
    assert (stopped.rows.read_bytes(), stopped.state.read_bytes()) == before


def test_rows_after_the_last_saved_state_are_written_again_or_named_when_more_are_added(run, stopped, whole):
    with stopped.rows.open("a") as file:
        file.write(f"{whole[7][0]},bag,1,bag,1,0\n{whole[8][0]},ba")  # as a kill leaves them
    told = run(stopped.photos, *stopped.files, "--resume")[1]
    assert "pta: 2 rows after the last saved state will be written again\n" in told
    assert paths_and_labels(stopped.rows) == whole
    assert about(stopped.state)["position"] == 10
    with stopped.rows.open("a") as file:
        file.write(f"{whole[7][0]},bag,1,bag,1,0\n")
    told = run(stopped.photos, *stopped.files, "--append")[1]
    assert f"{stopped.rows} has 1 rows written after {stopped.state} was saved; the state has not learned" in told
    assert len(paths_and_labels(stopped.rows)) == 1 + 10 + 1 + 10


def test_what_is_advised_where_rows_are_lost_works(run, refused, stopped, tmp_path):
    call = (stopped.photos, "--state", stopped.state, "--out", tmp_path / "other.csv")
    assert "leave out --resume and choose another --out" in refused(*call, "--resume")
    run(*call)
    assert len((tmp_path / "other.csv").read_text().splitlines()) == 1 + 10


def forget_the_stream(stopped):
    classifier = pta.Classifier("embedded", FASHION.class_names, cache=None)
    classifier.load(stopped.state)
    classifier.save(stopped.state)


def rename_a_picture(stopped):
    path = paths_in(stopped.photos)[3]
    path.rename(path.with_suffix(".b.jpg"))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            lambda stopped: stopped.rows.write_bytes(stopped.rows.read_bytes()[:-50]),
            r"rows\.csv has .* bytes, but .* was saved with .*: rows are missing",
        ),
        (
            lambda stopped: stopped.rows.unlink(),
            r"rows\.csv does not exist; the rows of .*state\.safetensors were in a file called rows\.csv",
        ),
        (
            lambda stopped: stopped.rows.write_text(stopped.rows.read_text().replace(".jpg", ".png") + "\n"),
            r"rows\.csv is not the file that .*state\.safetensors was saved with \(rows\.csv\)",
        ),
        (
            lambda stopped: stopped.rows.write_text(stopped.rows.read_text() + "elsewhere.jpg,bag,1,bag,1,0\n"),
            r"holds a row for elsewhere\.jpg, which is not one of the next samples",
        ),
        (lambda stopped: paths_in(stopped.photos)[3].unlink(), r"has seen \S+\.jpg as sample 6, which now is \S+\.jpg"),
        (rename_a_picture, r"has seen other samples before \S+\.jpg"),
        (
            lambda stopped: [path.unlink() for path in paths_in(stopped.photos)[5:]],
            r"has seen 6 samples, but there are 5",
        ),
        (lambda stopped: stopped.state.unlink(), r"rows\.csv holds rows, but there is no .*state\.safetensors"),
        (forget_the_stream, r"state\.safetensors does not record a stream with a row file"),
    ],
)
def test_a_stream_that_cannot_go_on_is_refused_in_one_line_and_left_as_it_is(refused, stopped, change, complaint):
    def contents():
        return {path: path.read_bytes() for path in stopped.rows.parent.iterdir() if path.is_file()}

    change(stopped)
    before = contents()
    assert re.search(complaint, refused(stopped.photos, *stopped.files, "--resume"))
    assert contents() == before


def test_one_process_writes_a_state_and_one_a_file_of_rows(run, refused, tmp_path):
    state, rows = tmp_path / "state.safetensors", tmp_path / "rows.csv"
    for file in (state, rows):
        with sole_writer(file):
            assert f"another process is writing {file} now" in refused("photos", "--state", state, "--out", rows)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".state.safetensors.4711.0123abcd").touch()  # as a killed process leaves it
    run("photos/bag", "--state", state, "--out", rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv", "state.safetensors"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere"], "no such file or folder: 'nowhere'"),
        (["classes.txt", "-"], "cannot be mixed"),
        (["photos", "--frames"], "--frames reads pictures from standard input"),
        (["photos", "--out", "rows.txt"], "must end in .jsonl or .csv"),
        (["photos", "--method", "ptaa"], "did you mean 'pta'"),
        (["photos", "--state", "none/x.safetensors"], "the folder none does not exist"),
        (["photos", "--state", "classes.txt"], "cannot be read as a state file"),
        (["photos", "--state", "none.safetensors", "--freeze"], "needs a state, but there is no such file"),
        (["photos", "--classes", "cat"], "no such file of class names: cat"),
        (["photos", "--classes", "x" * 5000], "no such file of class names"),
        (["photos", "--classes", "cat,"], "--classes cat, names 1, but two or more classes are needed"),
        (["photos", "--classes", "one-line.txt"], "one class name per line"),
        (["", "photos"], "non-empty paths"),
        (["photos", "--csv", "--out", "rows.csv"], "--csv is for standard output"),
        (["photos", "--append"], "--append adds to a file"),
        (["photos", "--resume", "--out", "r.csv"], "name it with --state"),
        (["photos", "--resume", "--state", "s.safetensors"], "name it with --out"),
        (["-", "--frames", "--resume", "--state", "s.safetensors", "--out", "r.csv"], "which --frames cannot do"),
        (["photos", "--resume", "--freeze", "--state", "s.safetensors", "--out", "r.csv"], "leave one of them out"),
        (["photos", "--out", "same.csv", "--state", "same.csv"], "must be different files"),
        (["photos", "--device", "mps"], "torch cannot use the device 'mps' here"),
        (["photos", "--templates", "photo"], "photo"),
        (["photos", "--dtype", "float8"], "float8"),
        (["photos", "--on-error", "ignore"], "ignore"),
        (["photos", "--model", "hf:"], "no model is called 'hf:'"),
        (["photos", "--set", "tda.positive_beta=3"], "the method is wpta; give --method tda"),
        (["photos", "--set", "wpta.hh=3"], "wpta has no parameter 'hh'"),
        (["photos", "--method", "transclip"], "needs the whole dataset at once"),
        (["photos", "--method", "mta", "--views", "4"], "views"),
        (["photos", "--method", "mta", "--fast-decode"], "full picture"),
        (["photos", "--offset", "panda-batch", "--batch", "1", "--out", "r.csv"], "--batch 1: offset=panda-batch"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(refused, place, arguments, complaint):
    before = sorted(place.rglob("*.*"))
    assert complaint in refused(*arguments)
    assert sorted(place.rglob("*.*")) == before


def test_a_class_file_may_come_from_another_system(tmp_path):
    odd = tmp_path / "classes.txt"
    odd.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(["coat", "", " bag "]).encode())
    assert read_classes(str(odd)) == ["coat", "bag"]
    assert read_classes("coat, bag") == ["coat", "bag"]


def test_comments_and_blank_lines_of_a_class_file_are_no_classes(tmp_path):
    (tmp_path / "classes.txt").write_text("# clothes\ncoat\n\n  # of leather\nbag #1\n")
    assert read_classes(str(tmp_path / "classes.txt")) == ["coat", "bag #1"]
    assert read_classes("#1,#2") == ["#1", "#2"]


def test_the_default_model_is_never_replaced_silently(commands, place, tmp_path):
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    commands.start("predict", "photos", "--classes", "classes.txt", folder=place, environment=environment)
    assert (commands.wait(), commands.stdout.read()) == (2, "")
    said = commands.stderr.read()
    assert all(word in said for word in ("hf:openai/clip-vit-base-patch16", "--model embedded", "clothing only"))


# -- methods that need more than features ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [["tca"], ["mta", "--views", "16"]], ids=str)
def test_the_command_runs_methods_of_pixels_and_of_views(run, place, method):
    rows, err = run("photos/bag", "--method", *method)
    assert len(rows) == len(list((place / "photos" / "bag").iterdir()))
    assert f"{method[0]} changed " in err


def test_parameters_can_be_set_once_and_the_length_of_a_folder_is_known(run, refused, place):
    run("photos/bag", "--method", "onzeta", "--state", "onzeta.safetensors")
    length = len(list((place / "photos" / "bag").iterdir()))
    assert about(place / "onzeta.safetensors")["parameters"]["length"] == length
    run("photos/bag", "--state", "h.safetensors", "--method", "pta", "--set", "pta.h=50")
    assert about(place / "h.safetensors")["parameters"]["h"] == 50
    for given in (("--set", "pta.h=3"), ("--prior", "local"), ("--gate", "balance"), ("--calibration", "matched")):
        told = refused("photos/bag", *given, "--state", "h.safetensors")
        assert "leave out --set, --offset, --prior, --gate and --calibration" in told


def test_the_command_says_when_answers_depend_on_the_batch(run):
    told = "pta: stata predicts a batch at a time: its results depend on --batch 16\n"
    assert told in run("photos/bag", "--method", "stata", "--batch", 16)[1]
    assert "batch at a time" not in run("photos/bag")[1]


def test_what_depends_on_the_batch_gets_whole_batches_from_the_first_on(run, place):
    rows, _ = run("photos", "--method", "clip", "--offset", "panda-batch", "--batch", 8)
    options = {"cache": None, "method": "clip", "offset": "panda-batch"}
    answers = pta.Classifier("embedded", FASHION.class_names, **options)(paths_in(place / "photos")[:8])
    assert [row["probability"] for row in rows[:8]] == pytest.approx([one.probability for one in answers], abs=1e-4)
    assert len(rows) == 60


def test_a_resumed_monitor_goes_on_and_writes_no_line_twice(run, place, tmp_path):
    files = ("--state", tmp_path / "s.safetensors", "--out", tmp_path / "rows.jsonl", "--monitor", tmp_path / "m.jsonl")
    write_photos(tmp_path / "photos", 140)
    first = run(tmp_path / "photos", *files, "--resume")[1]
    assert "foreign-input cannot be tested: the order is sorted" in first
    lines = (tmp_path / "m.jsonl").read_text()
    assert [line["position"] for line in rows_of(lines) if "alarm" not in line] == [64, 128]
    # as if a run had been killed after it wrote the lines, and before it saved its state
    (tmp_path / "s.safetensors").unlink()
    (tmp_path / "rows.jsonl").unlink()
    run(tmp_path / "photos", *files, "--resume")
    assert (tmp_path / "m.jsonl").read_text() == lines


def test_a_run_that_was_refused_before_its_first_row_can_be_repeated(refused, run, place):
    (place / "broken.png").write_text("hello")
    assert "broken.png: not an image" in refused("broken.png", "--out", "again.csv")
    run("photos", "--out", "again.csv")
    assert len((place / "again.csv").read_text().splitlines()) == 61
    assert "again.csv exists; --append" in refused("photos", "--out", "again.csv")
