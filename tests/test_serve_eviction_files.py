"""Snapshots, backups and bounded journals of streams that are not in memory."""

import itertools
from contextlib import suppress

import numpy as np
import pytest
from evicting import EVERYTHING, NAMES, NOTHING, Both, snapshots, wait_for_eviction
from serving import ask, open_service, settle

from pta.errors import PtaError
from pta.serve.journal.check import back_up, check_folder
from pta.serve.requests import Refused


def fill_with_snapshots(folder):
    """Streams of which each has snapshots; their states."""
    with open_service(folder, stream_memory=NOTHING, auto_create=9, snapshot_samples=5) as service:
        for turn, name in itertools.product(range(12), NAMES):
            ask(service, turn, stream=name, count=3)
        settle(service)
        states = {name: service.export(name) for name in NAMES}
    assert len({path.parent.parent for path in snapshots(folder)}) == len(NAMES)
    return states


@pytest.mark.parametrize("damage", ["truncated", "changed", "empty", "not a file of ours"])
def test_a_damaged_snapshot_costs_its_stream_that_snapshot_and_others_nothing(tmp_path, damage):
    states = fill_with_snapshots(tmp_path)
    for path in (tmp_path / "streams" / "2" / "snapshots").glob("*.safetensors"):
        content = bytearray(path.read_bytes())
        content[-5] ^= 1
        half = content[: len(content) // 2]
        path.write_bytes({"truncated": half, "changed": content, "empty": b""}.get(damage, b"hello"))
    for memory in (NOTHING, EVERYTHING):
        with open_service(tmp_path, stream_memory=memory) as service:
            assert {name: service.export(name) for name in NAMES} == states
            assert all(ask(service, 1, stream=name, learn="false").outputs for name in NAMES)


def test_a_snapshot_that_is_damaged_while_the_service_runs_costs_that_snapshot(tmp_path):
    with open_service(tmp_path, stream_memory=NOTHING, auto_create=9, snapshot_samples=5) as service:
        for turn, name in itertools.product(range(12), NAMES):
            ask(service, turn, stream=name, count=3)
        states = {name: service.export(name) for name in NAMES}
        for path in snapshots(tmp_path):
            with suppress(FileNotFoundError):  # an older one may go at any time
                path.write_bytes(path.read_bytes()[:100])
        assert {name: service.export(name) for name in NAMES} == states
        before = service.summary("hall")["position"]
        assert ask(service, 99, stream="hall").learned
        assert service.summary("hall")["position"] == before + 1


def test_without_snapshots_streams_are_the_replay_of_their_rows(tmp_path):
    states = fill_with_snapshots(tmp_path)
    for path in snapshots(tmp_path):
        path.unlink()
    with open_service(tmp_path, stream_memory=NOTHING) as service:
        assert {name: service.export(name) for name in NAMES} == states


def test_a_backup_has_the_streams_that_are_not_in_memory(tmp_path):
    with open_service(tmp_path / "state", stream_memory=NOTHING, auto_create=9) as service:
        for turn, name in itertools.product(range(6), NAMES):
            ask(service, turn, stream=name, count=2, source="door")
        service.operate("door", "import", content=service.export("hall"))
        service.operate("yard", "rewind", sequence=4)
        wait_for_eviction(service)
        back_up(tmp_path / "state", tmp_path / "copy")
        states = {name: service.export(name) for name in NAMES}
    for memory in (NOTHING, EVERYTHING):
        with open_service(tmp_path / "copy", stream_memory=memory) as copy:
            assert {name: copy.export(name) for name in NAMES} == states
            assert [one["name"] for one in copy.streams()] == list(NAMES)


def test_a_bounded_journal_keeps_what_evicted_streams_need(tmp_path):
    """Which rows are dropped depends on snapshots. The states do not, and a restart has them."""
    settings = {"auto_create": 9, "journal_max": 60_000, "snapshot_samples": 10}
    with Both(tmp_path, **settings) as both:
        for turn, name in itertools.product(range(150), NAMES):
            both.ask(turn, stream=name, count=2, source="door" if turn % 2 else "gate")
        states = {name: both.same(lambda service, name=name: service.export(name)) for name in NAMES}
        dropped = [both.evicting.summary(name)["oldest"]["sequence"] for name in NAMES]
        assert max(dropped) > 0
        with pytest.raises(Refused, match="no longer reaches back"):
            both.evicting.operate(NAMES[int(np.argmax(dropped))], "rewind", sequence=0)
    for memory in (NOTHING, EVERYTHING):
        with open_service(tmp_path / "evicting", stream_memory=memory) as service:
            assert {name: service.export(name) for name in NAMES} == states
    assert check_folder(tmp_path / "evicting") == []


def test_a_stream_that_cannot_be_loaded_keeps_no_other_from_learning(tmp_path):
    with open_service(tmp_path, stream_memory=NOTHING, auto_create=9) as service:
        for turn, name in itertools.product(range(3), NAMES):
            ask(service, turn, stream=name)
        service.operate("hall", "import", content=service.export("door"))
    (damaged,) = (tmp_path / "streams" / "2" / "imports").glob("*.safetensors")
    for path in snapshots(tmp_path):
        path.unlink()
    damaged.write_bytes(b"damaged")
    with open_service(tmp_path, stream_memory=NOTHING) as service:
        with pytest.raises(PtaError):
            ask(service, 1, stream="hall")
        assert all(ask(service, 9, stream=name).learned for name in NAMES if name != "hall")
