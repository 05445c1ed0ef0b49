"""A write-ahead log that is lost, cut or exchanged after a kill: refused and named, not taken for a shorter journal."""

import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from journals import FILE, contents, open_journal, request
from serving import CLASSIFIER

from pta.errors import UnreadableFile
from pta.serve.journal.check import check_folder
from pta.serve.journal.journal import Journal
from pta.serve.journal.schema import PAGE
from pta.serve.streams.served_model import ServedModel

LOG = f"{FILE}-wal"
FRAME, HEADER = 24 + PAGE, 32
ACKNOWLEDGED = 14  # samples

WRITE = """
import shutil, sys, time
from pathlib import Path
from serving import ask, open_service, saved
folder = Path(sys.argv[1])
service = open_service(folder / "data", snapshot_samples=5)
for seed in range(14):
    ask(service, seed, source=f"camera {seed % 2}", id=f"sample {seed}")
    saved(service)
    if seed == 3:
        shutil.copy(folder / "data" / "journal.sqlite-wal", folder / "older")
        service._journal.checkpoint()
print("acknowledged", flush=True)
time.sleep(1000)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """What kill -9 leaves of a service with 14 acknowledged samples, 4 of which are in no log."""
    folder = tmp_path_factory.mktemp("killed")
    environment = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    call = [sys.executable, "-c", WRITE, folder]
    with subprocess.Popen(call, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "acknowledged\n"
        process.kill()
    assert len(snapshots(folder / "data")) >= 2
    return folder


@pytest.fixture
def copy(killed, tmp_path):
    """A fresh copy of the killed service's data folder, in the place of the last one."""

    def copy():
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        return shutil.copytree(killed / "data", tmp_path / "copy")

    return copy


def snapshots(folder, pattern="streams/*/snapshots/*.safetensors"):
    return sorted(path.name for path in folder.glob(pattern))


def opened(folder, **given):
    return Journal.open(folder, ServedModel(CLASSIFIER, "pta").identity, **given)


def bytes_of(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith("-shm") and path.name != ".lock"
    }


def require_refused_and_repairable(folder, way):
    """It is refused in one line, named by a check, left as it was, and repaired without deleting anything."""
    before, kept = bytes_of(folder), snapshots(folder)
    with pytest.raises(UnreadableFile) as refusal:
        opened(folder).close()
    assert "--repair" in str(refusal.value), way
    assert "\n" not in str(refusal.value), way
    assert check_folder(folder), way
    assert bytes_of(folder) == before, way
    with opened(folder, repair=True) as journal:
        assert check_folder(journal.path.parent) == [], way
        for stream in journal.streams().values() or [journal.create("default")]:
            rows = [n for group in journal.groups(stream) for n in group.sequences.tolist()]
            assert rows == list(range(1, len(rows) + 1)), way
            assert len(rows) < ACKNOWLEDGED, way
            assert journal.commit([request(stream, 10**6, d=16)]).firsts[0] > ACKNOWLEDGED, way
    assert sorted([*snapshots(folder), *snapshots(folder, "set-aside/*/streams/*/snapshots/*.safetensors")]) == kept
    with opened(folder) as journal:
        assert check_folder(journal.path.parent) == [], way


def truncated(size):
    def truncated(log):
        with log.open("rb+") as file:
            file.truncate(size)

    return truncated


def changed(change):
    def changed(log):
        head, frames = log.read_bytes()[:HEADER], log.read_bytes()[HEADER:]
        log.write_bytes(head + change([frames[i : i + FRAME] for i in range(0, len(frames), FRAME)]))

    return changed


def joined(frames):
    return b"".join(frames)


def swapped(frames):
    frames[3], frames[7] = frames[7], frames[3]
    return joined(frames)


