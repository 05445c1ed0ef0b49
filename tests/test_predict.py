"""`pta predict` and `pta.Classifier`, as a practitioner uses them: real files, real processes, real interruptions."""

import csv
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from openai_checkpoints import random_state
from photos import FASHION, write_classes, write_photos
from PIL import Image
from processes import PATIENCE

import pta
from pta.adapters import create_adapter
from pta.claims import sole_writer
from pta.cli.options import read_classes
from pta.encoders import EmbeddedEncoder
from pta.encoders.clip_encoder import ClipEncoder
from pta.errors import (
    InvalidClassifier,
    InvalidParameter,
    PtaError,
    StateMismatch,
    UnreadableFile,
    UnreadableSample,
)
from pta.files import load_tensors
from pta.inference.answers import answers_from
from pta.inference.encoding import Reading
from pta.inference.predict import predict_stream
from pta.inference.row_file import RowFile
from pta.inference.saved_stream import SavedStream
from pta.inference.sources import find_samples
from pta.inference.stream_progress import Progress
from pta.samples import Samples
from pta.views import make_views


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    write_photos(folder / "photos", 60)
    write_classes(folder / "classes.txt")
    (folder / "one-line.txt").write_text("cat,dog\n")
    return folder


@pytest.fixture
def classifier():
    return pta.Classifier("embedded", FASHION.class_names, cache=None)


def call(*arguments):
    fixed = ["--classes", "classes.txt", "--model", "embedded", "--device", "cpu"]
    return ["predict", *fixed, *map(str, arguments)]


def start(place, *arguments, **how):
    command = [sys.executable, "-c", "from pta.cli import main; main()", *call(*arguments)]
    environment = {**os.environ, "PTA_CACHE": str(place / "cache")}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, env=environment, cwd=place, **pipes, **how)


@pytest.fixture
def run(pta, place):
    def run(*arguments, stdin=b""):
        done = pta(*call(*arguments), stdin=stdin, cwd=place)
        return done.returncode, done.stdout, done.stderr

    return run


def rows_of(text):
    return [json.loads(line) for line in text.splitlines()]


def about(state):
    return load_tensors(state, kind="state")[1]


def by_hand(place, method="pta", count=60, views=None):
    """The first pictures one by one, with nothing but the encoder and the adapter: path, logits, zero-shot logits."""
    encoder = EmbeddedEncoder.load()
    classifier = pta.Classifier(encoder, FASHION.class_names, cache=None).classifier
    adapter = create_adapter(method, classifier, model=encoder)
    for path in sorted((place / "photos").glob("*/*.jpg"))[:count]:
        picture = Image.open(path)
        plain, seen = encoder.encode(encoder.preprocess(picture)), None
        if views is not None:
            seed = (zlib.crc32(picture.tobytes()),)
            seen = encoder.encode(make_views(picture, encoder.preprocess, count=views, mode="crops", seed=seed))[None]
        raw = torch.from_numpy(encoder.preprocess.pixels(picture))[None]
        logits = adapter.step(Samples.of(plain, views=seen, raw=raw))
        yield path, logits[0], classifier.logits(plain)[0]


def labels_by_hand(*arguments, **how):
    found = by_hand(*arguments, **how)
    return [tuple(FASHION.class_names[int(row.argmax())] for row in rows) for _, *rows in found]


def test_a_folder_is_labelled_as_one_by_one_by_hand(run, place):
    code, out, err = run("photos", "--batch", 7)
    assert code == 0, err
    rows = rows_of(out)
    expected = list(by_hand(place))
    assert [row["path"] for row in rows] == [str(path.relative_to(place)) for path, _, _ in expected]
    for row, (_, logits, zero_shot) in zip(rows, expected, strict=True):
        probabilities = (logits.double() / 2).softmax(0)  # PTA adds two classifiers
        assert row["label"] == FASHION.class_names[int(logits.argmax())]
        assert row["zero_shot_label"] == FASHION.class_names[int(zero_shot.argmax())]
        assert row["probability"] == pytest.approx(float(probabilities.max()), abs=1e-4)
        assert row["entropy"] == pytest.approx(float(torch.special.entr(probabilities).sum()), abs=1e-3)
    changed = sum(row["label"] != row["zero_shot_label"] for row in rows)
    assert "images: 60, " in err
    assert f"pta changed the answer for {changed} " in err


