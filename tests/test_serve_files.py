"""What the service keeps on the disk: snapshots, imports, erased samples, room for the journal."""

import json
import logging
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from serving import CLASSIFIER, ask, features, in_threads, open_service, same_bits, saved, state_of

from pta import ZeroShotClassifier, load_adapter
from pta.errors import PtaError
from pta.serve.journal.check import back_up
from pta.serve.requests import Refused
from pta.serve.streams.answering import rounded
from pta.serve.streams.served_model import ServedModel
from pta.serve.streams.service import Service


def snapshots(folder):
    return sorted(folder.glob("streams/*/snapshots/*.safetensors"))


def test_rewinding_beside_a_stream_that_learns_gives_the_state_of_a_restart(tmp_path):
    with open_service(tmp_path, snapshot_samples=40) as service:
        stop, learned = threading.Event(), threading.Event()

        def learn(number):
            for seed in range(1000):
                ask(service, 1000 * number + seed, source=f"camera {number}")
                if seed == 20:
                    learned.set()
                if stop.is_set():
                    return

        clients = threading.Thread(target=in_threads, args=(4, learn))
        clients.start()
        learned.wait()
        for operation in (
            lambda: service.operate("default", "rewind", sequence=15),
            lambda: service.operate("default", "unlearn", source="camera 1"),
            lambda: service.operate("default", "undo"),
            lambda: service.operate("default", "undo"),
            lambda: service.operate("default", "unlearn", source="camera 2"),
        ):
            operation()
        stop.set()
        clients.join()
        live = state_of(service)
    for path in snapshots(tmp_path):
        path.unlink()
    with open_service(tmp_path) as service:
        assert same_bits(live, state_of(service))


