"""Links planted under the names that pta derives from a user's: what they lead to is never written, cut or removed."""

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest
from journals import open_journal
from photos import write_classes, write_photos
from refusals import refusal
from serving import ask, open_service

from pta.door.claims import sole_writer
from pta.door.files import write_atomically
from pta.door.locks import claimed
from pta.errors import PtaError
from pta.measure.result_store import ResultStore, result_key
from pta.run.shards import discard_shards, open_shards
from pta.serve.http.security import own_token
from pta.serve.journal.check import back_up, check_folder

EMBEDDED = ("--model", "embedded")
TEXT = "export PATH=~/bin:$PATH\n" * 400


@pytest.fixture
def precious(tmp_path):
    """A file of the user, which has nothing to do with pta; it is as it was when the test has ended."""
    file = tmp_path / "home" / ".bashrc"
    file.parent.mkdir()
    file.write_text(TEXT)
    yield file
    assert file.read_text() == TEXT


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    write_photos(folder / "all", 4)
    write_classes(folder / "classes.txt")
    return folder


def symbolic(place, precious):
    place.symlink_to(precious)


def hard(place, precious):
    place.hardlink_to(precious)


LINKS = [symbolic, hard]


def dangling(place, precious):
    place.symlink_to(precious.with_name("new"))


def pipe(place, precious):
    os.mkfifo(place)


def unix_socket(place, precious):
    with closing(socket.socket(socket.AF_UNIX)) as one:
        one.bind(os.path.relpath(place))  # the whole path may be longer than a socket's may be


def folder(place, precious):
    place.mkdir()


def own_text(place, precious):
    place.write_text(TEXT)


def long_number(place, precious):
    place.write_text("7" * 21)