def test_raw_probabilities_are_the_softmax_of_the_logits_and_change_no_label(run, place):
    code, out, err = run("photos", "--raw-probability")
    assert code == 0, err
    for row, (_, logits, _) in zip(rows_of(out), by_hand(place), strict=True):
        assert row["label"] == FASHION.class_names[int(logits.argmax())]
        assert row["probability"] == pytest.approx(float(logits.double().softmax(0).max()), abs=1e-4)


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
    files = sorted((place / "photos").glob("*/*.jpg"))
    listed = "\n".join(str(path.relative_to(place)) for path in files)
    _, paths, _ = run("-", stdin=listed.encode())
    _, frames, _ = run("-", "--frames", stdin=b"".join(path.read_bytes() for path in files))
    for row, expected in zip(rows_of(paths), rows_of(folder), strict=True):
        assert (row["path"], row["label"]) == (expected["path"], expected["label"])
        assert row["probability"] == pytest.approx(expected["probability"], abs=1e-4)
    assert [row["label"] for row in rows_of(frames)] == [row["label"] for row in rows_of(folder)]
    assert [row["path"] for row in rows_of(frames)[:2]] == ["frame 0", "frame 1"]


def test_rows_come_and_the_state_is_saved_while_the_pipe_is_still_open(place, tmp_path):
    state = tmp_path / "state.safetensors"
    process = start(place, "-", "--state", state, "--save-every", 0)
    path = next((place / "photos").glob("bag/*.jpg"))
    for _ in range(2):
        process.stdin.write(f"{path}\n".encode())
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["path"] == str(path)
    while about(state)["position"] < 2:  # nothing more comes
        assert process.poll() is None
    process.stdin.close()
    assert process.wait() == 0


def test_yesterdays_state_goes_on_today(run, place, tmp_path):
    files = sorted((place / "photos").glob("*/*.jpg"))
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
def test_an_interrupted_stream_is_saved_as_far_as_it_was_answered(by, frames, place, tmp_path, classifier):
    state = tmp_path / "state.safetensors"
    process = start(place, "-", "--state", state, *(["--frames"] if frames else []))
    files = sorted((place / "photos").glob("*/*.jpg"))[:3]
    for path in files:
        process.stdin.write(path.read_bytes() if frames else f"{path}\n".encode())
    process.stdin.flush()
    answered = [json.loads(process.stdout.readline()) for _ in files]
    if frames:
        process.stdin.write(files[0].read_bytes()[:300])  # half a picture, and no more
        process.stdin.flush()
    process.send_signal(by)  # the pipe stays open: it is still waiting
    assert process.wait() == 128 + by
    assert f"state saved to {state}; stopped by {by.name}" in process.stderr.read().decode()
    expected = [f"frame {number}" for number in range(3)] if frames else [str(path) for path in files]
    assert [row["path"] for row in answered] == expected
    classifier([str(path) for path in files])
    saved = pta.load_adapter(state, classifier.classifier)
    for name, tensor in saved.state().items():
        torch.testing.assert_close(tensor, getattr(classifier.adapter, name), atol=1e-5, rtol=1e-5)


def test_an_unreadable_image_stops_after_what_came_before_it_or_is_skipped(run, tmp_path):
    write_photos(tmp_path / "photos", 12)
    bad = sorted((tmp_path / "photos").glob("*/*.jpg"))[4]
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


def test_whoever_reads_the_rows_may_stop_early(place):
    process = start(place, "photos", "--batch", 1)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait() == 0
    assert b"Traceback" not in process.stderr.read()


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


