"""The journal keeps every group, knows every id once, uses no number twice, and forgets what it is told to."""

import os
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing

import numpy as np
import pytest
from journals import FILE, IDENTITY, answers, contents, id_hash, image_of, open_journal, request

from pta.errors import InvalidParameter, MachineFailure, StateMismatch, UnreadableFile
from pta.serve.journal.check import back_up, check_folder
from pta.serve.journal.journal import Journal
from pta.serve.journal.rows import StoredAnswers


@pytest.fixture
def journal(tmp_path):
    with open_journal(tmp_path / "data") as journal:
        yield journal


@pytest.fixture
def stream(journal):
    return journal.create("default")


def reopened(journal):
    journal.close()
    return open_journal(journal.path.parent)


def test_it_needs_neither_torch_nor_a_web_server():
    code = "import sys, pta.serve.journal.journal, pta.serve.streams.history; print(*sys.modules)"
    assert not {"torch", "starlette"} & {*subprocess.check_output([sys.executable, "-c", code], text=True).split()}


def test_what_goes_in_comes_out_group_by_group_also_after_a_restart(journal, stream):
    other = journal.create("other")
    first, second = request(stream, 1, "door", samples=3), request(stream, 2)
    one = journal.commit([first, request(other, 3), second])
    two = journal.commit([request(stream, 4, "yard")])
    assert (one.firsts, two.firsts) == ((1, 1, 4), (5,))
    for _ in range(2):
        rows, last = journal.groups(stream)
        assert (rows.group, rows.time, rows.sequences.tolist()) == (one.group, one.time, [1, 2, 3, 4])
        assert rows.sources == ("door", "door", "door", None)
        assert np.array_equal(rows.features, np.concatenate([first.features, second.features]))
        assert rows.touches == (*first.touches, *second.touches)
        assert (last.group, last.sequences.tolist(), last.sources) == (two.group, [5], ("yard",))
        assert journal.streams() == {"default": stream, "other": other}
        assert journal.last(stream) == (5, two.time)
        assert check_folder(journal.path.parent) == []
        journal = reopened(journal)
    journal.close()


