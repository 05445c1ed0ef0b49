"""What a journal has acknowledged is there, once and in order, after kill -9, a failed fsync and a full disk.

PTA_CRASHES says how often the writer is killed (1,000 times in `make test-crash`).
"""

import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import time

import pytest
from effort import repeated
from journals import id_hash, open_journal, request
from processes import Forked

from pta.errors import MachineFailure
from pta.serve.journal.check import check_folder

CRASHES = int(os.environ.get("PTA_CRASHES", repeated(100)))


def write_until_killed(folder, say, resent, start):
    """Send again what was not acknowledged, then go on; say each group and its requests once it is on the disk."""
    journal = open_journal(folder)
    streams = [journal.streams().get(name) or journal.create(name) for name in ("default", "other")]
    random_numbers = random.Random(start)
    pending = [tuple(one) for one in resent if journal.find(streams[one[1]], id_hash(one[0])) is None]
    os.write(say, json.dumps({"found": [one for one in resent if tuple(one) not in pending]}).encode() + b"\n")
    while True:
        size = random_numbers.choice([1, 1, 2, 5, 20])
        fresh = [(start + i, random_numbers.randrange(2), random_numbers.randrange(1, 4)) for i in range(size)]
        start += size
        sent, pending = pending + fresh, []
        os.write(say, json.dumps({"sent": sent}).encode() + b"\n")
        given = [request(streams[stream], number, f"camera {number % 3}", samples) for number, stream, samples in sent]
        committed = journal.commit(given)
        os.write(say, json.dumps({"group": committed.group, "firsts": committed.firsts}).encode() + b"\n")


def lines_until(read, enough):
    """What a process says, until it has said enough, and the rest that came with it."""
    said = b""
    while not enough(said):
        piece = os.read(read, 65536)
        assert piece, "the process ended by itself"
        said += piece
    return said


def rest_of(read):
    said = b""
    while piece := os.read(read, 65536):
        said += piece
    os.close(read)
    return said


def test_every_acknowledged_id_is_there_once_in_order_whenever_the_writer_is_killed(tmp_path):
    folder, random_numbers = tmp_path / "data", random.Random(CRASHES)
    acknowledged, found, unsure, next_number = {}, [], [], 0  # a group has its requests and their first numbers
    for _ in range(CRASHES):
        read, say = os.pipe()
        process = Forked(write_until_killed, folder, say, unsure, next_number)
        os.close(say)
        groups = random_numbers.randrange(8)
        said = lines_until(read, lambda said, groups=groups: said.count(b'"group"') >= groups and b"sent" in said)
        time.sleep(random_numbers.random() * 0.004)
        process.kill()
        said += rest_of(read)
        resent, unsure = unsure, []
        for line in said[: said.rindex(b"\n")].splitlines():
            message = json.loads(line)
            if "sent" in message:
                unsure = message["sent"]
                next_number = max(next_number, max(number for number, *_ in unsure) + 1)
            elif "group" in message:
                acknowledged[message["group"]] = unsure, message["firsts"]
                unsure = []
            else:
                found += message["found"]
        unsure = unsure or ([] if b'"found"' in said else resent)
    requests = [one for sent, _ in acknowledged.values() for one in sent] + found
    assert len({number for number, *_ in requests}) == len(requests)
    with open_journal(folder) as journal:
        assert check_folder(journal.path.parent) == []
        streams = [journal.streams()[name] for name in ("default", "other")]
        for number, stream, samples in requests:
            assert len(journal.find(streams[stream], id_hash(number)).sequences) == samples
        for i, stream in enumerate(streams):
            held = {rows.group: rows for rows in journal.groups(stream)}
            sequences = [n for rows in held.values() for n in rows.sequences.tolist()]
            assert sequences == list(range(1, len(sequences) + 1))
            assert list(held) == sorted(held)
            for group, (sent, firsts) in acknowledged.items():
                theirs = [(first, one) for first, one in zip(firsts, sent, strict=True) if one[1] == i]
                if theirs:
                    expected = [request(stream, number, None, samples) for _, (number, _, samples) in theirs]
                    features = b"".join(one.features.tobytes() for one in expected)
                    assert held[group].features.tobytes() == features
                    assert held[group].sequences[0] == theirs[0][0]
    print(f"{CRASHES} kills, {len(requests)} acknowledged, {len(found)} of them when they were sent again")


