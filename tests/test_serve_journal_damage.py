"""A damaged journal is refused with one line that says where; nothing is cut unless that is asked for."""

import random
import re
import shutil
import sqlite3
from contextlib import closing

import pytest
from journals import FILE, answers, contents, id_hash, image_of, open_journal, request

from pta.errors import UnreadableFile
from pta.serve.journal.check import check_folder
from pta.serve.journal.rows import StoredAnswers
from pta.serve.journal.schema import PAGE

LOG = f"{FILE}-wal"


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """A journal as a power failure leaves it: three groups in its log. Also what it held, and where each group ends."""
    folder = tmp_path_factory.mktemp("journal")
    ends = []
    with open_journal(folder / "data") as journal:
        stream = journal.create("kitchen")
        journal.checkpoint()
        for number in range(3):
            journal.commit([request(stream, number, samples=3)])
            ends.append((folder / "data" / LOG).stat().st_size)
        return image_of(folder / "data", folder / "image"), contents(journal, stream), ends


@pytest.fixture
def copy(tmp_path):
    """A fresh copy of a folder, in the place of the last one."""

    def copy(folder):
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        return shutil.copytree(folder, tmp_path / "copy")

    return copy


def flip(path, place, bit=0):
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def held(folder, **given):
    """What is in the only stream of a journal, which must be in order."""
    with open_journal(folder, **given) as journal:
        assert check_folder(journal.path.parent) == []
        return contents(journal, journal.streams()["kitchen"])


@pytest.mark.extensive
def test_a_log_truncated_anywhere_has_the_groups_before_that(crashed, copy):
    image, whole, ends = crashed
    for size in range(0, ends[-1] + 1, 512):
        folder = copy(image)
        with (folder / LOG).open("rb+") as file:
            file.truncate(size)
        assert held(folder) == whole[: sum(end <= size for end in ends)]


def test_a_flipped_bit_in_the_log_loses_at_most_the_last_group_or_is_refused(crashed, copy):
    """In the last group it can look like a write that a power failure has torn."""
    image, whole, ends = crashed
    random_numbers = random.Random(1)
    header, frames = range(32), range(32, ends[-1], 24 + PAGE)
    heads = [start + i for start in frames for i in random_numbers.sample(range(24), 2)]
    places = [*header, *heads, *random_numbers.sample(range(ends[-1]), 40), ends[0] - 1, ends[-2] - 1, ends[-1] - 1]
    for place in places:
        folder = copy(image)
        flip(folder / LOG, place, random_numbers.randrange(8))
        if place < ends[-2]:
            with pytest.raises(UnreadableFile, match=r"-wal is damaged in the middle; --repair cuts before the damage"):
                open_journal(folder)
            assert check_folder(folder) == [f"{folder / LOG} is damaged: groups after the damage would be lost"]
            cut = held(folder, repair=True)
            assert cut == whole[: len(cut)]
            assert len(cut) <= sum(end <= place for end in ends)
        else:
            assert held(folder, repair=True) == whole[:-1]


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """A journal without a log, with everything that a journal can hold."""
    folder = tmp_path_factory.mktemp("journal")
    with open_journal(folder) as journal:
        stream, other = journal.create("kitchen"), journal.create("garden")
        for number in range(30):
            journal.commit([request(stream, number, f"camera {number}", 2, d=64), request(other, number, d=64)])
            if number % 10 == 5:
                journal.operate(stream, "unlearn", {"source": "nobody known", "samples": number})
        group = journal.commit([request(stream, 30, "gate", d=64)]).group
        journal.commit([], StoredAnswers(group, {stream: answers(12345)}))
    return folder


def test_a_flipped_bit_anywhere_in_the_file_is_noticed_or_changes_nothing(closed, copy):
    whole, size = held(closed), (closed / FILE).stat().st_size
    random_numbers, refused = random.Random(1), 0
    for place in [*range(0, 100, 7), *random_numbers.sample(range(size), 150)]:
        folder = copy(closed)
        flip(folder / FILE, place, random_numbers.randrange(8))
        try:
            found = held(folder)
        except UnreadableFile:
            refused += 1
        else:
            assert found == whole
    assert refused > 10