def test_a_part_of_a_group_can_be_asked_for(journal, stream):
    for number in range(100):
        journal.commit([request(stream, number, "door" if number % 2 else "yard", samples=3)])
    for after, until in [(0, sys.maxsize), (0, 300), (1, 299), (7, 8), (150, 150), (299, 2**62), (96, 99), (290, 400)]:
        expected = list(range(after + 1, min(300, until) + 1))
        found = [n for rows in journal.groups(stream, after, until) for n in rows.sequences.tolist()]
        assert found == expected
        assert journal.count(stream, after=after, until=until) == len(expected)
        of_door = [n for n in expected if (n - 1) // 3 % 2]
        assert journal.count(stream, source="door", after=after, until=until) == len(of_door)
    assert journal.sources(stream) == {"door": 150, "yard": 150}
    assert (journal.first(stream, "door"), journal.first(stream, "nobody")) == (4, None)
    assert journal.count(stream, source="nobody") == 0


def test_an_id_is_found_with_its_digest_and_its_answers_once_these_are_stored(journal, stream):
    given = [request(stream, 1, samples=2), request(stream, 2, samples=3)]
    committed = journal.commit(given)
    found = journal.find(stream, id_hash(2))
    assert (found.digest, found.time, found.sequences.tolist()) == (given[1].digest, committed.time, [3, 4, 5])
    assert found.answers is None
    journal.commit([request(stream, 3)], StoredAnswers(committed.group, {stream: answers(1, 2, 3, 4, 5)}))
    assert journal.find(stream, id_hash(2)).answers["label"].tolist() == [3, 4, 5]
    assert journal.find(stream, id_hash(1)).answers.tobytes() == answers(1, 2).tobytes()
    assert journal.find(stream, id_hash(3)).answers is None
    assert journal.find(stream, id_hash(4)) is None
    assert journal.find(journal.create("other"), id_hash(1)) is None


def test_the_last_answers_are_stored_without_a_group(journal, stream):
    committed = journal.commit([request(stream, 1)])
    journal.commit([], StoredAnswers(committed.group, {stream: answers(7)}))
    assert journal.find(stream, id_hash(1)).answers["label"].tolist() == [7]
    assert len(contents(journal, stream)) == 1


@pytest.mark.parametrize("numbers", [[1], [2, 1], [2, 2]])
def test_an_id_is_written_once_and_a_refused_group_leaves_nothing(journal, stream, numbers):
    journal.commit([request(stream, 1, "door")])
    before = contents(journal, stream), journal.last(stream), journal.sources(stream)
    with pytest.raises(InvalidParameter):
        journal.commit([request(stream, number, "new") for number in numbers])
    assert (contents(journal, stream), journal.last(stream), journal.sources(stream)) == before
    assert journal.find(stream, id_hash(2)) is None
    assert journal.commit([request(stream, 2, "yard")]).firsts == (2,)  # it is not read-only after that
    assert journal.sources(stream) == {"door": 1, "yard": 1}
    assert check_folder(journal.path.parent) == []


def test_another_stream_may_use_the_same_id(journal, stream):
    other = journal.create("other")
    assert journal.commit([request(stream, 1), request(other, 1)]).firsts == (1, 1)


def test_a_stream_is_known_and_has_a_name_of_its_own(journal, stream):
    with pytest.raises(InvalidParameter, match="has no stream 99"):
        journal.commit([request(stream, 1), request(99, 3)])
    with pytest.raises(InvalidParameter, match="a stream named 'default' already"):
        journal.create("default")
    assert journal.last(stream)[0] == 0


def test_operations_share_the_numbers_of_the_samples(journal, stream):
    journal.commit([request(stream, 1, samples=2)])
    operation = journal.operate(stream, "rewind", {"to": 1})
    assert (operation.sequence, operation.kind, operation.argument) == (3, "rewind", {"to": 1})
    assert journal.commit([request(stream, 2)]).firsts == (4,)
    journal = reopened(journal)
    assert journal.operations(stream) == [operation]
    assert journal.operate(stream, "undo", {}).sequence == 5
    assert journal.count(stream) == 3
    journal.close()


def test_no_sequence_number_is_used_twice_whatever_is_removed(journal, stream):
    journal.commit([request(stream, 1, "door", samples=5)])
    journal.erase(stream, "door", 5)
    journal = reopened(journal)
    assert journal.commit([request(stream, 2, samples=5)]).firsts == (6,)
    journal.drop_until(stream, 10)
    journal = reopened(journal)
    assert journal.operate(stream, "reset", {}).sequence == 11
    journal.delete(stream)
    assert journal.streams() == {}
    journal = reopened(journal)
    again = journal.create("default")
    assert journal.last(again)[0] == 11
    assert journal.operations(again) == []
    assert journal.commit([request(again, 1)]).firsts == (12,)
    journal.close()


def test_group_numbers_grow_whatever_is_removed(journal, stream):
    groups = []
    for number in range(4):
        groups.append(journal.commit([request(stream, number, "door")]).group)
        if number % 2:
            journal.erase(stream, "door", 100)
            journal = reopened(journal)
    assert groups == sorted(set(groups))
    journal.close()


def test_time_never_goes_back_although_the_clock_does(journal, stream, monkeypatch):
    times = []
    for number, clock in enumerate([2000.0, 1000.0, 1500.0, 3000.0, 500.0]):
        monkeypatch.setattr(time, "time", lambda clock=clock: clock)
        journal = reopened(journal) if number % 2 else journal
        times += [journal.commit([request(stream, number)]).time, journal.operate(stream, "freeze", {}).time]
    assert times == [2000.0] * 6 + [3000.0] * 4
    assert [journal.sequence_at(stream, at) for at in (1999.0, 2000.0, 2999.0, 3000.0)] == [0, 6, 6, 10]
    journal.close()


def test_a_second_process_is_told_who_owns_the_folder(journal, stream):
    code = f"from pathlib import Path; from journals import *; open_journal(Path({str(journal.path.parent)!r}))"
    call, path = [sys.executable, "-c", code], {"PYTHONPATH": ":".join(sys.path)}
    second = subprocess.run(call, env=path, capture_output=True, text=True)
    assert f"is in use by process {os.getpid()}; stop it, or choose another data folder" in second.stderr
    journal.close()
    subprocess.run(call, env=path, check=True)


def test_a_journal_of_another_service_or_a_newer_format_is_refused_in_one_line(journal, stream):
    folder = journal.path.parent
    journal.close()
    with pytest.raises(StateMismatch, match=r"was written with model 'embedded', and is opened with 'other'"):
        Journal.open(folder, IDENTITY | {"model": "other"})
    with pytest.raises(StateMismatch, match=r"was written without rule, and is opened with 3"):
        Journal.open(folder, IDENTITY | {"rule": 3})
    open_journal(folder).close()
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.execute("PRAGMA user_version = 5")
    with pytest.raises(UnreadableFile, match=r"has format 5, and this pta reads format 4; install a newer pta"):
        open_journal(folder)


def test_a_database_that_is_no_journal_is_refused_and_left_as_it_is(tmp_path):
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("CREATE TABLE things (name)")
        connection.commit()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(UnreadableFile, match="is not a journal of pta"):
        open_journal(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before
    (tmp_path / FILE).write_bytes(b"something else" * 1000)
    with pytest.raises(UnreadableFile, match="cannot be read as a journal"):
        open_journal(tmp_path)
    (tmp_path / FILE).unlink()
    open_journal(tmp_path).close()  # the refused calls hold no claim


def test_readers_and_a_writer_work_at_the_same_time(journal, stream):
    failures = []

    def read():
        try:
            while journal.last(stream)[0] < 200:
                sequences = [n for rows in journal.groups(stream) for n in rows.sequences.tolist()]
                assert sequences == list(range(1, len(sequences) + 1))
                journal.find(stream, id_hash(len(sequences)))
                journal.sources(stream)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(100):
        journal.commit([request(stream, number, f"source {number}", samples=2)])
        if number % 20 == 19:
            journal.checkpoint()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_backup_is_the_journal_at_one_moment_while_it_is_written(journal, stream, tmp_path):
    journal.commit([request(stream, 1)])
    going_on = threading.Event()

    def write():
        for number in range(2, 1000):
            if going_on.is_set():
                return
            journal.commit([request(stream, number)])

    thread = threading.Thread(target=write)
    thread.start()
    back_up(journal.path.parent, tmp_path / "copy")
    going_on.set()
    thread.join()
    with open_journal(tmp_path / "copy") as copy:
        held = contents(copy, stream)
        assert held == contents(journal, stream)[: len(held)]
        assert held
        copy.commit([request(stream, 5000)])
    with pytest.raises(UnreadableFile, match="is there already; choose an empty folder"):
        back_up(journal.path.parent, tmp_path / "copy")
    with pytest.raises(UnreadableFile, match="no journal in"):
        back_up(tmp_path / "nowhere", tmp_path / "more")


def files_with(folder, *requests):
    """The files that hold eight bytes of the start or the middle of a feature of these requests, wherever they lie."""
    sought = np.concatenate([one.features.reshape(-1).view("<u8")[::64] for one in requests])
    may_be_sought = np.zeros(2**16, bool)  # by the last two bytes, because few are
    may_be_sought[sought % 2**16] = True
    found = []
    for path in folder.iterdir():
        content = path.read_bytes()
        for start in range(8):
            windows = np.frombuffer(content[start : start + (len(content) - start) // 8 * 8], "<u8")
            if np.isin(windows[may_be_sought[windows % 2**16]], sought).any():
                found.append(path.name)
                break
    return found


def test_erased_features_are_in_no_file(journal, stream):
    """One source after the other is erased, because SQLite leaves copies of rows that it moves from page to page."""
    chosen = np.random.default_rng(2).integers(0, 20, (25, 40))
    kept = {}
    for group, sources in enumerate(chosen):
        requests = [request(stream, 100 * group + i, f"source {source}", d=512) for i, source in enumerate(sources)]
        committed = journal.commit(requests)
        journal.commit([], StoredAnswers(committed.group, {stream: answers(*range(40))}))
        for one in requests:
            kept.setdefault(one.source, []).append(one)
    assert files_with(journal.path.parent, *kept["source 0"]) != []
    gone = []
    while len(kept) > 1:
        erased = kept.pop(min(kept))
        assert journal.erase(stream, erased[0].source, 10**6) == len(erased)
        gone += erased
        assert files_with(journal.path.parent, *gone) == []
        assert journal.find(stream, erased[0].id_hash) is None
    assert check_folder(journal.path.parent) == []
    (left,) = kept.values()
    features = b"".join(rows.features.tobytes() for rows in journal.groups(stream))
    assert features == b"".join(one.features.tobytes() for one in left)
    found = journal.find(stream, left[3].id_hash)
    assert found.answers["label"].tolist() == [(n - 1) % 40 for n in found.sequences.tolist()]
    assert journal.sources(stream) == {left[0].source: len(left)}
    assert journal.count(stream) == len(left)
    with reopened(journal) as journal:
        assert journal.count(stream, after=600) == sum(chosen[15:].ravel() == int(left[0].source.split()[1]))


def test_answers_that_come_after_their_samples_were_erased_are_not_stored(journal, stream):
    committed = journal.commit([request(stream, 1, "door"), request(stream, 2, "yard")])
    journal.erase(stream, "door", 2)
    journal.commit([], StoredAnswers(committed.group, {stream: answers(1, 2)}))
    assert journal.find(stream, id_hash(2)).answers["label"].tolist() == [2]
    with closing(sqlite3.connect(journal.path)) as connection:
        (stored,) = connection.execute("SELECT answers FROM batches").fetchone()
    assert stored[: len(answers(1).tobytes())] == bytes(len(answers(1).tobytes()))
    journal.erase(stream, "yard", 2)
    journal.commit([], StoredAnswers(committed.group, {stream: answers(1, 2)}))
    assert check_folder(journal.path.parent) == []


def test_an_erased_source_may_come_again(journal, stream):
    journal.commit([request(stream, 1, "door"), request(stream, 2, "door")])
    journal.commit([request(stream, 3, "door")])
    assert journal.erase(stream, "door", 1) == 1
    assert (journal.first(stream, "door"), journal.sources(stream)) == (2, {"door": 2})
    assert journal.erase(stream, "door", 3) == 2
    assert (journal.first(stream, "door"), journal.sources(stream), contents(journal, stream)) == (None, {}, [])
    journal.commit([request(stream, 1, "door")])
    assert (journal.first(stream, "door"), journal.sources(stream)) == (4, {"door": 1})


def test_what_an_ended_process_was_to_erase_is_erased_at_the_next_start(journal, stream):
    gone, later = request(stream, 1, "door", d=512), request(stream, 2, "door", d=512)
    journal.commit([gone])
    (journal.path.parent / f"{FILE}.damaged").write_bytes(gone.features.tobytes())  # which a repair has kept
    journal.operate(stream, "unlearn", {"source": "door", "erase": True})
    journal.commit([later])
    with reopened(journal) as journal:
        assert files_with(journal.path.parent, gone) == []
        assert files_with(journal.path.parent, later) == [FILE]
        assert journal.sources(stream) == {"door": 1}


def test_a_deleted_stream_is_in_no_file_and_the_others_are_as_they_were(journal, stream):
    other = journal.create("other")
    gone = [request(stream, n, "door", 3, d=512) for n in range(20)]
    for n, one in enumerate(gone):
        journal.commit([one, request(other, 100 + n, "yard", d=512)])
    before = contents(journal, other)
    journal.delete(stream)
    assert files_with(journal.path.parent, *gone) == []
    assert contents(journal, other) == before
    with pytest.raises(InvalidParameter):
        journal.last(stream)
    with reopened(journal) as journal:
        assert contents(journal, other) == before


def test_dropped_groups_make_room_and_leave_the_moment_they_reach_to(journal, stream):
    other = journal.create("other")
    for number in range(100):
        source = "door" if number < 50 else "yard"
        journal.commit([request(stream, number, source, 4, d=512), request(other, number, d=512)])
    operation = journal.operate(stream, "reset", {})
    size, rest = journal.size(), contents(journal, stream)[75:]
    assert journal.drop_until(stream, 302) == 300  # which is in the middle of a group
    assert size - journal.size() > 300 * 900  # bytes
    assert journal.oldest(stream) == (300, [rows.time for rows in journal.groups(other)][74])
    for _ in range(2):
        assert contents(journal, stream) == rest
        assert journal.sources(stream) == {"yard": 100}
        assert journal.first(stream, "door") == 1  # a snapshot has learned it, so that it cannot be un-learned
        assert journal.operations(stream) == [operation]
        assert journal.count(other) == 100
        assert journal.sequence_at(stream, 0.0) == 0
        assert check_folder(journal.path.parent) == []
        journal = reopened(journal)
    assert journal.drop_until(stream, 300) == 0
    journal.close()


@pytest.mark.parametrize(
    ("together", "most"), [pytest.param(1, 1330, marks=pytest.mark.extensive), (10, 1300), (64, 1300)]
)
def test_a_sample_of_512_numbers_takes_at_most_1300_bytes(journal, stream, together, most):
    """Beside the pages of an empty journal. Groups of one take most, because a group has a row of its own."""
    empty, committed = journal.size(), None
    for start in range(0, 1024, together):
        group = [request(stream, start + i, f"camera {i % 7}", d=512) for i in range(together)]
        stored = committed and StoredAnswers(committed.group, {stream: answers(*range(together))})
        committed = journal.commit(group, stored)
    journal.checkpoint()
    assert journal.size() == journal.path.stat().st_size
    assert (journal.size() - empty) / 1024 <= most


def test_a_commit_of_one_sample_adds_at_most_45000_bytes_to_the_log(journal, stream):
    journal.checkpoint()
    assert journal.bytes_on_disk() == journal.path.stat().st_size
    committed = None
    for number in range(100):
        stored = committed and StoredAnswers(committed.group, {stream: answers(1)})
        committed = journal.commit([request(stream, number, d=512)], stored)
    log = journal.path.with_name(f"{FILE}-wal").stat().st_size
    assert log / 100 <= 45_000
    assert journal.bytes_on_disk() == journal.path.stat().st_size + log


class Unlisted(dict):
    """Fails where anybody goes through it."""

    def refuse(self, *_):
        raise AssertionError("a commit goes through all entries")

    __iter__ = keys = values = items = copy = refuse


def test_a_commit_does_not_go_through_all_streams_and_sources(journal, stream):
    statements = []
    journal._database.writer.set_trace_callback(statements.append)
    journal.commit([request(stream, 1, "door", samples=2)])
    alone = len(statements)
    for number in range(50):
        journal.commit([request(journal.create(f"other {number}"), 1, f"camera {number}")])
    known = journal._known
    known.streams, known.sources, known.source_names = map(Unlisted, (known.streams, known.sources, known.source_names))
    known.counts = known.counts._replace(streams=Unlisted(known.counts.streams), sources=Unlisted(known.counts.sources))
    statements.clear()
    journal.commit([request(stream, 2, "yard", samples=2)])
    assert len(statements) == alone
    assert journal.find(stream, id_hash(2)).sequences.tolist() == [3, 4]
    assert journal.sources(stream) == {"door": 2, "yard": 2}
    assert [rows.sources[0] for rows in journal.groups(stream)] == ["door", "yard"]
    assert journal.operate(stream, "freeze", {}).sequence == 5


def stored_ends(folder):
    with closing(sqlite3.connect(f"file:{folder / FILE}?mode=ro", uri=True)) as connection:
        return dict(connection.execute("SELECT id, last FROM streams").fetchall())


def test_a_stream_whose_row_is_older_than_its_samples_is_as_it_was_after_a_kill(journal, stream, tmp_path):
    other, idle = journal.create("other"), journal.create("idle")
    journal.commit([request(stream, 1, "door"), request(other, 1)])
    journal.checkpoint()
    journal.commit([request(stream, 2, "door", samples=3), request(other, 2)])
    journal.operate(other, "freeze", {})
    journal.commit([request(stream, 3, "yard")])
    journal.erase(stream, "yard", 5)  # which is the last row
    journal.commit([request(stream, 4)])
    ends = {number: journal.last(number) for number in (stream, other, idle)}
    image = image_of(journal.path.parent, tmp_path / "image")
    assert stored_ends(image)[stream] < ends[stream][0]
    assert check_folder(image) == []
    with open_journal(image) as copy:
        assert {number: copy.last(number) for number in ends} == ends
        assert stored_ends(image) == {number: last for number, (last, _) in ends.items()}
        assert copy.sources(stream) == journal.sources(stream) == {"door": 4}
        assert [copy.samples(number) for number in ends] == [copy.count(number) for number in ends] == [5, 2, 0]
        group = journal.commit([request(stream, 5), request(other, 5)])
        assert copy.commit([request(stream, 5), request(other, 5)])[::2] == group[::2]
        assert check_folder(image) == []


def test_a_repair_uses_no_number_again_although_the_row_of_the_stream_is_older(journal, stream, tmp_path):
    journal.checkpoint()
    for number in range(9):
        journal.commit([request(stream, number)])
    image = image_of(journal.path.parent, tmp_path / "image")
    with closing(sqlite3.connect(image / FILE)) as connection, connection:
        connection.execute("UPDATE samples SET touches = x'00' WHERE id = 5")
    with open_journal(image, repair=True) as copy:
        assert copy.count(stream) == 4
        assert copy.commit([request(stream, 100)]).firsts[0] > 9


def test_samples_are_counted_whatever_is_removed(journal, stream):
    for number in range(6):
        journal.commit([request(stream, number, "door" if number % 2 else "yard", samples=2)])
    journal.operate(stream, "freeze", {})
    journal.erase(stream, "door", 6)
    journal.drop_until(stream, 8)
    for _ in range(2):
        assert journal.samples(stream) == journal.count(stream) == 4
        assert journal.sources(stream) == {"door": 2, "yard": 2}
        journal = reopened(journal)
    journal.delete(stream)
    assert journal.samples(journal.create("default")) == 0
    journal.close()


def test_a_journal_of_an_earlier_format_keeps_its_pages_and_goes_on(tmp_path, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr("pta.serve.journal.schema.PAGE", 16384)
        with open_journal(tmp_path / "data") as journal:
            stream = journal.create("default")
            for number in range(40):
                journal.commit([request(stream, number, "door", d=512)])
    with closing(sqlite3.connect(journal.path)) as connection:
        connection.execute("PRAGMA user_version = 3")
    assert check_folder(journal.path.parent) == []
    back_up(journal.path.parent, tmp_path / "copy")
    for folder in (journal.path.parent, tmp_path / "copy"):
        with open_journal(folder) as journal:
            assert journal.commit([request(stream, 40, "yard", d=512)]).firsts == (41,)
            assert journal.sources(stream) == {"door": 40, "yard": 1}
            journal.checkpoint()
            assert journal.size() == journal.path.stat().st_size
        with closing(sqlite3.connect(journal.path)) as connection:
            settings = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "page_size")]
            assert settings == [4, 16384]
            connection.execute("UPDATE samples SET touches = x'00' WHERE id = 30")
            connection.commit()
        with open_journal(folder, repair=True) as journal:
            assert journal.count(stream) == 29
            assert journal.commit([request(stream, 30)]).firsts == (42,)


def test_it_is_logged_once_that_nothing_can_be_written_any_more(journal, stream, caplog):
    for _ in range(2):
        with pytest.raises(MachineFailure), journal._database.transaction() as connection:
            connection.execute("SELECT no_such_function()")
        journal.checkpoint()
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("pta.serve", "ERROR")
    assert record.message == f"the journal is read-only until the service is restarted: {journal.read_only}"
    assert "no_such_function" in journal.read_only


def test_a_lost_journal_is_not_made_anew(journal, stream):
    journal.close()
    journal.path.unlink()
    with pytest.raises(UnreadableFile, match="is gone; restore a backup"):
        open_journal(journal.path.parent)


def test_a_whole_journal_has_nothing_to_tell(journal, stream, tmp_path):
    journal.commit([request(stream, 1)])
    assert check_folder(journal.path.parent) == []  # while it is in use
    with pytest.raises(UnreadableFile, match="no journal in"):
        check_folder(tmp_path / "nowhere")