def test_rows_that_cannot_be_printed_end_the_work_with_one_line_and_a_saved_state(place, tmp_path):
    with Path("/dev/full").open("w") as full:
        arguments = call("photos", "--batch", 16, "--state", tmp_path / "state.safetensors")
        command = [sys.executable, "-c", "from pta.cli import main; main()", *arguments]
        done = subprocess.run(command, cwd=place, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[1:] == ["pta: standard output cannot be written: no space left on device"]
    assert about(tmp_path / "state.safetensors")["position"] == 2  # the first batch has been learnt


def test_rows_that_do_not_fit_on_the_disk_are_kept_in_the_state_and_written_by_the_next_run(run, place, tmp_path):
    def stream(name):
        return ["photos", "--batch", 8, "--top", 10, "--state", tmp_path / name, "--out", tmp_path / f"{name}.jsonl"]

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    process = start(place, *stream("cut"), preexec_fn=limit)
    assert process.wait() == 2
    said = process.stderr.read().decode().splitlines()
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
    assert run("photos", "--out", tmp_path / "whole.csv")[0] == 0
    whole = [line.split(",")[:2] for line in (tmp_path / "whole.csv").read_text().splitlines()]
    return ["photos", "--state", state, "--out", rows, "--resume"], rows, state, whole


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


def lose_rows(rows, state, photos):
    rows.write_bytes(rows.read_bytes()[:-50])


def lose_all_rows(rows, state, photos):
    rows.unlink()


def write_other_rows(rows, state, photos):
    rows.write_text(rows.read_text().replace("bag", "hat") + "\n")


def add_rows_of_others(rows, state, photos):
    rows.write_text(rows.read_text() + "elsewhere.jpg,bag,1,bag,1,0\n")


def remove_a_picture(rows, state, photos):
    sorted(photos.glob("*/*.jpg"))[3].unlink()


def replace_a_picture(rows, state, photos):
    path = sorted(photos.glob("*/*.jpg"))[3]
    path.rename(path.with_name(path.stem + "b.jpg"))


def remove_most_pictures(rows, state, photos):
    for path in sorted(photos.glob("*/*.jpg"))[5:]:
        path.unlink()


def forget_the_state(rows, state, photos):
    state.unlink()


def forget_the_stream(rows, state, photos):
    classifier = pta.Classifier("embedded", FASHION.class_names, cache=None)
    classifier.load(state)
    classifier.save(state)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lose_rows, r"rows\.csv has .* bytes, not the .* that .* was saved with: rows are missing"),
        (
            lose_all_rows,
            r"rows\.csv is not there, and .*state\.safetensors was saved with rows in a file called rows\.csv",
        ),
        (
            write_other_rows,
            r"rows\.csv is not the file that .*state\.safetensors was saved with, which was called rows\.csv",
        ),
        (add_rows_of_others, r"holds a row for elsewhere\.jpg, which is none of the samples that come next"),
        (remove_a_picture, r"has seen \S+\.jpg as sample 20, which now is \S+\.jpg"),
        (replace_a_picture, r"has seen other samples before \S+\.jpg"),
        (remove_most_pictures, r"has seen 20 samples, but there are 5"),
        (forget_the_state, r"rows\.csv holds rows, but there is no .*state\.safetensors"),
        (forget_the_stream, r"state\.safetensors records no stream with rows in a file"),
    ],
)
def test_a_stream_that_cannot_go_on_is_refused_in_one_line_and_left_as_it_is(run, tmp_path, change, complaint):
    photos, rows, state = tmp_path / "photos", tmp_path / "rows.csv", tmp_path / "state.safetensors"
    write_photos(photos, 30)
    first = sorted(photos.glob("*/*.jpg"))[:20]
    assert run(*first, "--state", state, "--out", rows)[0] == 0
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


def test_a_state_that_can_no_longer_be_saved_stops_the_stream_and_says_what_is_lost(place, tmp_path, classifier):
    (tmp_path / "kept").mkdir()
    rows = RowFile(tmp_path / "rows.csv", top=1)
    stream = SavedStream(classifier, tmp_path / "kept" / "state.safetensors", rows, Progress(), every=0)
    batches = predict_stream(
        classifier, find_samples([place / "photos"]), Reading(batch=8), stopping=stream.save_if_due
    )

    def label():
        with stream:
            for number, part in enumerate(batches):
                stream.add(part)
                if number == 2:
                    (tmp_path / "kept").rename(tmp_path / "gone")

    complaint = r"cannot write .*: the folder .* does not exist; what was learned from the last 8 samples is not saved$"
    with pytest.raises(UnreadableFile, match=complaint):
        label()
    assert about(tmp_path / "gone" / "state.safetensors")["position"] == 1 + 8
    assert len(paths_and_labels(tmp_path / "rows.csv")) == 1 + 1 + 8 + 8  # and the header
    rows.close()


def test_batches_end_at_the_same_samples_wherever_a_stream_goes_on(place, classifier):
    samples = find_samples([place / "photos"])
    whole = [part.keys for part in predict_stream(classifier, samples, Reading(batch=16))]
    assert list(map(len, whole)) == [2, 16, 16, 16, 10]
    for first in (2, 5, 18, 34):
        rest = [part.keys for part in predict_stream(classifier, samples[first:], Reading(batch=16), first=first)]
        assert rest[1:] == whole[-len(rest) + 1 :]
        assert rest[0] == whole[-len(rest)][-len(rest[0]) :]


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


