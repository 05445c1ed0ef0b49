"""A data folder after damage, a full disk or an older version: named, refused or carried on."""

import logging
import os
import random
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
import torch
from serving import CLASSIFIER, ask, open_service, replayed, same_bits, saved, state_of

from pta import ZeroShotClassifier
from pta.errors import FileInUse, PtaError, UnreadableFile
from pta.serve.journal.check import back_up, check_folder
from pta.serve.journal.loss import Witnesses
from pta.serve.requests import Refused
from pta.serve.streams.past import Past
from pta.serve.streams.served_model import ServedModel
from pta.serve.streams.service import Service


def flip(path, place, bit):
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def test_a_flipped_bit_in_an_import_is_never_replayed_into_another_state(tmp_path):
    with open_service(tmp_path / "data") as service:
        for seed in range(6):
            ask(service, seed)
        service.operate("default", "import", content=service.export("default"))
        ask(service, 7)
        live = state_of(service)
    for path in tmp_path.glob("data/streams/*/snapshots/*"):
        path.unlink()
    (imported,) = tmp_path.glob("data/streams/1/imports/*")
    whole, random_numbers = imported.read_bytes(), random.Random(1)
    for _ in range(40):
        flip(imported, random_numbers.randrange(len(whole)), random_numbers.randrange(8))
        (problem,) = check_folder(tmp_path / "data")
        assert str(imported) in problem
        assert "digest that names it" in problem
        with open_service(tmp_path / "data") as service:
            with pytest.raises(Refused, match="digest that names it") as refusal:
                service.summary("default")
            assert refusal.value.status == 503
        imported.write_bytes(whole)
    assert check_folder(tmp_path / "data") == []
    with open_service(tmp_path / "data") as service:
        assert same_bits(state_of(service), live)


def test_a_check_names_every_snapshot_with_a_flipped_bit(tmp_path):
    with open_service(tmp_path, snapshot_samples=5) as service:
        for seed in range(12):
            ask(service, seed)
            saved(service)
    paths, random_numbers = sorted(tmp_path.glob("streams/1/snapshots/*.safetensors")), random.Random(2)
    assert len(paths) > 1
    assert check_folder(tmp_path) == []
    for path in paths:
        flip(path, random_numbers.randrange(path.stat().st_size), random_numbers.randrange(8))
    found = check_folder(tmp_path)
    assert len(found) == len(paths)
    assert all(str(path) in problem for path, problem in zip(paths, found, strict=True))


@pytest.mark.parametrize("failing", ["streams/1", "snapshots", "monitor"])
def test_a_folder_that_cannot_be_made_costs_no_sample(tmp_path, monkeypatch, caplog, failing):
    real = Path.mkdir

    def mkdir(self, *arguments, **named):
        if str(self).endswith(failing):
            raise OSError(28, "No space left on device")
        return real(self, *arguments, **named)

    with caplog.at_level(logging.WARNING, "pta.serve"), open_service(tmp_path, snapshot_samples=2) as service:
        monkeypatch.setattr(Path, "mkdir", mkdir)
        for seed in range(5):
            assert ask(service, seed).learned
        live = state_of(service)
    assert "no space left" in caplog.text
    monkeypatch.undo()
    with open_service(tmp_path) as service:
        assert same_bits(state_of(service), live)


def test_a_stream_whose_row_cannot_be_written_is_not_made(tmp_path):
    with open_service(tmp_path) as service:
        service._journal._database.writer.execute("PRAGMA query_only = ON")  # as a full disk would refuse
        with pytest.raises(Refused, match="stream street was not made") as refusal:
            service.create("street")
        assert refusal.value.status == 503
        assert [one["name"] for one in service.streams()] == ["default"]
    with open_service(tmp_path) as service:
        assert [one["name"] for one in service.streams()] == ["default"]
        service.create("street")


def test_the_default_stream_is_there_again_although_bytes_of_the_deleted_one_are_left(tmp_path):
    with open_service(tmp_path) as service, closing(sqlite3.connect(tmp_path / "journal.sqlite")) as reader:
        ask(service, 1)
        service._journal._database.writer.execute("PRAGMA busy_timeout = 0")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM samples").fetchall()
        with pytest.raises(FileInUse, match="another process reads"):
            service.operate("default", "delete")
        assert [one["position"] for one in service.streams()] == [0]
        assert ask(service, 2).learned


@pytest.mark.parametrize("name", [".", ".."])
def test_no_stream_is_called_as_a_folder_or_the_one_above(tmp_path, name):
    with open_service(tmp_path, auto_create=5) as service:
        calls = service.create, lambda name: service.operate(name, "delete"), lambda name: ask(service, 1, stream=name)
        for call in calls:
            with pytest.raises(Refused, match=r"is not \. or \.\.") as refusal:
                call(name)
            assert refusal.value.status == 422
        assert len(service.streams()) == 1
        for allowed in ("...", ".a", "a.", "..a"):
            service.create(allowed)


def moved(noise):
    random_numbers = torch.Generator().manual_seed(3)
    anchors = CLASSIFIER.anchors + noise * torch.randn(CLASSIFIER.anchors.shape, generator=random_numbers)
    anchors = torch.nn.functional.normalize(anchors, dim=1)
    return ServedModel(ZeroShotClassifier(anchors, CLASSIFIER.class_names, CLASSIFIER.scale), "pta")


def test_anchors_that_differ_by_more_than_rounding_are_refused(tmp_path):
    open_service(tmp_path).close()
    for noise in (1e-2, 1e-3, 2e-4):
        with pytest.raises(PtaError, match="belongs to another service"):
            Service.open(moved(noise), tmp_path)
    for noise in (1e-6, 1e-7):
        Service.open(moved(noise), tmp_path).close()
    open_service(tmp_path).close()


