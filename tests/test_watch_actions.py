"""What is done with changes: in order, tried again within bounds, never holding anything up, and counted."""

import errno
import json
import logging
import os
import socket
import stat
import threading
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from processes import wait_for
from test_webhook import receiving

from pta.errors import InvalidParameter, MachineFailure, UnreadableFile
from pta.run.watch.change import AnswerChange, RegionName
from pta.run.watch.command import Command
from pta.run.watch.delivery import Delivery
from pta.run.watch.outlets import Outlets, posting
from pta.run.watch.rows import ChangeRows, RowPlace
from pta.run.watch.snapshots import SnapshotFolder
from pta.run.webhook import Receiver

GATE = RegionName("yard", "gate")


def change(number=1, label="open", previous=None, time="1.000"):
    return AnswerChange(time, *GATE, label, 0.9, previous, number)


@contextmanager
def delivering(deliver, **how):
    one = Delivery("it", deliver, pauses=(0.001,), **how)
    try:
        yield one
    finally:
        one.close(20)


@pytest.fixture
def said(caplog):
    with caplog.at_level(logging.INFO, "pta.watch"):
        yield lambda: [one.message for one in caplog.records if one.name == "pta.watch"]


def failing(times, error=None):
    """Fails so many times, then notes what comes."""
    came, left = [], [times]

    def deliver(item):
        if left[0]:
            left[0] -= 1
            raise error or OSError("it is away")
        came.append(item)

    return deliver, came


def test_what_fails_is_tried_again_and_everything_comes_in_order(said):
    deliver, came = failing(5)
    with delivering(deliver) as one:
        for item in range(20):
            one.put(item)
        wait_for(lambda: one.delivered == 20)
    assert came == list(range(20))
    assert (one.failed, one.lost, one.waiting) == (5, 0, [])
    assert said() == ["it failed: it is away", "it: delivered again, after 5 failures"]


def test_what_hangs_delays_nobody_and_the_oldest_makes_room(said):
    released, came = threading.Event(), []
    with delivering(lambda item: (released.wait(), came.append(item)), most=3) as one:
        for item in range(10):
            one.put(item)  # returns at once
        wait_for(lambda: one.lost == 7)
        released.set()
        wait_for(lambda: not one.waiting)
    assert came[-3:] == [7, 8, 9]
    assert len([line for line in said() if "given up" in line]) == 1


def test_an_item_is_given_up_after_so_many_tries_and_the_next_comes():
    came = []

    def deliver(item):
        if item == "bad":
            raise OSError("no")
        came.append(item)

    with delivering(deliver, tries=3) as one:
        one.put("bad"), one.put("good")
        wait_for(lambda: came == ["good"])
        assert (one.failed, one.lost, one.delivered) == (3, 1, 1)


def test_what_is_left_when_it_closes_is_known():
    deliver, _ = failing(10**6)
    one = Delivery("it", deliver)
    one.put(1), one.put(2)
    one.close(20)
    assert one.waiting == [1, 2]


def test_what_waited_before_comes_first():
    deliver, came = failing(0)
    with delivering(deliver, waiting=[1, 2]) as one:
        one.put(3)
        wait_for(lambda: came == [1, 2, 3])


def test_a_defect_is_not_tried_again_and_is_found():
    with delivering(lambda item: item.missing) as one:
        one.put(1)
        wait_for(lambda: one.defect is not None)
        outlets = Outlets([Delivery("defect", lambda change: change.missing)])
        outlets.put(change(), np.zeros((2, 2, 3), np.uint8))
        with suppress(AttributeError):
            wait_for(lambda: outlets.require_alive())
        with pytest.raises(AttributeError):
            outlets.require_alive()
        outlets.close(5)


def test_a_command_gets_the_change_in_its_environment_and_no_shell(tmp_path):
    out = tmp_path / "out"
    script = f'import json, os; json.dump(dict(os.environ), open({str(out)!r}, "w"))'
    odd = change(label="$(touch /tmp/x); `id`\n\x00", previous="shut")
    Command(["python3", "-c", script]).deliver(odd)
    found = json.loads(out.read_text())
    assert found["PTA_LABEL"] == "$(touch /tmp/x); `id`��"
    names = ("PTA_CAMERA", "PTA_REGION", "PTA_TIME", "PTA_PREVIOUS", "PTA_PROBABILITY", "PTA_NUMBER", "PTA_GAP")
    assert [found[name] for name in names] == ["yard", "gate", "1.000", "shut", "0.9", "1", ""]


