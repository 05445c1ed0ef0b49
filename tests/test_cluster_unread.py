"""Blocks with samples that cannot be read now: tried again, by other workers, never written as done, never lost."""

import tarfile
from importlib.util import find_spec

import pytest

pa = pytest.importorskip("pyarrow")

import pyarrow.parquet as pq
import storages
from cluster_runs import BLOCK, CLASSES, contents, extraction_of, write_pictures
from storages import LaterGone, at_random, for_good, no_sleep, of_one_worker, serving, storage

from pta.cluster.blocks.loop import ThisProcess
from pta.cluster.ray.extraction import extract_blocks
from pta.cluster.ray.prediction import FeatureFolder, predict_blocks, predict_streams
from pta.cluster.ray.storage import Folder
from pta.data.sources.addresses import RemoteSample
from pta.data.sources.parquet import ParquetCell, _cells
from pta.door.patience import Patience
from pta.errors import MachineFailure, StateMismatch, UnreadableFile, UnreadableSample, UnreadSample
from pta.methods import create_adapter

COUNT = 90  # five blocks and a part
MISSING = range(20, 60)  # in the second, third and fourth block
QUICK = Patience(sleep=no_sleep)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures"), COUNT)


def told(pictures, patience=QUICK, give_up=False, **how):
    """What workers are told, with a patience of their own."""
    extraction = extraction_of(pictures, **how)
    vars(extraction)["reading"] = extraction.reading.changed(patience=patience, give_up_unread=give_up)
    return extraction


def extract(pictures, out, pool=None, **how):
    return extract_blocks(told(pictures, **how), pool or ThisProcess(), Folder(str(out)))


def predict(pictures, out, pool=None, source=None, **how):
    source = source or told(pictures, **how)
    adapter = create_adapter("pta", source.classifier() if callable(source.classifier) else source.classifier)
    return predict_blocks(source, adapter, pool or ThisProcess(), Folder(str(out)), 1e-6)


def by_key(listed, out, pool=None, **how):
    return predict_streams(told(listed, by="camera", **how), "tda", {}, pool or ThisProcess(), Folder(str(out)))


WORK = {"extract": (extract, "safetensors"), "predict": (predict, "parquet")}
both = pytest.mark.parametrize("work", WORK)
stop_and_skip = pytest.mark.parametrize("on_error", ["stop", "skip"])


@pytest.fixture(scope="module")
def whole(pictures, tmp_path_factory):
    """The files of runs without faults, by work."""
    made = {}
    for name, (run, ending) in WORK.items():
        for on_error in ("stop", "skip"):
            out = tmp_path_factory.mktemp(name)
            run(pictures, out, on_error=on_error)
            made[name, on_error] = contents(out, ending)
    return made


class Mount:
    """A fault of some pictures, until it is mounted again."""

    def __init__(self, gone=MISSING):
        self.gone = {f"{number:04d}.png" for number in gone}

    def __call__(self, key):
        if key.rpartition("/")[2] in self.gone:
            raise FileNotFoundError(2, "No such file or directory")


@both
@stop_and_skip
def test_a_mount_that_was_gone_is_taken_up_by_the_same_command(pictures, whole, tmp_path, work, on_error):
    (run, ending), out = WORK[work], tmp_path / "out"
    with pytest.raises(UnreadSample, match=r"40 samples could not be read \(0020\.png .*and 35 more") as ended:
        run(pictures, out, patience=storage(Mount()), on_error=on_error)
    assert ended.value.exit_code == 1
    features = out if work == "extract" else out / "work" / "features"
    assert len(contents(features, "safetensors")) == 3  # of six blocks
    assert not list(out.glob("0*.parquet"))
    done = run(pictures, out, on_error=on_error)
    if work == "extract":
        assert (done.encoded, done.failed) == (3 * BLOCK, ())
    assert contents(out, ending) == whole[work, on_error]


@both
@stop_and_skip
def test_a_storage_that_fails_now_and_then_changes_nothing(pictures, whole, tmp_path, work, on_error):
    run, ending = WORK[work]
    run(pictures, tmp_path / "out", patience=storage(at_random(0.05)), on_error=on_error)
    assert contents(tmp_path / "out", ending) == whole[work, on_error]


@both
@stop_and_skip
def test_a_storage_that_fails_for_good_ends_the_run_and_nothing_counts_as_done(
    pictures, whole, tmp_path, work, on_error
):
    (run, ending), out = WORK[work], tmp_path / "out"
    for _ in range(2):
        with pytest.raises(UnreadSample, match="90 samples could not be read"):
            run(pictures, out, patience=storage(for_good), on_error=on_error)
    run(pictures, out, on_error=on_error)
    assert contents(out, ending) == whole[work, on_error]