WAYS = {
    "removed": lambda log: log.unlink(),
    "removed with its index": lambda log: (log.unlink(), log.with_name(f"{FILE}-shm").unlink(missing_ok=True)),
    "emptied": truncated(0),
    "half a header": truncated(16),
    "a header alone": truncated(HEADER),
    "a byte of the first frame": truncated(HEADER + 1),
    "the first frame": truncated(HEADER + FRAME),
    "zeros": lambda log: log.write_bytes(bytes(log.stat().st_size)),
    "other bytes": lambda log: log.write_bytes(random.Random(1).randbytes(log.stat().st_size)),
    "one frame is missing": changed(lambda frames: joined(frames[:9] + frames[10:])),
    "the first frame is missing": changed(lambda frames: joined(frames[1:])),
    "the last frame is missing": changed(lambda frames: joined(frames[:-1])),
    "half of the frames are missing": changed(lambda frames: joined(frames[: len(frames) // 2])),
    "the first half is missing": changed(lambda frames: joined(frames[len(frames) // 2 :])),
    "two frames are exchanged": changed(swapped),
    "a frame of zeros": changed(lambda frames: joined([*frames[:9], bytes(FRAME), *frames[10:]])),
    "zeros in the middle": changed(lambda frames: joined(frames[:9]) + bytes(5 * FRAME) + joined(frames[14:])),
    "zeros at the end": changed(lambda frames: joined(frames[:-3]) + bytes(3 * FRAME)),
    "half of the last frame": changed(lambda frames: joined(frames)[: -FRAME // 2]),
    "the frames twice, without the first": changed(lambda frames: joined(frames[1:] + frames)),
    "a salt of the header": changed(lambda frames: joined(frames)),
}


def test_every_way_to_lose_a_part_of_the_log_is_refused_named_and_repaired(copy):
    for way, spoil in WAYS.items():
        folder = copy()
        spoil(folder / LOG)
        if way == "a salt of the header":
            content = bytearray((folder / LOG).read_bytes())
            content[17] ^= 1
            (folder / LOG).write_bytes(content)
        require_refused_and_repairable(folder, way)


def test_a_log_that_was_exchanged_for_an_older_one_is_refused(copy, killed):
    folder = copy()
    shutil.copy(killed / "older", folder / LOG)
    require_refused_and_repairable(folder, "an older log")


@pytest.mark.extensive
def test_a_log_cut_at_every_frame_and_inside_of_it_is_refused(copy, killed):
    size = (killed / "data" / LOG).stat().st_size
    assert (size - HEADER) % FRAME == 0
    for end in range(HEADER, size, FRAME):
        for cut in (end, end + 12, end + 24 + 1000):
            folder = copy()
            truncated(cut)(folder / LOG)
            require_refused_and_repairable(folder, f"cut at {cut}")


def test_either_witness_is_enough_and_without_both_nothing_can_be_known(copy):
    for remaining in ("snapshots", "count", "nothing"):
        folder = copy()
        (folder / LOG).unlink()
        if remaining != "count":
            (folder / "journal.count").unlink()
        if remaining != "snapshots":
            shutil.rmtree(folder / "streams")
        if remaining == "nothing":
            with opened(folder) as journal:
                assert journal.count(1) == 4
        else:
            require_refused_and_repairable(folder, remaining)


def test_after_a_kill_with_the_whole_log_nothing_is_refused(copy):
    def whole(log):
        pass

    def longer(log):
        log.write_bytes(log.read_bytes() + bytes(FRAME))

    for keep in (whole, longer, lambda log: log.with_name(f"{FILE}-shm").unlink(missing_ok=True)):
        folder = copy()
        keep(folder / LOG)
        assert check_folder(folder) == []
        kept = snapshots(folder)
        with opened(folder) as journal:
            assert journal.count(1) == ACKNOWLEDGED
            assert journal.commit([request(1, 1, d=16)]).firsts == (ACKNOWLEDGED + 1,)
        assert snapshots(folder) == kept


def test_pages_that_a_checkpoint_moved_before_it_was_killed_and_its_log_was_lost_are_refused(tmp_path):
    """A checkpoint writes pages in their order; without the log some are of an older journal, and some of a newer."""
    with open_journal(tmp_path / "data") as journal:
        stream = journal.create("kitchen")
        for number in range(60):
            journal.commit([request(stream, number, f"camera {number}", d=512)])
            if number == 29:
                journal.checkpoint()
                older, before = journal.path.read_bytes(), contents(journal, stream)
        journal.checkpoint()
        newer, after = journal.path.read_bytes(), contents(journal, stream)
    image, refused = tmp_path / "image", 0
    image.mkdir()
    for end in range(0, len(newer), PAGE):
        (image / FILE).write_bytes(newer[:end] + older[end:])
        try:
            with open_journal(image) as journal:
                assert contents(journal, stream) in (before, after)
        except UnreadableFile:
            assert check_folder(image)
            refused += 1
        for path in image.iterdir():
            path.unlink()
    assert refused > 3


@pytest.mark.parametrize("table", ["batches", "operations"])
def test_a_row_that_is_missing_in_the_middle_is_noticed_and_what_comes_before_it_is_kept(tmp_path, table):
    with open_journal(tmp_path) as journal:
        stream = journal.create("kitchen")
        for number in range(9):
            journal.commit([request(stream, number)])
            journal.operate(stream, "freeze", {})
        whole = contents(journal, stream)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
        if table == "batches":
            connection.execute("DELETE FROM samples WHERE id = 5")
        connection.execute(f"DELETE FROM {table} WHERE id = 5")
    with pytest.raises(UnreadableFile, match=rf"{table} are missing before sequence \d+ of stream kitchen.*--repair"):
        open_journal(tmp_path)
    assert len(check_folder(tmp_path)) == 1
    with open_journal(tmp_path, repair=True) as journal:
        assert contents(journal, stream) == whole[: 4 if table == "batches" else 5]
        assert journal.commit([request(stream, 100)]).firsts[0] > 18
        assert check_folder(journal.path.parent) == []


def test_rows_that_are_removed_on_purpose_are_not_taken_for_lost_ones(tmp_path):
    random_numbers = random.Random(3)
    journal, streams, number = open_journal(tmp_path), {}, 0
    for _ in range(60):
        name = random_numbers.choice("abc")
        stream = streams.setdefault(name, None) or journal.create(name)
        streams[name] = stream
        for _ in range(random_numbers.randrange(6)):
            others = [other for other in streams.values() if other is not None]
            given = [request(one, number + i, random_numbers.choice(("door", "yard"))) for i, one in enumerate(others)]
            journal.commit(given)
            number += len(given)
        match random_numbers.randrange(6):
            case 0:
                journal.operate(stream, "unlearn", {"source": "door", "erase": True})
                journal.erase(stream, "door", journal.last(stream)[0])
            case 1:
                journal.delete(stream)
                streams[name] = None
            case 2 | 3:
                journal.drop_until(stream, random_numbers.randrange(1 + journal.last(stream)[0]))
            case 4:
                journal.operate(stream, "freeze", {})
            case _:
                journal.close()
                journal = open_journal(tmp_path)
        assert check_folder(journal.path.parent) == []
    journal.close()
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        batches = connection.execute("SELECT id, span FROM batches ORDER BY id").fetchall()
    assert len(batches) > 10
    for id, span in random_numbers.sample(batches, 10):  # one row more that is missing is still noticed
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        (tmp_path / "copy").mkdir()
        shutil.copy(tmp_path / FILE, tmp_path / "copy")
        with closing(sqlite3.connect(tmp_path / "copy" / FILE)) as connection, connection:
            connection.execute("DELETE FROM samples WHERE id BETWEEN ? AND ?", (id, id + span - 1))
            connection.execute("DELETE FROM batches WHERE id = ?", (id,))
        assert check_folder(tmp_path / "copy")


def test_a_stream_that_was_lost_with_the_log_is_set_aside_and_its_numbers_are_not_used_again(tmp_path):
    with open_journal(tmp_path / "data") as journal:
        stream = journal.create("kitchen")
        journal.commit([request(stream, 1, samples=9)])
        snapshot = tmp_path / "data" / "streams" / "1" / "snapshots" / f"{9:020}-0.safetensors"
        snapshot.parent.mkdir(parents=True)
        snapshot.write_bytes(b"a state")
        shutil.copytree(tmp_path / "data", tmp_path / "image", ignore=lambda *_: (LOG, f"{FILE}-shm", ".lock"))
    with pytest.raises(UnreadableFile, match=r"learned by a stream that the journal does not have.*--repair"):
        open_journal(tmp_path / "image")
    with open_journal(tmp_path / "image", repair=True) as journal:
        assert journal.streams() == {}
        again = journal.create("kitchen")
        assert journal.commit([request(again, 1)]).firsts[0] > 9
    aside = tmp_path / "image" / "set-aside" / "1" / snapshot.relative_to(tmp_path / "data")
    assert aside.read_bytes() == b"a state"
    assert aside.stat().st_mode & 0o077 == 0
    assert aside.parent.stat().st_mode & 0o077 == 0
    with open_journal(tmp_path / "image") as journal:
        assert journal.count(again) == 1
