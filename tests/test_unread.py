"""What cannot be read now is told from what cannot be decoded, asked for again, and never lost without a word."""

import csv
import errno
import json
import os
import tarfile
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from photos import write_classes, write_photos
from storages import at_random, for_good, no_sleep, storage

from pta.data.features import read_about
from pta.data.open import find_samples, open_samples
from pta.data.prompts import build_classifier
from pta.data.sample_set import SampleFile, TarMember
from pta.data.sources.addresses import find_files
from pta.door.patience import MOST_UNREAD, Patience, Unread, reading
from pta.errors import MachineFailure, StateMismatch, UnreadableFile, UnreadableSample, UnreadSample
from pta.models import load_encoder
from pta.run.classifier import Classifier
from pta.run.extract import extract
from pta.run.reading import Reading
from pta.run.saved_stream import Progress, skip_taken

COUNT = 40
MISSING = range(10, 14)  # of the photos, in their order; in the second batch and shard of eight


@pytest.fixture
def photos(tmp_path):
    write_photos(tmp_path / "photos", COUNT)
    return tmp_path / "photos"


def paths_of(photos):
    return sorted(photos.glob("*/*.jpg"))


def hide(photos):
    """Files that are gone, as with a mount, and what brings them back."""
    away = [path.rename(f"{path}.away") for path in paths_of(photos)[MISSING.start : MISSING.stop]]
    return lambda: [path.rename(path.with_suffix("")) for path in away]