def test_a_truncated_file_is_refused_and_not_made_anew(closed, copy):
    size = (closed / FILE).stat().st_size
    for rest in (0, 10, 4096, PAGE, size // 2, size - PAGE):
        folder = copy(closed)
        with (folder / FILE).open("rb+") as file:
            file.truncate(rest)
        with pytest.raises(UnreadableFile):
            open_journal(folder)
        assert (folder / FILE).stat().st_size == rest


def test_a_killed_maker_leaves_nothing_that_is_in_the_way(tmp_path):
    for name in (f"{FILE}.new", f"{FILE}.new-wal"):
        (tmp_path / name).write_bytes(b"a part")
    open_journal(tmp_path).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal.count", FILE]


@pytest.mark.parametrize(
    ("piece", "said"),
    [
        (request(1, 7, None, 2, d=64).features[1].tobytes(), r"stream kitchen, sequences 16 to 17 \(group \d+\)"),
        (request(1, 7, None, 2, d=64).touches[1], "stream kitchen, sequences 16 to 17"),
        (request(1, 7).digest, "stream kitchen, sequences 16 to 17|stream garden, sequences 8 to 8"),
        (b"camera 17", "source 18 of table sources"),
        (b"nobody known", "operation [123] of table operations"),
        (b"embedded", "service 1 of table about"),
        (b"garden", "stream 2 of table streams"),
        (answers(12345).tobytes(), "the stored answers are not as they were written"),
    ],
)
def test_a_check_says_which_row_is_damaged(closed, copy, piece, said):
    folder = copy(closed)
    content = (folder / FILE).read_bytes()
    assert piece in content
    while (place := content.find(piece)) >= 0:  # an index can have it as well
        flip(folder / FILE, place + len(piece) // 2)
        content = (folder / FILE).read_bytes()
    with pytest.raises(UnreadableFile, match=rf"is damaged: .*({said}).*--repair cuts before it"):
        open_journal(folder)
    assert any(re.search(said, line) for line in check_folder(folder))


def damage_row(folder, statement):
    with closing(sqlite3.connect(folder / FILE)) as connection:
        assert connection.execute(statement).rowcount == 1
        connection.commit()


def test_repair_cuts_at_the_last_whole_group_keeps_the_damaged_file_and_uses_no_number_again(closed, copy):
    whole, folder = held(closed), copy(closed)
    damage_row(folder, "UPDATE samples SET feature = zeroblob(128) WHERE id = 3 * 20 + 3")  # of garden in group 21
    before = (folder / FILE).read_bytes()
    with pytest.raises(UnreadableFile, match=r"stream garden, sequences 21 to 21"):
        open_journal(folder)
    assert (folder / FILE).read_bytes() == before
    with open_journal(folder, repair=True) as journal:
        stream, other = journal.streams()["kitchen"], journal.streams()["garden"]
        assert contents(journal, stream) == whole[:20]
        assert [rows.sequences.tolist() for rows in journal.groups(other)] == [[n] for n in range(1, 21)]
        assert [operation.sequence for operation in journal.operations(stream)] == [13, 34]
        assert journal.find(stream, id_hash(20)) is None
        assert journal.commit([request(stream, 20)]).firsts == (65,)
        assert check_folder(journal.path.parent) == []
    assert (folder / f"{FILE}.damaged").stat().st_size == len(before)
    assert held(folder)[:20] == whole[:20]


def test_repair_cuts_before_a_damaged_operation(closed, copy):
    whole, folder = held(closed), copy(closed)
    damage_row(folder, "UPDATE operations SET argument = '{}' WHERE id = 2")
    with open_journal(folder, repair=True) as journal:
        stream = journal.streams()["kitchen"]
        assert [operation.sequence for operation in journal.operations(stream)] == [13]
        assert contents(journal, stream) == whole[:16]


def test_repair_makes_a_damaged_index_anew_and_leaves_a_whole_journal_alone(closed, copy):
    whole, folder = held(closed), copy(closed)
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_schema WHERE name = 'samples_by_id'")  # its pages belong to nothing now
        connection.commit()
    with pytest.raises(UnreadableFile, match="is damaged: SQLite: "):
        open_journal(folder)
    assert held(folder, repair=True) == whole
    with open_journal(folder) as journal:
        assert journal.find(journal.streams()["kitchen"], id_hash(9)) is not None
        assert len(journal.operations(journal.streams()["kitchen"])) == 3
    (folder / f"{FILE}.damaged").unlink()
    assert held(folder, repair=True) == whole
    assert sorted(path.name for path in folder.iterdir()) == ["journal.count", FILE]


def test_what_the_samples_belong_to_cannot_be_repaired(closed, copy):
    folder = copy(closed)
    damage_row(folder, "UPDATE streams SET last = 5 WHERE id = 1")
    before = (folder / FILE).read_bytes()
    with pytest.raises(UnreadableFile, match=r"cannot be repaired: stream 1 of table streams .*; restore a backup"):
        open_journal(folder, repair=True)
    assert (folder / FILE).read_bytes() == before


def test_damage_is_noticed_while_a_journal_is_read(closed, copy):
    folder = copy(closed)
    with open_journal(folder) as journal:
        damage_row(folder, "UPDATE samples SET touches = x'00' WHERE id = 1")
        with pytest.raises(UnreadableFile, match="is damaged: stream kitchen, sequences 1 to 2"):
            contents(journal, journal.streams()["kitchen"])


def test_a_journal_that_cannot_be_opened_is_not_called_damaged(closed, monkeypatch):
    def refuse(_):
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN  # as on a disk that is mounted read-only
        raise error

    monkeypatch.setattr("pta.serve.journal.schema.connect_to_read", refuse)
    with pytest.raises(UnreadableFile, match="its folder must be writable"):
        check_folder(closed)