def is_running(process):
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    started = tmp_path / "started"
    script = f"sleep 1000 & echo $! $$ > {started}; wait"
    with pytest.raises(OSError, match=r"ran for more than 1 seconds"):
        Command(["sh", "-c", script], timeout=1).deliver(change())
    for process in map(int, started.read_text().split()):
        wait_for(lambda process=process: not is_running(process))


def test_what_a_command_leaves_running_ends_with_it(tmp_path):
    started = tmp_path / "started"
    Command(["sh", "-c", f"sleep 1000 & echo $! > {started}"]).deliver(change())
    wait_for(lambda: not is_running(int(started.read_text())))


def test_a_command_that_runs_at_the_end_is_ended(tmp_path):
    started = tmp_path / "started"
    command = Command(["sh", "-c", f"sleep 1000 & echo $! > {started}; wait"], timeout=1000)
    with delivering(command.deliver) as one:
        one.put(change())
        wait_for(lambda: started.exists() and started.read_text().endswith("\n"))
        one.begin_to_close()
        command.end()
        wait_for(lambda: not is_running(int(started.read_text())))


def test_a_command_that_fails_is_one_line_and_tried_a_few_times(said):
    with delivering(Command(["false"]).deliver, tries=3) as one:
        one.put(change())
        wait_for(lambda: one.lost == 1)
    assert one.failed == 3
    assert "exit code was 1" in said()[0]


@pytest.mark.parametrize("arguments", [[], [""], ["sh", "b\0"], ["/no/such"]])
def test_what_is_no_command_is_refused(arguments):
    with pytest.raises(InvalidParameter):
        Command(arguments)


def test_the_webhook_of_the_alarms_gets_changes_signed_and_in_order():
    with receiving(500, 500, 200) as server:
        with delivering(posting(Receiver(server.url, b"0123456789abcdef", ["127.0.0.1"]))) as one:
            one.put(change(1)), one.put(change(2))
            wait_for(lambda: one.delivered == 2)
        bodies = [json.loads(body) for _, _, body in server.requests]
        assert [body["number"] for body in bodies] == [1, 1, 1, 2]
        assert bodies[0] == {"kind": "change", **change(1).as_dict()}
        assert all(headers["X-PTA-Signature"].startswith("sha256=") for _, headers, _ in server.requests)


def picture(seed=1, size=40):
    return np.random.default_rng(seed).integers(0, 255, (size, size, 3), np.uint8)