@pytest.mark.parametrize("plant", [*LINKS, dangling, pipe, unix_socket, folder, own_text, long_number])
@pytest.mark.parametrize("wait", [False, True])
def test_what_is_no_lock_is_refused_in_one_line_and_stays_as_it_is(tmp_path, precious, plant, wait, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lock = tmp_path / "lock"
    plant(lock, precious)
    before = lock.lstat()

    def claim():
        with claimed(lock, wait=wait):
            pass

    assert str(lock) in refusal(claim)
    after = lock.lstat()
    assert (after.st_ino, after.st_mode, after.st_size) == (before.st_ino, before.st_mode, before.st_size)
    assert [path.name for path in precious.parent.iterdir()] == [".bashrc"]


def test_a_lock_of_another_user_is_refused(tmp_path, monkeypatch):
    (tmp_path / "lock").touch()
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(PtaError, match="is of another user"), claimed(tmp_path / "lock", wait=False):
        pass
    with claimed(tmp_path / "new", wait=False) as mine:  # where the files of all users have one owner
        assert mine


@pytest.mark.parametrize("left", [b"", b"4711", b"\0\0\0\0"])
def test_what_a_killed_holder_left_is_taken_over(tmp_path, left):
    (tmp_path / "lock").write_bytes(left)
    with claimed(tmp_path / "lock", wait=False) as mine:
        assert mine
        assert (tmp_path / "lock").read_text() == str(os.getpid())
    assert not (tmp_path / "lock").exists()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_lock_that_its_holder_removes_while_it_is_opened_is_made_again(tmp_path, monkeypatch, moment):
    lock, open_ = tmp_path / "lock", os.open
    lock.write_text("4711")
    removed = []

    def opened(path, flags, *mode):
        if flags & os.O_EXCL or removed:
            return open_(path, flags, *mode)
        removed.append(path)
        if moment == "before":
            lock.unlink()
        descriptor = open_(path, flags, *mode)
        lock.unlink()
        return descriptor

    monkeypatch.setattr(os, "open", opened)
    with claimed(lock, wait=False) as mine:
        assert mine
        assert removed
        assert lock.read_text() == str(os.getpid())


def test_a_link_in_the_place_of_a_held_lock_is_not_followed_at_the_end(tmp_path, precious):
    lock = tmp_path / "lock"
    with claimed(lock, wait=False):
        lock.unlink()
        lock.symlink_to(precious)
    assert lock.is_symlink()


@pytest.mark.parametrize("plant", LINKS)
@pytest.mark.parametrize("of", ["rows", "state", "features"])
def test_a_command_refuses_a_link_in_the_place_of_its_lock(photos, pta, tmp_path, precious, plant, of):
    classes = photos / "classes.txt"
    rows, state, features = tmp_path / "labels.csv", tmp_path / "state.safetensors", tmp_path / "all.safetensors"
    plant(tmp_path / f".{ {'rows': rows, 'state': state, 'features': features}[of].name }.lock", precious)
    if of == "features":
        done = pta("extract", photos / "all", "--classes", classes, "--out", features, *EMBEDDED)
    else:
        done = pta(*("predict", photos / "all", "--classes", classes, "--out", rows, "--state", state, *EMBEDDED))
    assert done.returncode == 2
    assert f".lock is a {'hard ' if plant is hard else ''}link" in " ".join(done.stderr.split())


def test_an_output_that_is_a_link_by_the_users_own_will_is_followed(photos, pta, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "labels.csv").symlink_to("data/labels.csv")
    done = pta("predict", photos / "all", "--classes", photos / "classes.txt", "--out", "labels.csv", *EMBEDDED)
    assert done.returncode == 0
    assert len((tmp_path / "data" / "labels.csv").read_text().splitlines()) == 5
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["labels.csv"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_link_planted_while_a_temporary_file_is_made_is_not_followed(tmp_path, precious, monkeypatch, moment):
    """Not even by whoever guesses its name."""
    open_ = Path.open

    def opened(self, *how, **named):
        if moment == "before":
            self.unlink(missing_ok=True)
            self.symlink_to(precious)
        file = open_(self, *how, **named)
        if moment == "after":
            self.unlink()
            self.symlink_to(precious)
        return file

    monkeypatch.setattr(Path, "open", opened)
    if moment == "before":
        with pytest.raises(PtaError, match="file exists"):
            write_atomically(tmp_path / "state", b"new")
    else:
        write_atomically(tmp_path / "state", b"new")


def test_leftovers_are_removed_without_following_them(tmp_path, precious):
    (tmp_path / ".state.4711.0123abcd").symlink_to(precious)
    with sole_writer(tmp_path / "state"):
        pass
    assert not (tmp_path / ".state.4711.0123abcd").is_symlink()


# -- extraction ------------------------------------------------------------------------------------------------------


def test_parts_that_lead_to_another_folder_are_refused(tmp_path, precious):
    out = tmp_path / "all.safetensors"
    (tmp_path / "all.safetensors.parts").symlink_to(precious.parent)
    for work in (
        lambda: open_shards(out, {}, [(1, 1)] * 4, size=2, batch=1).__enter__(),
        lambda: discard_shards(out, {}),
    ):
        assert "is a link" in refusal(work)
    assert [path.name for path in precious.parent.iterdir()] == [".bashrc"]


def test_a_finished_extraction_leaves_what_it_has_not_made(tmp_path):
    (parts := tmp_path / "all.safetensors.parts").mkdir()
    (parts / ".notes").write_text("mine")
    (parts / "album").mkdir()
    with open_shards(tmp_path / "all.safetensors", {}, [(1, 1)] * 4, size=2, batch=1):
        assert (parts / "inputs.json").exists()
    assert sorted(path.name for path in parts.iterdir()) == [".notes", "album"]


# -- the service -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plant", LINKS)
def test_a_service_refuses_a_link_in_the_place_of_its_lock(tmp_path, precious, plant):
    (tmp_path / "data").mkdir()
    plant(tmp_path / "data" / ".lock", precious)
    assert ".lock is a" in refusal(open_service, tmp_path / "data")
    assert [path.name for path in (tmp_path / "data").iterdir()] == [".lock"]


@pytest.mark.parametrize("plant", LINKS)
@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
def test_a_log_of_the_journal_that_is_a_link_is_refused(tmp_path, precious, plant, ending):
    open_journal(tmp_path / "data").close()
    plant(tmp_path / "data" / f"journal.sqlite{ending}", precious)
    for work in (open_journal, check_folder, lambda data: back_up(data, tmp_path / "copy")):
        assert f"journal.sqlite{ending} is a" in refusal(work, tmp_path / "data")


@pytest.mark.parametrize("plant", LINKS)
def test_a_new_journal_is_not_written_through_links(tmp_path, precious, plant):
    (tmp_path / "data").mkdir()
    for name in ("", "-wal", "-shm", "-journal"):
        plant(tmp_path / "data" / f"journal.sqlite.new{name}", precious)
    open_journal(tmp_path / "data").close()


@pytest.mark.parametrize(
    "level", ["streams", "streams/1", "streams/1/snapshots", "streams/1/imports", "streams/1/monitor"]
)
def test_folders_of_a_service_that_lead_elsewhere_are_refused_and_nothing_is_removed(tmp_path, precious, level):
    data = tmp_path / "data"
    with open_service(data, snapshot_samples=1) as service:
        ask(service, 1)
        service.operate("default", "import", content=service.export("default"))
    (data / level).rename(tmp_path / "moved")
    (data / level).symlink_to(precious.parent)
    (precious.parent / "letters").mkdir()
    (precious.parent / "00000000000000000009.safetensors").touch()
    for repair in (False, True):
        assert f"{level} is a link" in refusal(open_service, data, repair=repair)
    assert len(list(precious.parent.iterdir())) == 3


def test_a_service_removes_its_unfinished_files_and_nothing_else(tmp_path):
    with open_service(tmp_path, snapshot_samples=1) as service:
        ask(service, 1)
    folder = tmp_path / "streams" / "1" / "snapshots"
    (folder / ".notes").write_text("mine")
    (tmp_path / "streams" / "letters").mkdir()
    (tmp_path / "streams" / "2").mkdir()  # of a stream whose row was not written
    for name in (f".{7:020}.safetensors", f"..{7:020}.safetensors.4711.0123abcd"):
        (folder / name).touch()
    with open_service(tmp_path) as service:
        service.summary("default")
        assert sorted(path.name for path in folder.glob(".*")) == [".notes"]
        assert sorted(path.name for path in (tmp_path / "streams").iterdir()) == ["1", "letters"]


def test_a_repair_that_was_killed_is_no_planted_link(tmp_path):
    open_journal(tmp_path / "data").close()
    journal = tmp_path / "data" / "journal.sqlite"
    journal.with_name("journal.sqlite.damaged").hardlink_to(journal)
    open_journal(tmp_path / "data").close()


@pytest.mark.parametrize("plant", LINKS)
def test_a_backup_does_not_write_through_links(tmp_path, precious, plant):
    data, copy = tmp_path / "data", tmp_path / "copy"
    with open_service(data) as service:
        ask(service, 1)
    copy.mkdir()
    for name in ("classifier.safetensors", *(f".journal.sqlite.part{end}" for end in ("", "-wal", "-shm", "-journal"))):
        plant(copy / name, precious)
    back_up(data, copy)
    assert check_folder(copy) == []
    assert (copy / "classifier.safetensors").read_bytes() == (data / "classifier.safetensors").read_bytes()


def test_a_backup_is_not_written_to_another_folder_than_the_one_named(tmp_path, precious):
    with open_service(tmp_path / "data") as service:
        ask(service, 1)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "streams").symlink_to(precious.parent)
    assert "streams is a link" in refusal(back_up, tmp_path / "data", tmp_path / "copy")
    assert [path.name for path in precious.parent.iterdir()] == [".bashrc"]


@pytest.mark.parametrize("plant", LINKS)
def test_a_token_is_not_taken_from_elsewhere(tmp_path, precious, plant):
    known = precious.with_name("known")
    known.write_text("a-token-that-somebody-else-knows\n")
    known.chmod(0o600)
    plant(tmp_path / "token", known)
    assert "token is a" in refusal(own_token, tmp_path / "token")


# -- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plant", LINKS)
@pytest.mark.parametrize("name", ["results.sqlite", "results.sqlite-journal", "results.sqlite-wal"])
def test_results_are_not_written_through_links(tmp_path, precious, plant, name):
    empty = precious.with_name("empty")
    empty.touch()
    (tmp_path / "results").mkdir()
    plant(tmp_path / "results" / name, empty)
    assert f"{name} is a" in refusal(ResultStore, tmp_path / "results")
    assert empty.read_bytes() == b""


@pytest.mark.parametrize("plant", LINKS)
def test_a_claim_on_a_result_does_not_follow_links(tmp_path, precious, plant):
    store, key = ResultStore(tmp_path / "results"), result_key({"seed": 1})
    plant(tmp_path / "results" / "claims" / key, precious)

    def claim():
        with store.claim(key, wait=False):
            pass

    assert f"{key} is a" in refusal(claim)


def test_claims_are_not_made_in_another_folder(tmp_path, precious):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "claims").symlink_to(precious.parent)
    assert "claims is a link" in refusal(ResultStore, tmp_path / "results")


# -- blocks ----------------------------------------------------------------------------------------------------------


def test_blocks_are_not_written_to_or_removed_from_what_is_no_run(tmp_path, precious):
    pytest.importorskip("pyarrow")
    from cluster_runs import predict, write_pictures

    pictures, out = write_pictures(tmp_path / "pictures", 3), tmp_path / "out"
    out.mkdir()
    (out / "work").symlink_to(precious.parent)
    assert "work is a link" in refusal(predict, pictures, out)
    (out / "work").unlink()
    (out / "work").mkdir()
    (out / "work" / "thesis").touch()
    assert "work is not of a run" in refusal(predict, pictures, out)
    assert [path.name for path in out.rglob("*")] == ["work", "thesis"]