WRITE = """
import os, sys
from pathlib import Path
from journals import *
from pta.errors import MachineFailure
journal = open_journal(Path(sys.argv[1]))
stream = journal.streams()["default"]
for number in range(20):
    try:
        journal.commit([request(stream, number, samples=3)])
    except MachineFailure as error:
        assert journal.read_only and journal.last(stream)[0] == 3 * number == journal.count(stream)
        assert journal.find(stream, id_hash(number)) is None
        for refused in (lambda: journal.commit([request(stream, 50)]), lambda: journal.operate(stream, "reset", {})):
            try:
                refused()
            except MachineFailure:
                continue
            raise AssertionError("it is not read-only")
        os.write(1, f"failed {number}\\n".encode())
        os._exit(0)
    os.write(1, f"acknowledged {number}\\n".encode())
"""


@pytest.fixture
def traced(tmp_path):
    """Run the writer above under strace; gives what it says and what strace has seen."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    if subprocess.run([strace, "-e", "trace=fdatasync", "true"], capture_output=True).returncode:
        pytest.skip("strace may not trace processes here")
    with open_journal(tmp_path / "data") as journal:
        journal.create("default")

    def traced(*options):
        call = [strace, "-f", "-y", "-o", tmp_path / "trace", *options, sys.executable, "-c", WRITE, tmp_path / "data"]
        path = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
        ran = subprocess.run(call, env=path, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.splitlines(), (tmp_path / "trace").read_text()

    return traced


def test_nothing_is_acknowledged_before_the_log_is_on_the_disk(traced):
    said, trace = traced("-e", "trace=write,pwrite64,fdatasync,fsync")
    steps = []
    for line in trace.splitlines():
        if '"acknowledged ' in line:
            steps.append("acknowledged")
        elif found := re.search(r"(pwrite64|fdatasync|fsync)\(\d+<[^>]*-wal>.* = \d+$", line):
            steps.append("written" if found[1] == "pwrite64" else "synced")
    assert steps.count("acknowledged") == len(said) == 20
    parts = " ".join(steps).split("acknowledged")[:-1]
    assert all(re.search(r"written synced $", part) for part in parts), parts


@pytest.mark.parametrize("when", ["3+", "6+", "9"])
def test_a_failed_fsync_loses_nothing_that_was_acknowledged(traced, tmp_path, when):
    said, _ = traced("-e", f"inject=fdatasync:error=EIO:when={when}", "-e", "trace=fdatasync")
    *acknowledged, failed = said
    assert failed == f"failed {len(acknowledged)}"
    with open_journal(tmp_path / "data") as journal:
        stream = journal.streams()["default"]
        for number in range(len(acknowledged)):
            assert journal.find(stream, id_hash(number)).sequences.tolist() == [3 * number + i for i in (1, 2, 3)]
        found = journal.find(stream, id_hash(len(acknowledged)))  # it may be there or not
        if found is None:
            journal.commit([request(stream, len(acknowledged), samples=3)])
        assert journal.count(stream) == 3 * len(acknowledged) + 3
        assert check_folder(journal.path.parent) == []


def fill_the_disk(folder, say, room):
    journal = open_journal(folder)
    stream = journal.streams()["default"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    number = 0
    while journal.read_only is None:
        before = journal.last(stream)
        try:
            journal.commit([request(stream, number, "door", samples=9, d=512)])
            number += 1
        except MachineFailure:
            assert (journal.last(stream), journal.find(stream, id_hash(number))) == (before, None)
    assert len(list(journal.groups(stream))) == number
    os.write(say, str(number).encode())
    os._exit(0)


@pytest.mark.parametrize("room", [100_000, 330_000, 1_000_000])
def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path, room):
    with open_journal(tmp_path) as journal:
        stream = journal.create("default")
    read, say = os.pipe()
    process = Forked(fill_the_disk, tmp_path, say, room)
    os.close(say)
    said = int(rest_of(read))
    process.join()
    with open_journal(tmp_path) as journal:
        numbers = [n for rows in journal.groups(stream) for n in rows.sequences.tolist()]
        assert numbers[: 9 * said] == list(range(1, 9 * said + 1))
        assert len(numbers) in (9 * said, 9 * said + 9)
        assert journal.commit([request(stream, 10**6)]).firsts == (len(numbers) + 1,)