@pytest.mark.parametrize("work", [*WORK, "by_key"])
def test_a_run_that_gave_everything_up_failed_and_is_made_again(pictures, cameras, tmp_path, work):
    source, run = (cameras, by_key) if work == "by_key" else (pictures, WORK[work][0])
    with pytest.raises(UnreadSample, match=r"none of the 90 samples .* stale file handle"):
        run(source, tmp_path / "out", patience=storage(for_good), give_up=True)
    assert not run(source, tmp_path / "out").failed


def test_a_block_does_not_go_on_for_ever(pictures, tmp_path, monkeypatch):
    monkeypatch.setattr("pta.cluster.ray.extraction.MOST_UNREAD", 8)
    with pytest.raises(UnreadSample, match="48 samples"):
        extract(pictures, tmp_path / "out", patience=storage(for_good))


def rows_of(folder):
    return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("0*.parquet"))])


def test_samples_that_are_given_up_have_rows_without_a_label_and_with_the_reason(pictures, whole, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(UnreadSample):
        predict(pictures, out, patience=storage(Mount()))
    done = predict(pictures, out, patience=storage(Mount()), give_up=True)
    assert [number for number, _, _ in done.failed] == list(MISSING)
    rows = rows_of(out).to_pylist()
    assert [row["number"] for row in rows if row["label"] is None] == list(MISSING)
    assert {row["reason"] for row in rows if row["label"]} == {None}
    assert rows[20]["reason"] == "0020.png cannot be read: no such file or directory"
    assert predict(pictures, out, give_up=True) == done
    predict(pictures, out)  # which gives nothing up
    assert contents(out, "parquet") == whole["predict", "stop"]


def test_features_without_what_was_given_up_are_made_again_once_nothing_is(pictures, whole, tmp_path):
    out, labels = tmp_path / "out", tmp_path / "labels"
    done = extract(pictures, out, patience=storage(Mount()), give_up=True)
    assert (done.samples, len(done.failed)) == (COUNT - len(MISSING), len(MISSING))
    assert extract(pictures, out, give_up=True).encoded == 0
    predict(None, labels, source=FeatureFolder.find(str(out)))
    assert rows_of(labels)["label"].null_count == len(MISSING)
    with pytest.raises(UnreadSample, match="11 samples"):
        extract(pictures, out, patience=storage(Mount(range(21, 32))))
    with pytest.raises(UnreadableFile, match="is not finished"):  # two blocks are whole now
        FeatureFolder.find(str(out))
    assert extract(pictures, out).encoded == BLOCK
    assert contents(out, "safetensors") == whole["extract", "stop"]
    with pytest.raises(StateMismatch, match="another source"):
        predict(None, labels, source=FeatureFolder.find(str(out)))


def test_undecodable_pictures_are_not_given_up_and_unread_ones_not_skipped(tmp_path):
    damaged = write_pictures(tmp_path / "pictures", 3 * BLOCK)
    (damaged / "0005.png").write_bytes(b"no picture")
    gone = {"patience": storage(Mount(range(20, 22)))}
    with pytest.raises(UnreadableSample, match="--on-error skip"):
        extract(damaged, tmp_path / "stop", give_up=True, **gone)
    with pytest.raises(UnreadSample, match="2 samples could not be read"):
        extract(damaged, tmp_path / "skip", on_error="skip", **gone)
    done = extract(damaged, tmp_path / "skip", on_error="skip", give_up=True, **gone)
    assert [number for number, _, _ in done.failed] == [5, 20, 21]


# -- streams by key ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cameras(pictures, tmp_path_factory):
    """A list of the pictures, in four streams."""
    listed = tmp_path_factory.mktemp("listed") / "list.csv"
    lines = [f"{pictures}/{number:04d}.png,{number % 4}" for number in range(COUNT)]
    listed.write_text("path,camera\n" + "\n".join(lines))
    return listed


@stop_and_skip
def test_only_the_stream_of_an_unread_sample_stops(cameras, tmp_path, on_error):
    by_key(cameras, tmp_path / "whole", on_error=on_error)
    expected = contents(tmp_path / "whole", "parquet")
    out = tmp_path / "out"
    with pytest.raises(UnreadSample, match=r"1 sample could not be read \(.*0041\.png"):  # of the second stream
        by_key(cameras, out, patience=storage(Mount([41])), on_error=on_error)
    there = contents(out, "parquet")
    assert len(there) == len(expected) - 1
    assert there.items() <= expected.items()
    by_key(cameras, out, on_error=on_error)
    assert contents(out, "parquet") == expected


def test_a_stream_goes_on_without_what_was_given_up_and_is_made_again_once_nothing_is(cameras, tmp_path):
    by_key(cameras, tmp_path / "whole")
    out, gone = tmp_path / "out", {"patience": storage(Mount([41]))}
    done = by_key(cameras, out, give_up=True, **gone)
    assert [number for number, _, _ in done.failed] == [41]
    assert rows_of(out)["reason"].null_count == COUNT - 1
    assert by_key(cameras, out, give_up=True) == done
    by_key(cameras, out)
    assert contents(out, "parquet") == contents(tmp_path / "whole", "parquet")


@pytest.mark.parametrize("work", [*WORK, "by_key"])
def test_a_run_that_a_picture_has_stopped_goes_on_without_it_and_only_as_long_as_the_user_says_so(tmp_path, work):
    damaged = write_pictures(tmp_path / "pictures", 3 * BLOCK)
    (damaged / "0040.png").write_bytes(b"no picture")
    listed = damaged / "list.csv"
    listed.write_text("path,camera\n" + "".join(f"{number:04d}.png,{number % 2}\n" for number in range(3 * BLOCK)))
    run, ending = (by_key, "parquet") if work == "by_key" else WORK[work]
    for out in ("begun", "new"):
        if out == "begun":
            with pytest.raises(UnreadableSample, match=r"0040.*--on-error skip"):
                run(listed, tmp_path / out)
        assert [number for number, _, _ in run(listed, tmp_path / out, on_error="skip").failed] == [40]
        with pytest.raises(UnreadableSample, match=r"0040.*--on-error skip"):
            run(listed, tmp_path / out)
    assert contents(tmp_path / "begun", ending) == contents(tmp_path / "new", ending)


# -- real storages -----------------------------------------------------------------------------------------------------


def listed_at(address, folder, numbers=range(COUNT)):
    listed = folder / "list.csv"
    listed.write_text("path\n" + "".join(f"{address}/{number:04d}.png\n" for number in numbers))
    return listed


@pytest.mark.parametrize("failure", [403, 404, 429, 503, "short"])
def test_a_server_that_refuses_for_a_while_loses_nothing(pictures, whole, tmp_path, failure):
    pytest.importorskip("aiohttp")
    failing = {f"{number:04d}.png" for number in range(20, 24)}
    with serving(pictures, lambda name: failure if name in failing else 200) as address:
        listed, out = listed_at(address, tmp_path), tmp_path / "out"
        with pytest.raises(UnreadSample, match="4 samples could not be read"):
            extract(listed, out, on_error="skip")
        failing.clear()
        assert extract(listed, out, on_error="skip").encoded == BLOCK
    features = [load(path) for path in sorted(out.glob("0*.safetensors"))]
    assert features == [load_bytes(content) for content in whole["extract", "skip"].values()]


def load(path):
    return load_bytes(path.read_bytes())


def load_bytes(content):
    from safetensors.torch import load

    return load(content)["image_features"].tolist()


def test_rows_of_a_damaged_parquet_file_are_undecodable_and_those_of_a_short_read_are_unread(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": [bytes([row]) * 5000 for row in range(40)]}), path, row_group_size=20)
    content = path.read_bytes()
    assert ParquetCell(str(path), "x", 0, 3).read() == bytes([3]) * 5000

    class Cut:
        """A storage that gives half of what is asked for."""

        def __init__(self, address):
            self.file = path.open("rb")

        def __getattr__(self, name):
            return getattr(self.file, name)

        def read(self, most=-1):
            return self.file.read(most)[: most // 2] if most < 2**15 else self.file.read(most)

    _cells.cache_clear()
    monkeypatch.setattr("pta.data.sources.addresses._open", Cut)
    with pytest.raises(UnreadSample, match="ends too early"):
        ParquetCell(str(path), "x", 0, 3).read()
    monkeypatch.undo()
    path.write_bytes(content[:4] + b"\xff" * 300 + content[304:])
    with pytest.raises(UnreadableSample, match="x cannot be read"):
        ParquetCell(str(path), "x", 0, 4).read()


class Unsteady:
    """A filesystem that fails so many times."""

    def __init__(self, times, error):
        self.times, self.error = times, error

    def cat_file(self, path):
        self.times -= 1
        if self.times >= 0:
            raise self.error
        return b"content"


def test_a_folder_at_an_address_is_asked_again(monkeypatch):
    monkeypatch.setattr("pta.data.sources.addresses.USUAL_PATIENCE", QUICK)
    monkeypatch.setattr("pta.data.sources.addresses.filesystem", lambda address: (storage_there, "bucket"))
    storage_there = Unsteady(2, RuntimeError("503 Slow Down"))
    assert Folder("s3://bucket").read("about.json") == b"content"
    storage_there = Unsteady(9, RuntimeError("503 Slow Down"))
    with pytest.raises(MachineFailure, match=r"s3://bucket/about\.json cannot be read: 503"):
        Folder("s3://bucket").read("about.json")


def test_rows_of_a_file_that_is_away_for_a_moment_are_unread_and_other_blocks_are_made(pictures, tmp_path, monkeypatch):
    (folder := tmp_path / "source").mkdir()
    for first in (0, 48):
        rows = [(f"{pictures}/{number:04d}.png", "a" if number < 64 else "b") for number in range(first, first + 32)]
        columns = dict(zip(("path", "camera"), zip(*rows, strict=True), strict=True))
        pq.write_table(pa.table(columns), folder / f"{first}.parquet")
    for run, ending, count in ((extract, "safetensors", 2), (by_key, "parquet", 1)):
        run(folder, tmp_path / ending)
        mounted = LaterGone(folder / "0.parquet")
        monkeypatch.setattr("pta.cluster.ray.listing.Listing.write", mounted)
        with pytest.raises(
            UnreadSample, match=r"\d\d samples could not be read \(.*0\.parquet cannot be read: no such"
        ):
            run(folder, tmp_path / "again" / ending)
        monkeypatch.undo()
        mounted.away.rename(mounted.path)
        assert len(contents(tmp_path / "again" / ending, ending)) == count
        run(folder, tmp_path / "again" / ending)
        assert contents(tmp_path / "again" / ending, ending) == contents(tmp_path / ending, ending)


# -- Ray ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two():
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    from pta.cluster.ray.ray_pool import RayPool, connected

    with connected("local") as ray, RayPool(ray, 2, cpus=0.25) as pool:
        ray.cloudpickle.register_pickle_by_value(storages)  # which workers cannot import
        yield pool


@both
@pytest.mark.parametrize("on_error", ["stop", pytest.param("skip", marks=pytest.mark.extensive)])
def test_what_one_worker_cannot_read_another_does(pictures, whole, two, tmp_path, monkeypatch, work, on_error):
    monkeypatch.setattr("pta.cluster.ray.ray_pool._SECONDS", 3600)  # for the other worker to start
    (run, ending), note = WORK[work], tmp_path / "first"
    run(pictures, tmp_path / "out", two, patience=storage(of_one_worker(note)), on_error=on_error)
    assert note.is_symlink()
    assert contents(tmp_path / "out", ending) == whole[work, on_error]


@pytest.mark.parametrize("work", [*WORK, "by_key"])
def test_only_what_no_worker_can_read_is_given_up(pictures, cameras, two, tmp_path, monkeypatch, work):
    monkeypatch.setattr("pta.cluster.ray.ray_pool._SECONDS", 3600)  # for the other worker to start
    source, run = (cameras, by_key) if work == "by_key" else (pictures, WORK[work][0])
    of_one = of_one_worker(tmp_path / "first")

    def fault(key):
        if key.endswith("0041.png"):
            raise FileNotFoundError(2, "No such file or directory")
        of_one(key)

    done = run(source, tmp_path / "out", two, patience=storage(fault), give_up=True)
    assert [number for number, _, _ in done.failed] == [41]


@both
def test_what_no_worker_can_read_ends_the_run_and_others_blocks_are_kept(pictures, whole, two, tmp_path, work):
    (run, ending), out = WORK[work], tmp_path / "out"
    gone = {f"{number:04d}.png" for number in MISSING}

    def fault(key):
        if key in gone:
            raise OSError(5, "Input/output error")

    with pytest.raises(UnreadSample, match="40 samples could not be read"):
        run(pictures, out, two, patience=storage(fault))
    run(pictures, out, two)
    assert contents(out, ending) == whole[work, "stop"]


def test_the_command_ends_with_1_and_goes_on(pictures, pta, tmp_path, monkeypatch):
    from pta.cli import on_cluster

    listed = listed_at(write_pictures(tmp_path / "pictures", COUNT), tmp_path)
    here = lambda self, device, threads: NoPool()  # noqa: E731
    monkeypatch.setattr(on_cluster.OnCluster, "workers", here)
    away = (tmp_path / "pictures" / "0030.png").rename(tmp_path / "away")
    call = ("--classes", ",".join(CLASSES), "--model", "embedded", "--cluster", "local", "--block", BLOCK, "--out")
    for command in ("extract", "predict"):
        ended = pta(command, listed, *call, command)
        assert ended.returncode == 1
        assert "1 sample could not be read (" in ended.stderr
        assert not list((tmp_path / command).glob("0*"))
        given_up = pta(command, listed, *call, command, "--give-up-unread")
        assert given_up.returncode == 0, given_up.stderr
        assert f"{away.parent}/pictures/0030.png cannot be read: no such file" in given_up.stderr


@pytest.mark.parametrize("command", ["extract", "predict"])
@pytest.mark.parametrize("share", ["some", "all"])
def test_the_same_command_goes_on_whatever_was_away_when_it_listed(pta, tmp_path, monkeypatch, command, share):
    from pta.cli import on_cluster

    monkeypatch.setattr(on_cluster.OnCluster, "workers", lambda self, device, threads: NoPool())
    folder = write_pictures(tmp_path / "pictures", COUNT)
    listed, out = listed_at(folder, tmp_path), tmp_path / "out"
    fixed = ("--model", "embedded", "--batch", "8", "--cluster", "local", "--block", BLOCK, "--out", out)
    method = ("--method", "pta") if command == "predict" else ()
    call = (command, listed, "--classes", ",".join(CLASSES), *fixed, *method)
    gone = sorted(folder.iterdir())[0 if share == "all" else 80 :]

    def away():
        for path in gone:
            path.rename(tmp_path / path.name)

    def back():
        for path in gone:
            (tmp_path / path.name).rename(path)

    away()
    ended = [pta(*call).returncode for _ in range(2)]
    if share == "some":
        ended.append(pta(*call, "--give-up-unread").returncode)
    assert ended == [1, 1, 0][: len(ended)]
    back()
    done = pta(*call)
    assert done.returncode == 0, done.stderr
    reference = contents(out, {"extract": "safetensors", "predict": "parquet"}[command])
    assert len(reference) == 6
    away()
    assert pta(*call).returncode == 1 - (share == "all")  # where the driver sees nothing, what is finished is so
    assert pta(*call, "--give-up-unread").returncode == 0
    back()
    assert contents(out, {"extract": "safetensors", "predict": "parquet"}[command]) == reference
    changed = folder / "0003.png"
    changed.write_bytes((folder / "0004.png").read_bytes())
    assert pta(*call).returncode == (0 if share == "all" else 2)  # it was not seen at first


def test_a_mount_that_only_workers_have_is_no_reason_to_end(tmp_path):
    listed = listed_at("/mount/of/workers", tmp_path)
    assert len(extraction_of(listed).listing) == COUNT


class NoPool:
    """This process, in the place of workers."""

    def __enter__(self):
        return "cpu", ThisProcess()

    def __exit__(self, *error):
        pass


@pytest.mark.skipif(find_spec("aiohttp") is None, reason="aiohttp is not installed")
def test_a_server_that_gives_more_than_a_member_of_an_archive_gives_no_sample(tmp_path):
    (tmp_path / "a.tar").write_bytes(bytes(4096))
    with serving(tmp_path, lambda name: 200) as address:  # it does not know ranges
        sample = RemoteSample(f"{address}/a.tar", "a.tar/x.png", 512, 100)
        with pytest.raises(UnreadSample, match=r"more came than was asked for, 4,096 of 100 bytes"):
            sample.read()


def write_tar(path, pictures):
    with tarfile.open(path, "w") as archive:
        for picture in pictures:
            archive.add(picture, picture.name)


def write_table(path, pictures):
    content = {"key": [one.name for one in pictures], "image": [one.read_bytes() for one in pictures]}
    pq.write_table(pa.table({**content, "camera": [str(int(one.stem) % 2) for one in pictures]}), path)


@pytest.mark.parametrize(
    ("write", "name", "work"),
    [(write_tar, "a.tar", "extract"), (write_table, "a.parquet", "extract"), (write_table, "a.parquet", "by_key")],
)
def test_a_block_of_an_archive_that_is_replaced_meanwhile_is_not_written(pictures, tmp_path, write, name, work):
    source, files = tmp_path / name, sorted(pictures.glob("*.png"))
    run, ending = (by_key, "parquet") if work == "by_key" else WORK[work]
    write(source, files[:32])

    def replaced(key):
        if key.endswith("0021.png"):  # in the second block, and the second stream
            write(source, files[40:72])

    with pytest.raises(UnreadSample, match=f"{name} is away, or has changed since it was listed"):
        run(source, tmp_path / "out", patience=storage(replaced), on_error="skip")
    assert len(contents(tmp_path / "out", ending)) == 1
    with pytest.raises(StateMismatch, match="another listing"):
        run(source, tmp_path / "out", on_error="skip")