def readable_by_others(folder):
    return [path for path in [folder, *folder.rglob("*")] if path.name != ".lock" and path.stat().st_mode & 0o077]


def test_only_the_owner_can_read_what_a_service_keeps(tmp_path):
    folder = tmp_path / "data"
    with open_service(folder, snapshot_samples=3) as service:
        for seed in range(8):
            ask(service, seed)
        service.create("another")
        service.operate("another", "import", content=service.export("default"))
        saved(service)
        assert {"journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"} <= {
            path.name for path in folder.iterdir()
        }
        assert readable_by_others(folder) == []
        back_up(service._journal.path.parent, tmp_path / "copy")
        assert readable_by_others(tmp_path / "copy") == []
    for path in [folder, *folder.rglob("*")]:  # as an older version left them
        path.chmod(0o755 if path.is_dir() else 0o644)
    with open_service(folder):
        assert readable_by_others(folder) == []
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("longest", [0.0, 1e9])
def test_a_stream_whose_replay_takes_long_has_a_snapshot_once_it_is_loaded(tmp_path, monkeypatch, longest):
    with open_service(tmp_path) as service:
        for seed in range(11):
            ask(service, seed)
    assert not list(tmp_path.glob("streams/*/snapshots/*"))
    monkeypatch.setattr("pta.serve.streams.saving._LONGEST_REPLAY", longest)
    with open_service(tmp_path) as service:
        assert not list(tmp_path.glob("streams/*/snapshots/*"))
        service.summary("default")
        saved(service)
        assert len(list(tmp_path.glob("streams/*/snapshots/*"))) == (not longest)
        assert same_bits(state_of(service), replayed(service._journal))


def test_an_answer_that_was_not_stored_is_replayed_once_then_stored(tmp_path, monkeypatch):
    with open_service(tmp_path) as service:
        for seed in range(4):
            ask(service, seed)
        first = [ask(service, 10 + n, id=f"sample {n}", count=2) for n in range(3)]
        service._pipeline.last_answers.groups.clear()  # as a kill would
    replays, real = [], Past.answers_of

    def answers_of(self, operations, batch):
        replays.append(batch.first)
        return real(self, operations, batch)

    monkeypatch.setattr(Past, "answers_of", answers_of)
    for _ in range(2):
        with open_service(tmp_path) as service:
            for _ in range(3):
                again = [ask(service, 10 + n, id=f"sample {n}", count=2) for n in range(3)]
                assert [one.labels for one in again] == [one.labels for one in first]
    assert len(replays) == 1


@pytest.mark.parametrize("name", ["00000000000000000009.safetensors", ".unfinished"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_among_the_snapshots_is_refused_in_one_line(tmp_path, make, name):
    with open_service(tmp_path, snapshot_samples=1) as service:
        ask(service, 1)
    make(path := tmp_path / "streams" / "1" / "snapshots" / name)
    for attempt in (open_service, check_folder, lambda folder: back_up(folder, tmp_path / "backup")):
        with pytest.raises(UnreadableFile, match="move it away") as refusal:
            attempt(tmp_path)
        assert str(path) in str(refusal.value)
    assert os.path.lexists(path)


def test_a_hard_link_in_a_data_folder_keeps_its_rights(tmp_path):
    (mine := tmp_path / "mine").write_text("mine")
    mine.chmod(0o644)
    with open_service(tmp_path / "data", snapshot_samples=1) as service:
        ask(service, 1)
    for name in ("journal.notes", "streams/1/snapshots/00000000000000000000.safetensors"):
        (tmp_path / "data" / name).hardlink_to(mine)
    open_service(tmp_path / "data").close()
    assert stat.S_IMODE(mine.stat().st_mode) == 0o644


def test_an_erasure_removes_what_repairs_have_left_and_nothing_else(tmp_path):
    left = [
        tmp_path / name for name in ("journal.sqlite.damaged", "journal.sqlite.damaged-2-wal", "journal.sqlite.new")
    ]
    mine = [tmp_path / name for name in ("journal.sqlite.bak", "set-aside")]
    with open_service(tmp_path) as service:
        ask(service, 1, source="camera")
        for path in (*left, *mine):
            path.write_text("rows")
        (folder := tmp_path / "journal.sqlite.damaged-3").mkdir()
        service.operate("default", "unlearn", source="camera", erase=True)
        assert ask(service, 2).learned  # it is not read-only
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in (*mine, folder))


def test_a_repair_ignores_a_snapshot_of_a_number_that_no_row_has(tmp_path):
    with open_service(tmp_path, snapshot_samples=1) as service:
        ask(service, 1)
    (tmp_path / "streams" / "1" / "snapshots" / f"{10**199}.safetensors").write_bytes(b"")
    with open_service(tmp_path, repair=True) as service:
        assert ask(service, 2).outputs["sequence"].tolist() == [2]


def test_a_users_folder_among_the_streams_stays(tmp_path):
    with open_service(tmp_path) as service:
        ask(service, 1)
    for folder in ("notes", "7"):  # one of a stream that was deleted
        (tmp_path / "streams" / folder).mkdir()
        (tmp_path / "streams" / folder / "mine.txt").write_text("mine")
    open_service(tmp_path).close()
    assert (tmp_path / "streams" / "notes" / "mine.txt").read_text() == "mine"
    assert not (tmp_path / "streams" / "7").exists()


def test_a_count_that_is_too_long_is_written_anew(tmp_path):
    with open_service(tmp_path):
        pass
    (count := tmp_path / "journal.count").write_bytes(b"\xff" * 100)
    with open_service(tmp_path) as service:
        ask(service, 1)
        assert Witnesses.of(tmp_path).count == 2  # a stream and a sample
    assert count.stat().st_size < 100
