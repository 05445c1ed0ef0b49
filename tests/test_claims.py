"""A file has one writer at a time, whatever happens to the others."""

import errno
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pta.door.claims import sole_writer
from pta.door.files import write_atomically
from pta.door.locks import claimed
from pta.errors import FileInUse, MachineFailure, PtaError

HOLD = """
import sys
from pta.door.claims import sole_writer
with sole_writer(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path):
    file = tmp_path / "state.safetensors"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLD, str(file)], **pipes) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(FileInUse, match=re.escape(f"another process is writing {file} now")), sole_writer(file):
            pass
        holder.send_signal(signal.SIGKILL)
    with sole_writer(file):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_same_file_by_another_name_is_the_same_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("link.csv").symlink_to("rows.csv")
    for name in ("rows.csv", "./rows.csv", tmp_path / "rows.csv", "link.csv"):
        with sole_writer("rows.csv"), pytest.raises(FileInUse), sole_writer(name):
            pass


def test_never_two_at_a_time_although_locks_are_removed(tmp_path):
    inside, most = [], []

    def work():
        for _ in range(100):
            with claimed(tmp_path / "lock", wait=False) as mine:
                if mine:
                    inside.append(None)
                    most.append(len(inside))
                    inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
    assert list(tmp_path.iterdir()) == []


def test_what_killed_writers_left_is_removed_and_nothing_else(tmp_path):
    own = [".state[1].csv.4711.0123abcd", ".state[1].csv.1.ffffffff"]
    others = [".state1.csv.4711.0123abcd", ".state[1].csv.bak", "state[1].csv", ".state[1].csv.x.0123abcd"]
    for name in own + others:
        (tmp_path / name).touch()
    with sole_writer(tmp_path / "state[1].csv"):
        assert {path.name for path in tmp_path.iterdir()} == {*others, ".state[1].csv.lock"}
    assert {path.name for path in tmp_path.iterdir()} == set(others)


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path):
    for place in (tmp_path / "none" / "file", tmp_path):
        with pytest.raises(PtaError, match="cannot write"), sole_writer(place):
            pass


def test_a_full_disk_is_one_clear_line_and_leaves_what_was_there(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MachineFailure, match=re.escape(f"cannot write {tmp_path}/file: no space left on device")):
        write_atomically(tmp_path / "file", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_a_file_is_on_the_disk_with_its_folder(tmp_path, monkeypatch):
    synced, sync = [], os.fsync

    def noted(descriptor):
        synced.append((os.fstat(descriptor).st_ino, (tmp_path / "file").exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    write_atomically(tmp_path / "file", b"content")
    assert synced == [((tmp_path / "file").stat().st_ino, False), (tmp_path.stat().st_ino, True)]