def spoil(path, where):
    content = bytearray(path.read_bytes())
    header = int.from_bytes(content[:8], "little")
    begin = json.loads(content[8 : 8 + header])["knowledge"]["data_offsets"][0]
    if where == "truncated":
        del content[len(content) // 2 :]
    else:
        content[{"description": 40, "state": 8 + header + begin}[where]] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("where", ["truncated", "description", "state"])
def test_a_damaged_snapshot_is_noticed_and_an_older_one_is_taken(tmp_path, where, caplog):
    with open_service(tmp_path, snapshot_samples=5) as service:
        for seed in range(12):
            ask(service, seed)
            saved(service)
        live = state_of(service)
    assert len(snapshots(tmp_path)) > 1
    for path in snapshots(tmp_path):
        spoil(path, where)
    with caplog.at_level(logging.WARNING, "pta.serve"), open_service(tmp_path) as service:
        assert same_bits(live, state_of(service))
    assert caplog.records


def test_without_the_rows_before_a_damaged_snapshot_its_stream_alone_is_refused(tmp_path):
    with open_service(tmp_path, snapshot_samples=5, journal_max=1) as service:
        for seed in range(30):
            ask(service, seed)
        service.create("another")  # which comes after everything that is learned
        saved(service)
        dropped = service.summary("default")["oldest"]["sequence"]
        assert dropped
        assert "oldest moment" in str(refused(409, service.operate, "default", "rewind", sequence=dropped - 1))
        refused(409, service.operate, "default", "rewind", time=1.0)
        assert service.operate("default", "rewind", sequence=dropped)["sequence"]
        live = state_of(service)
    with open_service(tmp_path) as service:
        assert same_bits(live, state_of(service))
    for path in snapshots(tmp_path):
        spoil(path, "truncated")
    with open_service(tmp_path) as service:
        assert "the journal no longer reaches back so far" in str(refused(503, service.summary, "default"))
        refused(503, ask, service, 1)
        assert ask(service, 1, stream="another").learned


def test_a_stream_without_rows_does_not_keep_others_from_making_room(tmp_path):
    with open_service(tmp_path, snapshot_samples=5, journal_max=1) as service:
        ask(service, 1, source="street")
        erased = service.operate("default", "unlearn", source="street", erase=True)["sequence"]
        service.create("another")
        for seed in range(12):
            ask(service, seed, stream="another")
        saved(service)
        assert service.summary("default")["oldest"]["sequence"] == erased
        assert service.summary("another")["oldest"]["sequence"] > 0
        refused(409, service.operate, "default", "rewind", time=1.0)


def test_a_backup_is_a_data_folder(tmp_path):
    with open_service(tmp_path / "state", snapshot_samples=5, journal_max=1) as service:
        for seed in range(12):
            ask(service, seed)
        service.create("another")
        service.operate("another", "import", content=service.export("default"))
        saved(service)
        assert service.summary("default")["oldest"]["sequence"] > 0
        back_up(service._journal.path.parent, tmp_path / "copy")
        live = {name: state_of(service, name) for name in ("default", "another")}
    with open_service(tmp_path / "copy") as copy:
        assert all(same_bits(state, state_of(copy, name)) for name, state in live.items())
    names = [*CLASSIFIER.class_names[:-1], "another"]
    with pytest.raises(PtaError, match="belongs to another service"):
        Service.open(
            ServedModel(ZeroShotClassifier(CLASSIFIER.anchors, names, CLASSIFIER.scale), "pta"), tmp_path / "copy"
        )


def test_after_a_repair_the_state_is_that_of_the_rows_that_are_left(tmp_path):
    with open_service(tmp_path) as service:
        ask(service, 1, count=4)
        kept = state_of(service)
        ask(service, 2, count=3)
        ask(service, 3, count=5)
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as connection, connection:
        connection.execute("UPDATE samples SET feature = zeroblob(32) WHERE id = 6")
    for settings in ({"repair": True}, {}):
        with open_service(tmp_path, **settings) as service:
            assert same_bits(kept, state_of(service))
            assert service.streams()[0]["sequence"] == 12
    (tmp_path / "journal.sqlite").unlink()
    with pytest.raises(PtaError, match="is gone; restore a backup"):
        open_service(tmp_path)


def test_a_stream_deleted_by_a_killed_process_does_not_come_back(tmp_path, monkeypatch):
    with open_service(tmp_path) as service:
        service.create("street")
        ask(service, 1, stream="street", count=4)
    with monkeypatch.context() as killed, open_service(tmp_path) as service:
        killed.setattr("pta.serve.streams.stream_set.shutil.rmtree", lambda *_, **__: None)
        service.operate("street", "delete")
    for _ in range(2):
        with open_service(tmp_path) as service:
            service.create("street")
            assert service.summary("street")["position"] == 0


def refused(status, call, *arguments, **named):
    with pytest.raises(Refused) as caught:
        call(*arguments, **named)
    assert caught.value.status == status
    return caught.value


def held_anywhere(folder, rows):
    found, holding = [row.tobytes() for row in rounded(rows)], []
    for path in filter(Path.is_file, folder.rglob("*")):
        with suppress(FileNotFoundError):  # the temporary file of a snapshot that was just written
            content = path.read_bytes()
            holding += [path.name for row in found if row in content]
    return holding


def test_erased_samples_are_in_no_file_and_cannot_come_back(tmp_path):
    with open_service(tmp_path, snapshot_samples=3) as service:
        for seed in range(9):
            ask(service, seed, source="street" if seed % 2 else "kitchen", count=2)
        assert held_anywhere(tmp_path, features(3, 2))
        assert service.operate("default", "unlearn", source="street", erase=True)["samples"] == 8
        refused(409, service.operate, "default", "undo")
        live = state_of(service)
        assert not held_anywhere(tmp_path, np.concatenate([features(seed, 2) for seed in (1, 3, 5, 7)]))
        assert held_anywhere(tmp_path, features(2, 2))
    with open_service(tmp_path) as service:
        assert same_bits(live, state_of(service))
        assert service.summary("default")["sources"] == [{"source": "kitchen", "samples": 10}]
        service.operate("default", "delete")
        assert not held_anywhere(tmp_path, features(2, 2))
        assert not snapshots(tmp_path)


def test_an_exported_state_loads_and_an_import_can_be_undone(tmp_path):
    with open_service(tmp_path / "one") as service, open_service(tmp_path / "other") as other:
        for seed in range(6):
            ask(service, seed)
        ask(other, 50)
        mine, theirs = state_of(service), state_of(other)
        file = tmp_path / "state.safetensors"
        file.write_bytes(service.export("default"))
        assert same_bits(load_adapter(file, CLASSIFIER).state(), mine)
        other.operate("default", "import", content=file.read_bytes())
        assert same_bits(state_of(other), mine)
        ask(other, 51)
        after = state_of(other)
    with open_service(tmp_path / "other") as other:
        assert same_bits(state_of(other), after)
        other.operate("default", "rewind", sequence=1)
        assert same_bits(state_of(other), theirs)
        other.operate("default", "undo")
        assert same_bits(state_of(other), after)


def test_a_state_of_another_rule_is_refused_before_anything_is_written(tmp_path):
    with open_service(tmp_path / "one", parameters={"h": 7.0}) as service:
        content = service.export("default")
    with open_service(tmp_path / "other") as other:
        before = other.version("default")
        for bad in (content, content[:100], b"no state"):
            refused(422, other.operate, "default", "import", content=bad)
        assert other.version("default") == before
        assert not list((tmp_path / "other").glob("streams/*/imports/*"))


def test_a_folder_of_another_classifier_or_rule_is_refused_in_one_line(tmp_path):
    open_service(tmp_path).close()
    names = [*CLASSIFIER.class_names[:-1], "another"]
    turned = torch.roll(CLASSIFIER.anchors, 1, dims=1)
    for served in (
        ServedModel(CLASSIFIER, "pta", {"h": 3.0}),
        ServedModel(CLASSIFIER, "tda"),
        ServedModel(ZeroShotClassifier(CLASSIFIER.anchors, names, CLASSIFIER.scale), "pta"),
        ServedModel(ZeroShotClassifier(turned, CLASSIFIER.class_names, CLASSIFIER.scale), "pta"),
    ):
        with pytest.raises(PtaError) as refusal:
            Service.open(served, tmp_path)
        assert str(tmp_path) in str(refusal.value)
    with pytest.raises(PtaError, match=r"with pta\.h 20\.0, and is opened with 3\.0"):
        open_service(tmp_path, parameters={"h": 3.0})


def test_a_folder_that_was_written_without_a_gate_goes_on_without_one(tmp_path):
    with open_service(tmp_path, "wpta", {"gate": "none"}) as service:
        ask(service, 1, count=20)
        before = state_of(service)
    with open_service(tmp_path, "wpta") as service:  # as one that was written before there was a gate
        after = state_of(service)
        assert after.keys() == before.keys()
        assert "gate_open" not in after
    with pytest.raises(PtaError, match=r"written without wpta\.gate, and is opened with 'balance'; start as before"):
        open_service(tmp_path, "wpta", {"gate": "balance"})
    with open_service(tmp_path / "new", "wpta") as service:
        assert "gate_open" in state_of(service)
    with pytest.raises(PtaError, match=r"written with wpta\.gate 'balance', and is opened without it"):
        open_service(tmp_path / "new", "wpta", {"gate": "none"})


def test_a_folder_of_combined_goes_on_without_a_gate_in_its_base(tmp_path):
    with open_service(tmp_path, "combined", {"base": "wpta", "base_parameters": {"gate": "none"}}) as service:
        ask(service, 1, count=20)
    with open_service(tmp_path, "combined", {"base": "wpta"}) as service:
        assert "base.gate_open" not in state_of(service)


@pytest.mark.parametrize("identity", ["[" * 100_000, "", "[]", "no json"])
def test_a_damaged_identity_is_refused_in_one_line(tmp_path, identity):
    open_service(tmp_path, "wpta").close()
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as connection, connection:
        connection.execute("UPDATE about SET identity = ?", (identity,))
    with pytest.raises(PtaError, match="damaged") as refusal:
        open_service(tmp_path, "wpta")
    assert "\n" not in str(refusal.value)


def test_a_state_from_another_processor_is_said_in_the_log(tmp_path, caplog, monkeypatch):
    with open_service(tmp_path, snapshot_samples=1) as service:
        ask(service, 1)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "ANOTHER")
    with caplog.at_level(logging.WARNING, "pta.serve"), open_service(tmp_path) as service:
        service.summary("default")
    assert "agree up to rounding" in caplog.text