def pictures(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_snapshot_is_for_its_owner_alone_and_named_after_its_change(tmp_path):
    folder = tmp_path / "shots"
    before = os.umask(0)
    try:
        SnapshotFolder(folder, 2**20).deliver((change(label="../../$(x)", time="2026-11-19T05:00:00+00:00"), picture()))
    finally:
        os.umask(before)
    (name,) = pictures(folder)
    assert name == "pta-yard-gate-2026_11_19T05_00_00_00_00-.._..___x_.jpg"
    assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600


def test_the_oldest_snapshots_make_room_and_other_files_stay(tmp_path):
    (tmp_path / "mine.jpg").write_bytes(b"x" * 10_000)
    for start in (0, 6):  # the second begins with those of the first
        shots = SnapshotFolder(tmp_path, 6000)
        for number in range(start, start + 6):
            shots.deliver((change(time=f"{number}.000"), picture(number)))
            os.utime(tmp_path / f"pta-yard-gate-{number}.000-open.jpg", (number, number))
    kept = [name for name in pictures(tmp_path) if name.startswith("pta-")]
    assert sum((tmp_path / name).stat().st_size for name in kept) <= 6000
    assert max(kept, key=lambda name: float(name.split("-")[3])) == "pta-yard-gate-11.000-open.jpg"
    assert (tmp_path / "mine.jpg").exists()


def test_the_same_snapshot_again_takes_one_place(tmp_path):
    shots = SnapshotFolder(tmp_path, 2**20)
    for _ in range(5):
        shots.deliver((change(), picture()))
    shots.deliver((change(time="2.000"), picture()))
    assert len(pictures(tmp_path)) == 2


def test_regions_whose_names_are_not_ascii_have_pictures_of_their_own(tmp_path):
    shots = SnapshotFolder(tmp_path, 2**20)
    for region in ("左", "右", "a b", "a_b"):
        shots.deliver((replace(change(), region=region), picture()))
    assert len(pictures(tmp_path)) == 4


def test_no_link_is_followed_by_snapshots(tmp_path):
    other, folder = tmp_path / "other", tmp_path / "shots"
    other.write_text("mine")
    folder.mkdir()
    (folder / "pta-yard-gate-1.000-open.jpg").symlink_to(other)
    SnapshotFolder(folder, 2**20).deliver((change(), picture()))
    assert other.read_text() == "mine"
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(UnreadableFile, match="is a link"):
        SnapshotFolder(tmp_path / "link", 2**20)


def test_a_full_disk_costs_the_snapshot_alone(tmp_path, monkeypatch, said):
    def is_full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    shots, came = SnapshotFolder(tmp_path / "shots", 2**20), []
    monkeypatch.setattr("pta.run.watch.snapshots.os.fdopen", is_full)
    outlets = Outlets([Delivery("rows", came.append)], shots)
    for number in (1, 2, 3):
        outlets.put(change(number), picture())
    wait_for(lambda: len(came) == 3)
    outlets.close(20)
    assert pictures(tmp_path / "shots") == []
    assert outlets.problems() == ["snapshots: 0 delivered, 0 not delivered, 3 given up"]
    assert len([line for line in said() if "no space left" in line and "failed" in line]) == 1


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
def test_rows_that_a_full_disk_refused_come_later_whole_and_in_order(tmp_path, monkeypatch, name):
    with closing(ChangeRows(tmp_path / name, {})) as rows:
        rows.deliver(change(1))
        before = (tmp_path / name).read_bytes()
        real, full = os.fsync, [3]

        def fsync(descriptor):
            if full[0]:
                full[0] -= 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(MachineFailure, match="a row cannot be written: no space left"):
            rows.deliver(change(2))
        assert (tmp_path / name).read_bytes() == before
        with delivering(rows.deliver) as one:
            one.put(change(2)), one.put(change(3))
            wait_for(lambda: one.delivered == 2)
    lines = (tmp_path / name).read_text().splitlines()
    assert len(lines) == 3 + name.endswith("csv")
    assert (tmp_path / name).read_bytes().startswith(before)


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
def test_half_a_row_of_a_kill_is_cut_off_and_what_is_written_is_known(tmp_path, name):
    path = tmp_path / name
    with closing(ChangeRows(path, {})) as rows:
        rows.deliver(change(1))
        place, _ = rows.covered
        rows.deliver(change(2)), rows.deliver(change(3))
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    with closing(ChangeRows(path, {GATE: place})) as rows:
        assert rows.covered[1] == {GATE: 2}
        for number in (2, 3):
            rows.deliver(change(number))
    assert path.read_bytes() == whole


def test_a_file_of_rows_that_was_moved_away_is_begun_anew(tmp_path):
    place = RowPlace("rows.jsonl", 10**6)
    with closing(ChangeRows(tmp_path / "rows.jsonl", {GATE: place})) as rows:
        rows.deliver(change(8))
    with closing(ChangeRows(tmp_path / "rows.jsonl", {GATE: place})) as rows:
        assert rows.covered[1] == {GATE: 8}


@pytest.mark.parametrize(("name", "text"), [("rows.csv", "a,b\n1,2"), ("rows.jsonl", '{"path": "a.jpg"}\n[')])
def test_a_file_with_other_rows_is_refused_and_left_as_it_is(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(UnreadableFile, match="other rows than changes"):
        ChangeRows(tmp_path / name, {})
    assert (tmp_path / name).read_text() == text


def test_a_failed_post_is_tried_at_the_next_address(monkeypatch):
    with receiving() as server, closing(socket.create_server(("127.0.0.1", 0))) as unused:
        closed = unused.getsockname()[1]
        unused.close()
        places = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in (closed, server.port)]
        real = socket.getaddrinfo

        def resolved(host, *more, **named):
            return places if host == "hooks.example" else real(host, *more, **named)

        monkeypatch.setattr(socket, "getaddrinfo", resolved)
        post = posting(Receiver("http://hooks.example/", None, ["hooks.example"]))
        with delivering(post) as one:
            one.put(change(2)), one.put(change(4))
            wait_for(lambda: one.delivered == 2)
        assert one.failed == 1