@contextmanager
def changed(path):
    """A file that has another time of its last change, for a while."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    yield
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


# -- what counts as unread ---------------------------------------------------------------------------------------------


def refused(error):
    with pytest.raises((UnreadSample, UnreadableSample)) as caught, reading("x"):
        raise error
    return caught.type


@pytest.mark.parametrize("name", ["ENOENT", "EIO", "ESTALE", "EACCES", "ETIMEDOUT", "ENOTCONN", "EMFILE"])
def test_an_error_of_the_system_is_of_the_moment(name):
    assert refused(OSError(getattr(errno, name), "")) is UnreadSample


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError(), ValueError("whatever a filesystem raises")])
def test_so_is_any_other_error_of_a_storage(error):
    assert refused(error) is UnreadSample


@pytest.mark.parametrize("name", ["ELOOP", "ENAMETOOLONG"])
def test_a_name_that_leads_nowhere_is_of_the_sample(name):
    assert refused(OSError(getattr(errno, name), "")) is UnreadableSample


def test_a_short_read_is_unread_and_bytes_that_came_whole_are_not(photos, tmp_path, monkeypatch):
    path = paths_of(photos)[0]
    member = TarMember(path, "a.tar/x", 0, path.stat().st_size + 1)
    with pytest.raises(UnreadSample, match=r"a\.tar/x cannot be read: it ends too early, 1?[0-9,]+ of"):
        member.read()
    whole, read = SampleFile(path, "x").read(), os.read
    monkeypatch.setattr("pta.door.files.os.read", lambda file, size: read(file, size if size < 9 else 9)[: size - 9])
    with pytest.raises(UnreadSample, match="ends too early"):
        SampleFile(path, "x").read()
    monkeypatch.undo()
    path.write_bytes(whole[:50])
    with pytest.raises(UnreadableSample, match="cannot be decoded"):
        Classifier("embedded", ["bag", "shirt"], cache=None)(str(path))


def test_a_classifier_says_that_a_file_is_not_there(tmp_path):
    with pytest.raises(UnreadSample, match="no such file") as missing:
        Classifier("embedded", ["bag", "shirt"], cache=None)(str(tmp_path / "none.jpg"))
    assert missing.value.exit_code == 1


# -- patience ----------------------------------------------------------------------------------------------------------


class Storage:
    """Fails so many times with an error, then gives b"x"."""

    def __init__(self, error, times):
        self.error, self.times, self.asked = error, times, 0

    def __call__(self):
        self.asked += 1
        if self.asked <= self.times:
            with reading("x"):
                raise self.error
        return b"x"


IO_ERROR = OSError(errno.EIO, "Input/output error")


@pytest.fixture
def patience():
    patience = Patience((1.0, 10.0, 100.0), lambda seconds: patience.slept.append(seconds))
    patience.slept = []
    return patience


def test_what_fails_is_asked_for_again_after_growing_waits(patience):
    storage = Storage(IO_ERROR, 3)
    assert patience.ask(storage) == b"x"
    assert storage.asked == 4
    assert all(0.5 <= slept / usual <= 1.5 for slept, usual in zip(patience.slept, patience.waits, strict=True))


@pytest.mark.parametrize("error", [FileNotFoundError(errno.ENOENT, "gone"), PermissionError(errno.EACCES, "no")])
def test_what_is_absent_is_asked_for_once_more_without_waiting(patience, error):
    storage = Storage(error, 9)
    with pytest.raises(UnreadSample):
        patience.ask(storage)
    assert (storage.asked, patience.slept) == (2, [])
    assert patience.ask(Storage(error, 1)) == b"x"


@pytest.mark.parametrize(("status", "asked"), [(403, 2), (404, 2), (429, 4), (500, 4), (503, 4)])
def test_a_status_of_http_decides_whether_waiting_helps(patience, status, asked):
    error = Exception("refused")
    error.status = status
    storage = Storage(error, 9)
    with pytest.raises(UnreadSample):
        patience.ask(storage)
    assert storage.asked == asked
    assert len(patience.slept) == asked - 1 - (asked == 2)


def test_a_storage_that_is_gone_costs_one_wait_until_something_comes(patience):
    for _ in range(5):
        with pytest.raises(UnreadSample):
            patience.ask(Storage(IO_ERROR, 9))
    assert len(patience.slept) == 3
    patience.ask(Storage(IO_ERROR, 0))
    patience.ask(Storage(IO_ERROR, 2))
    assert len(patience.slept) == 5


def test_many_unread_samples_are_counted_and_the_first_are_named():
    found = Unread.of(f"{number} is gone" for number in range(3)) + Unread.of(f"{number} too" for number in range(40))
    assert str(found.error()).startswith(
        "43 samples could not be read (0 is gone; 1 is gone; 2 is gone; 0 too; 1 too; "
    )
    assert "and 38 more" in str(found.error())
    assert not Unread()


# -- extract -----------------------------------------------------------------------------------------------------------


def run(photos, out, on_error="stop", patience=None, during=lambda done: None, **how):
    encoder, images = load_encoder("embedded"), open_samples(photos)
    classifier = build_classifier(encoder, images.class_names, ("a photo of a {}.",))
    given = Reading(batch=8, patience=patience or Patience(sleep=no_sleep), **how)
    return extract(*(images, encoder, classifier, out, given), shard=8, on_error=on_error, on_progress=during)


@pytest.fixture
def whole(photos, tmp_path):
    """The file of a run without faults."""
    run(photos, tmp_path / "whole.safetensors")
    return (tmp_path / "whole.safetensors").read_bytes()


class Mount:
    """Photos that are gone from the first time that progress is told."""

    def __init__(self, photos):
        self.photos, self.back = photos, None

    def __call__(self, done):
        self.back = self.back or hide(self.photos)


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_mount_that_was_gone_is_taken_up_by_the_same_call(photos, tmp_path, whole, on_error):
    out, mount = tmp_path / "f.safetensors", Mount(photos)
    with pytest.raises(
        UnreadSample, match=r"4 samples could not be read .*no such file.*the same command again"
    ) as gone:
        run(photos, out, on_error, during=mount)
    assert gone.value.exit_code == 1
    assert all(path.name.removesuffix(".jpg.away") in str(gone.value) for path in photos.glob("*/*.away"))
    assert not out.exists()
    assert len(list(tmp_path.glob("f.safetensors.parts/0*"))) == 4  # of five shards
    mount.back()
    assert run(photos, out, on_error).encoded == 8
    assert out.read_bytes() == whole


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_storage_that_fails_now_and_then_changes_nothing(photos, tmp_path, whole, on_error):
    assert run(photos, tmp_path / "f.safetensors", on_error, storage(at_random(0.05))).skipped == ()
    assert (tmp_path / "f.safetensors").read_bytes() == whole


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_storage_that_fails_for_good_leaves_nothing_that_counts_as_done(photos, tmp_path, whole, on_error):
    with pytest.raises(UnreadSample, match=r"40 samples could not be read .*stale file handle; .*and 35 more"):
        run(photos, tmp_path / "f.safetensors", on_error, storage(for_good))
    assert run(photos, tmp_path / "f.safetensors", on_error).encoded == COUNT
    assert (tmp_path / "f.safetensors").read_bytes() == whole


def test_a_run_ends_after_so_many_unread_samples(photos, tmp_path, monkeypatch):
    monkeypatch.setattr("pta.run.extract.MOST_UNREAD", 8)
    with pytest.raises(UnreadSample, match="8 samples"):
        run(photos, tmp_path / "f.safetensors", patience=storage(for_good))
    assert MOST_UNREAD > 40


def test_photos_that_are_not_there_at_the_start_are_named_before_any_work(photos, tmp_path, whole, pta):
    listed = tmp_path / "list.csv"
    listed.write_text("path,label\n" + "".join(f"{path},{path.parent.name}\n" for path in paths_of(photos)))
    call = ["extract", listed, "--model", "embedded", "--batch", "8", "--out", "f.safetensors"]
    back = hide(photos)
    refused = pta(*call)
    assert refused.returncode == 1
    assert "pta: 4 samples could not be read (" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not (tmp_path / "f.safetensors").exists()
    given_up = pta(*call[:-1], "less.safetensors", "--give-up-unread", "--json", "-")
    assert given_up.returncode == 0, given_up.stderr
    assert given_up.stderr.count("given up: ") == 4
    assert len(json.loads(given_up.stdout)["given_up"]) == 4
    back()
    assert pta(*call).returncode == 0
    assert read_about(tmp_path / "f.safetensors")["count"] == COUNT


def test_samples_are_given_up_only_if_the_user_says_so(photos, tmp_path, whole):
    out, mount = tmp_path / "f.safetensors", Mount(photos)
    with pytest.raises(UnreadSample):
        run(photos, out, during=mount)
    mount.back()
    mount = Mount(photos)
    done = run(photos, out, during=mount, give_up_unread=True)
    assert (done.samples, done.encoded, len(done.given_up), done.skipped) == (36, 8, 4, ())
    assert read_about(out)["given_up"] == list(done.given_up)
    mount.back()
    assert run(photos, out, give_up_unread=True).encoded == 0
    with pytest.raises(StateMismatch, match=r"features without 4 samples that were given up.*--replace"):
        run(photos, out)
    assert read_about(out)["count"] == 36


@pytest.mark.parametrize("at_first", [True, False])
def test_the_same_list_goes_on_whichever_of_two_starts_did_not_see_some_photos(photos, tmp_path, whole, at_first):
    listed, out, mount = tmp_path / "list.csv", tmp_path / "f.safetensors", Mount(photos)
    listed.write_text("path,label\n" + "".join(f"{path},{path.parent.name}\n" for path in paths_of(photos)))

    def killed(done):
        if done > 16:
            raise KeyboardInterrupt

    if at_first:
        mount(0)
        with pytest.raises(KeyboardInterrupt):
            run(listed, out, during=killed, give_up_unread=True)
        mount.back()
        with changed(paths_of(photos)[0]), pytest.raises(StateMismatch, match="unfinished extraction of other samples"):
            run(listed, out)
        assert run(listed, out).encoded == 24  # two shards that were not begun, and the one without photos
    else:
        with pytest.raises(UnreadSample):
            run(listed, out, during=mount)
        done = run(listed, out, give_up_unread=True)  # as the error says
        assert (done.samples, done.encoded, len(done.given_up)) == (36, 8, 4)
        mount.back()
        with pytest.raises(StateMismatch, match="without 4 samples that were given up"):
            run(listed, out)


def test_shards_with_samples_that_were_given_up_are_made_again_once_they_are_not(photos, tmp_path, whole):
    out, mount = tmp_path / "f.safetensors", Mount(photos)

    def killed(done):
        mount(done)
        if done > 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(photos, out, during=killed, give_up_unread=True)
    mount.back()
    run(photos, out)
    assert out.read_bytes() == whole


# -- predict -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def predict(pta, photos, tmp_path):
    """`pta predict` of a list of the photos."""
    listed = tmp_path / "list.csv"
    listed.write_text("path\n" + "".join(f"{path}\n" for path in paths_of(photos)))
    fixed = ("--classes", write_classes(tmp_path / "classes.txt"), "--model", "embedded", "--batch", "8")
    return lambda name, *more: pta(
        *("predict", listed, *fixed, "--resume", "--state", f"{name}.state", "--out", f"{name}.csv", *more)
    )


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_stream_ends_before_an_unread_photo_and_the_same_command_goes_on_there(predict, photos, tmp_path, on_error):
    assert predict("whole", "--on-error", on_error).returncode == 0
    back = hide(photos)
    ended = [predict("ended", "--on-error", on_error) for _ in range(2)]
    assert [done.returncode for done in ended] == [1, 1]
    assert f"{paths_of(photos)[9].parent.parent}" in ended[0].stderr
    assert (
        "no such file or directory; run the same command again when it can be read, or use --give-up" in ended[0].stderr
    )
    assert "(--state with --resume goes on there)" in ended[0].stderr
    rows = (tmp_path / "ended.csv").read_bytes()
    assert (tmp_path / "whole.csv").read_bytes().startswith(rows)
    assert 0 < len(rows_of(tmp_path / "ended.csv")) <= MISSING.start  # whole batches before it
    back()
    assert predict("ended", "--on-error", on_error).returncode == 0
    assert (tmp_path / "ended.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert learned(tmp_path / "ended.state") == learned(tmp_path / "whole.state")


def learned(state):
    from pta.methods import load_adapter

    return {name: tensor.tolist() for name, tensor in load_adapter(state).state().items()}


@pytest.mark.parametrize("is_back", [True, False])
def test_a_stream_does_not_go_on_past_an_unread_photo_that_is_no_longer_listed(pta, photos, tmp_path, is_back):
    path = paths_of(photos)[MISSING.start]
    path.rename(tmp_path / "away.jpg")
    path.symlink_to(tmp_path / "mount" / "away.jpg")
    given = ("--classes", write_classes(tmp_path / "classes.txt"), "--model", "embedded", "--batch", "8")
    call = partial(pta, "predict", photos, *given, "--resume", "--state", "a.state", "--out", "a.csv")
    assert call().returncode == 1
    rows = (tmp_path / "a.csv").read_bytes()
    path.unlink()
    for _ in range(2):
        ended = call()
        assert ended.returncode == 1
        assert f"({path} is not there any more); run the same command again" in ended.stderr
        assert (tmp_path / "a.csv").read_bytes() == rows
    if is_back:
        (tmp_path / "away.jpg").rename(path)
    assert call(*([] if is_back else ["--give-up-unread"])).returncode == 0
    assert len(rows_of(tmp_path / "a.csv")) == COUNT - (not is_back)


def test_a_photo_that_a_list_names_twice_may_be_unread_the_second_time():
    listed, progress = [SampleFile(Path(key), key) for key in "aba"], Progress("", "")
    progress.add("ab")
    progress.unread = "a"
    rest, found = skip_taken(listed, progress.record(None), Path("a.state"))
    assert (next(rest).key, found.unread) == ("a", "a")


def test_a_photo_that_is_given_up_is_a_row_without_a_label_and_with_the_reason(predict, photos, tmp_path):
    missing = [str(path) for path in paths_of(photos)[MISSING.start : MISSING.stop]]
    hide(photos)
    done = predict("all", "--give-up-unread")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("given up: ") == 4
    rows = rows_of(tmp_path / "all.csv")
    assert len(rows) == COUNT
    assert [row["path"] for row in rows if not row["label"]] == missing
    assert all(("no such file" in row["reason"]) == (row["path"] in missing) for row in rows)
    assert predict("begun").returncode == 1
    assert predict("begun", "--give-up-unread").returncode == 0
    without = [{name: cell for name, cell in row.items() if name != "reason"} for row in rows]
    assert rows_of(tmp_path / "begun.csv") == without  # its header was written before


def test_a_row_of_json_has_the_reason_too(pta, photos, tmp_path):
    listed, classes = tmp_path / "list.csv", write_classes(tmp_path / "classes.txt")
    listed.write_text("path\n" + "".join(f"{path}\n" for path in paths_of(photos)))
    hide(photos)
    call = partial(pta, "predict", listed, "--classes", classes, "--model", "embedded", "--shadow")
    done = call("--give-up-unread", "--batch", "2")  # a batch without any photo is among them
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == COUNT
    assert [row["path"] for row in rows if row["label"] is None] == [row["path"] for row in rows if "reason" in row]
    assert {tuple(row) for row in rows if "reason" not in row} == {tuple(rows[MISSING.start])[:-1]}


def test_paths_that_are_piped_end_at_one_that_cannot_be_read(pta, photos, tmp_path):
    paths = [str(path) for path in paths_of(photos)[:9]]
    content = "\n".join([*paths[:5], "none.jpg", *paths[5:]]).encode()
    call = ("predict", "-", "--classes", write_classes(tmp_path / "classes.txt"), "--model", "embedded")
    ended = pta(*call, stdin=content)
    assert (ended.returncode, ended.stdout.count("\n")) == (1, 5)
    assert "none.jpg cannot be read: no such file" in ended.stderr
    assert pta(*call, "--give-up-unread", stdin=content).stdout.count("\n") == 10


def test_a_source_that_does_not_exist_is_the_user_s_mistake(pta):
    for command in (("predict", "none", "--classes", "bag,shirt"), ("extract", "./none", "--out", "f.safetensors")):
        done = pta(*command, "--model", "embedded", "--give-up-unread")
        assert done.returncode == 2
        assert "no such file or folder" in done.stderr


@pytest.mark.parametrize("pattern", ["", "/*/*.jpg", "/**/*.jpg"])
def test_a_folder_that_is_a_link_to_a_mount_that_is_gone_is_not_an_empty_one(photos, tmp_path, pattern):
    folder = paths_of(photos)[0].parent
    folder.rename(tmp_path / "mount")
    folder.symlink_to(tmp_path / "mount")
    source = f"{photos}{pattern}"
    found = find_samples([source])
    assert len(found) == COUNT
    (tmp_path / "mount").rename(tmp_path / "away")
    for opened in (find_samples, open_samples)[: 1 if pattern else 2]:
        with pytest.raises(MachineFailure, match=f"cannot list {folder}: no such file or directory; run the same"):
            opened([source] if opened is find_samples else source)
    (tmp_path / "away").rename(tmp_path / "mount")
    assert [one.key for one in find_samples([source])] == [one.key for one in found]


@pytest.mark.parametrize("pattern", ["", "/*/*.jpg", "/**/*.jpg", "/*/photo.jpg"])
def test_a_link_that_leads_nowhere_is_passed_over_if_it_has_the_name_of_another_file(photos, pattern):
    lone = paths_of(photos)[0]
    lone.rename(lone.with_name("photo.jpg"))
    found = [one.key for one in find_samples([f"{photos}{pattern}"])]
    for name in ("README.md", "labels.csv", "a.TXT", "b.json", "c.heic", "self", *(["d.jpg"] if pattern else [])):
        (photos / name).symlink_to("self" if name == "self" else ".git/annex/objects/gone")
    assert [one.key for one in find_samples([f"{photos}{pattern}"]) if one.key != f"{photos}/d.jpg"] == found
    (photos / "dataset.v2").symlink_to("gone")
    with pytest.raises(MachineFailure, match=r"cannot list .*dataset\.v2"):
        find_samples([f"{photos}{pattern}"])


def test_a_pattern_takes_the_path_with_the_fewest_links(photos):
    found = [one.key for one in find_samples([f"{photos}/**/*.jpg"])]
    for name in ("0", "z"):
        (photos / name).symlink_to(paths_of(photos)[0].parent)
        assert [one.key for one in find_samples([f"{photos}/**/*.jpg"])] == found


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("pattern", ["*/*.jpg", "**/*.jpg", "*/photo.jpg"])
def test_a_folder_that_cannot_be_listed_now_is_not_passed_over_by_a_pattern(photos, monkeypatch, code, pattern):
    away = str(paths_of(photos)[0].parent)

    def failing(real):
        def call(path, **how):
            if str(path).startswith(away):
                raise OSError(code, os.strerror(code), path)
            return real(path, **how)

        return call

    for name in ("scandir", "stat"):
        monkeypatch.setattr(os, name, failing(getattr(os, name)))
    with pytest.raises(MachineFailure, match=os.strerror(code).lower()):
        find_samples([f"{photos}/{pattern}"])


def test_an_archive_that_is_a_link_to_a_mount_that_is_gone_is_unread(photos, tmp_path):
    for number, path in enumerate(paths_of(photos)[:2]):
        with tarfile.open(tmp_path / f"{number}.tar", "w") as archive:
            archive.add(path, path.name)
    (tmp_path / "1.tar").rename(tmp_path / "away")
    (tmp_path / "1.tar").symlink_to(tmp_path / "mount" / "1.tar")
    with pytest.raises(UnreadSample, match=r"1\.tar cannot be read: no such file"):
        open_samples(f"{tmp_path}/*.tar")


@pytest.fixture
def closed(tmp_path, monkeypatch):
    """A link into a folder that this user may not read."""
    real, link = os.stat, tmp_path / "closed.tar"
    link.symlink_to(tmp_path / "folder" / "a.tar")

    def stat(path, *, follow_symlinks=True, **how):
        if str(path) == str(link) and follow_symlinks:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, follow_symlinks=follow_symlinks, **how)

    monkeypatch.setattr(os, "stat", stat)
    return link


def test_a_match_behind_a_closed_folder_is_an_unread_sample(closed, tmp_path):
    assert [one.key for one in find_samples([f"{tmp_path}/*.tar"])] == [str(closed)]


@pytest.mark.parametrize("name", ["closed.tar", "*.tar"])
def test_an_archive_behind_a_closed_folder_is_one_line(closed, tmp_path, name):
    with pytest.raises(UnreadableFile, match=r"tar cannot be reached: permission denied"):
        find_files(f"{tmp_path}/{name}", "shard")


def test_a_list_that_ends_too_early_is_not_a_shorter_list(photos, tmp_path, monkeypatch):
    listed = tmp_path / "list.csv"
    listed.write_text("path\n" + "".join(f"{path}\n" for path in paths_of(photos)))
    whole = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: whole(path)[:200])
    with pytest.raises(UnreadSample, match=r"list\.csv cannot be read: it ends too early, 200 of"):
        find_samples([listed])


def test_undecodable_photos_are_skipped_as_before_and_not_given_up(predict, photos, tmp_path):
    paths_of(photos)[20].write_bytes(b"no picture")
    stopped = predict("stopped", "--give-up-unread")
    assert stopped.returncode == 2
    assert "--on-error skip" in stopped.stderr
    done = predict("skipped", "--on-error", "skip")
    assert (done.returncode, len(rows_of(tmp_path / "skipped.csv"))) == (0, COUNT - 1)


def test_rows_come_in_the_order_of_the_photos(predict, photos, tmp_path):
    hide(photos)
    paths_of(photos)[20].write_bytes(b"no picture")
    predict("all", "--give-up-unread", "--on-error", "skip")
    found = [row["path"] for row in rows_of(tmp_path / "all.csv")]
    assert all(one < other for one, other in pairwise(found))