def test_the_default_model_is_never_replaced_silently(place, tmp_path):
    call = [sys.executable, "-c", "from pta.cli import main; main()", "predict", "photos", "--classes", "classes.txt"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(call, cwd=place, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (2, "")
    assert "hf:openai/clip-vit-base-patch16" in done.stderr
    assert "--model embedded" in done.stderr
    assert "clothing only" in done.stderr


# -- the same in Python ----------------------------------------------------------------------------------------------


def test_one_picture_after_the_other_equals_all_at_once(classifier):
    together = pta.Classifier("embedded", FASHION.class_names, cache=None)
    frames = list(FASHION.images[:30])
    one_by_one = [classifier(frame) for frame in frames]
    for one, other in zip(one_by_one, together(frames), strict=True):
        assert (one.label, one.zero_shot_label) == (other.label, other.zero_shot_label)
        assert one.probability == pytest.approx(other.probability, abs=1e-4)


def test_looking_without_learning_changes_nothing(classifier):
    before = {name: tensor.clone() for name, tensor in classifier.adapter.state().items()}
    classifier(FASHION.images[0], learn=False)
    assert all(torch.equal(tensor, before[name]) for name, tensor in classifier.adapter.state().items())


def test_what_was_learnt_can_be_saved_and_loaded(classifier, tmp_path):
    classifier(list(FASHION.images[:20]))
    classifier.save(tmp_path / "s.safetensors")
    other = pta.Classifier("embedded", FASHION.class_names, cache=None)
    other.load(tmp_path / "s.safetensors")
    resumed, kept = other(FASHION.images[20]), classifier(FASHION.images[20])
    assert resumed.label == kept.label
    assert resumed.probability == pytest.approx(kept.probability, abs=1e-5)
    wrong = pta.Classifier("embedded", ["cat", "dog"], cache=None)
    with pytest.raises(StateMismatch):
        wrong.load(tmp_path / "s.safetensors")


def test_the_pipeline_has_the_shape_that_transformers_gives(classifier):
    classify = classifier.pipeline(top_k=3)
    pictures = [Image.fromarray(image) for image in FASHION.images[:2]]
    one = classify(pictures[0])
    assert [set(score) for score in one] == [{"label", "score"}] * 3
    assert one[0]["score"] >= one[1]["score"] >= one[2]["score"]
    several = classify(pictures, top_k=1)
    assert [len(scores) for scores in several] == [1, 1]


@pytest.mark.parametrize(
    ("classes", "how", "mistake"),
    [
        (["cat"], {}, InvalidClassifier),
        ("cat", {}, InvalidClassifier),
        (["cat", "dog"], {"templates": "no place for a name"}, PtaError),
        (["cat", "dog"], {"method": "none"}, PtaError),
        (["cat", "dog"], {"hh": 3}, InvalidParameter),
    ],
)
def test_mistakes_in_python_are_pta_errors(classes, how, mistake):
    with pytest.raises(mistake):
        pta.Classifier("embedded", classes, cache=None, **how)


def test_probabilities_and_entropy_are_those_of_the_adapted_logits():
    logits, zero_shot = torch.tensor([[2.0, 0.0, 1.0]]), torch.tensor([[0.0, 1.0, 0.0]])
    (answer,) = answers_from(logits, logits.softmax(dim=1), zero_shot, ["a", "b", "c"], top=2)
    p = np.exp([2.0, 0.0, 1.0]) / np.exp([2.0, 0.0, 1.0]).sum()
    assert answer.top == (("a", pytest.approx(p[0])), ("c", pytest.approx(p[2])))
    assert answer.entropy == pytest.approx(-(p * np.log(p)).sum())
    assert (answer.label, answer.zero_shot_label, answer.changed) == ("a", "b", True)
    assert answer.zero_shot_probability == pytest.approx(np.e / (np.e + 2))


def test_when_a_batch_is_given_out_exactly_that_has_been_learnt(place, classifier):
    twin = pta.Classifier("embedded", FASHION.class_names, cache=None)
    images = find_samples([place / "photos"])
    batches = predict_stream(classifier, images, Reading(batch=16))
    given_out = len(next(batches).answers) + len(next(batches).answers)
    time.sleep(0.2)  # more is being decoded meanwhile
    twin([image.path for image in images[:given_out]])
    for name, tensor in twin.adapter.state().items():
        torch.testing.assert_close(getattr(classifier.adapter, name), tensor, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "how", "mistake"),
    [
        ([FASHION.images[0], "nowhere.jpg"], {}, UnreadableSample),
        (FASHION.images[0], {"top": 0}, InvalidParameter),
        ([FASHION.images[0]], {"top": "x"}, InvalidParameter),
        ([FASHION.images[0]], {"top": True}, InvalidParameter),
        ([], {"top": 1.5}, InvalidParameter),
    ],
)
def test_a_refusal_learns_nothing(given, how, mistake, classifier):
    before = classifier.adapter.snapshot().tensors
    with pytest.raises(mistake):
        classifier(given, **how)
    for odd in (torch.ones(2, 7), torch.tensor(1.0), None, 5, object()):
        with pytest.raises(PtaError):
            classifier.answer(odd)
    assert all(torch.equal(tensor, before[name]) for name, tensor in classifier.adapter.state().items())
    assert classifier.adapter.position == 0


@pytest.mark.parametrize("top", [0, -1, "x", 1.5, None])
def test_a_number_of_answers_that_makes_no_sense_is_refused_at_once(top, place, classifier):
    for call in (
        lambda: classifier.pipeline(top_k=top),
        lambda: classifier.pipeline()(FASHION.images[0], top_k=top),
        lambda: predict_stream(classifier, find_samples([place / "photos"]), top=top),
    ):
        with pytest.raises(InvalidParameter, match="must be a whole number"):
            call()
    assert classifier.adapter.position == 0


def test_bytes_are_a_picture_too(place, classifier):
    path = next((place / "photos").glob("bag/*.jpg"))
    assert classifier(path.read_bytes(), learn=False) == classifier(path, learn=False)


def test_a_state_that_cannot_be_used_is_refused_and_changes_nothing(tmp_path):
    pta.Classifier("embedded", FASHION.class_names, cache=None, method="mta").save(tmp_path / "mta.safetensors")
    few = pta.Classifier("embedded", FASHION.class_names, cache=None, views=4)
    few(FASHION.images[0])
    adapter, learned = few.adapter, few.adapter.snapshot().tensors
    for wrong in ("nowhere.safetensors", "mta.safetensors"):
        with pytest.raises(PtaError):
            few.load(tmp_path / wrong)
        assert few.adapter is adapter
        assert all(torch.equal(tensor, learned[name]) for name, tensor in adapter.state().items())


# -- methods that need more than features ------------------------------------------------------------------------------


def test_a_method_of_views_is_given_views_of_every_picture(place):
    classifier = pta.Classifier("embedded", FASHION.class_names, cache=None, method="zero", views=8)
    paths = sorted((place / "photos").glob("*/*.jpg"))[:6]
    answers = [*classifier(paths[:4]), *classifier(paths[4:])]
    expected = labels_by_hand(place, "zero", 6, views=8)
    assert [(answer.label, answer.zero_shot_label) for answer in answers] == expected
    streamed = pta.Classifier("embedded", FASHION.class_names, cache=None, method="zero", views=8)
    batches = predict_stream(streamed, find_samples([place / "photos"])[:6], Reading(batch=16))
    labels = [(answer.label, answer.zero_shot_label) for part in batches for _, answer in part.answers]
    assert labels == expected


def test_a_method_of_pixels_is_given_the_tower_and_the_pixels(place, tmp_path):
    expected = labels_by_hand(place, "tca", 12)
    classifier = pta.Classifier("embedded", FASHION.class_names, cache=None, method="tca")
    paths = sorted((place / "photos").glob("*/*.jpg"))[:12]
    first = classifier(paths[:8])
    classifier.save(tmp_path / "state.safetensors")
    other = pta.Classifier("embedded", FASHION.class_names, cache=None)  # by another method, until it loads
    other.load(tmp_path / "state.safetensors")
    answers = [*first, *other(paths[8:])]
    assert [(answer.label, answer.zero_shot_label) for answer in answers] == expected


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


def test_a_model_without_tokens_is_refused_for_a_method_of_pixels():
    encoder = ClipEncoder(random_state("RN50"), quick_gelu=True)
    with pytest.raises(InvalidParameter, match=r"image tower of .* cannot be run block by block"):
        pta.Classifier(encoder, ["cat", "dog"], cache=None, method="tca")
