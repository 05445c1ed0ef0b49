"""`pta corrupt-points`: files of clouds in, the files of a corrupted set out, or nothing."""

import json

import h5py
import numpy as np
import pytest
from clouds import write_clouds
from refusals import refusal

from pta.data import open_samples
from pta.data.shifts.point_files import corrupt_files
from pta.data.shifts.points import EVERY, corrupt_as_published, corrupt_points
from pta.door.points.h5 import StoredClouds, read_h5, write_h5
from pta.errors import FileInUse

NAMES = ["clean.h5", *(f"{corruption}_{severity}.h5" for corruption, severity in EVERY)]


@pytest.fixture
def sources(tmp_path):
    return [write_clouds(tmp_path / f"test{at}.h5", count=3 + at, points=620) for at in range(2)]


def stored(sources):
    clouds, labels = zip(*((read_h5(path).clouds[:, :600], read_h5(path).labels) for path in sources), strict=True)
    return np.concatenate(clouds), np.concatenate(labels)


def test_the_legacy_files_are_drawn_in_the_published_order(sources, tmp_path):
    told = []
    files = corrupt_files(sources, tmp_path / "out", seed=None, points=600, on_progress=lambda *done: told.append(done))
    assert [path.name for path in files] == NAMES
    assert told == [(done, 36) for done in range(1, 37)]
    clean, labels = stored(sources)
    np.testing.assert_array_equal(read_h5(files[0]).clouds, clean)
    for path, (_, _, expected) in zip(files[1:], corrupt_as_published(clean), strict=True):
        found = read_h5(path)
        np.testing.assert_array_equal(found.clouds, expected)
        assert found.clouds.dtype == expected[0].dtype
        np.testing.assert_array_equal(found.labels, labels)
        with h5py.File(path) as file:
            assert file["label"].shape == (7, 1), "as published"


def test_otherwise_each_cloud_is_drawn_by_its_number_and_files_are_equal_byte_by_byte(sources, tmp_path):
    files = corrupt_files(sources, tmp_path / "out", seed=5, points=600)
    clean, _ = stored(sources)
    for path, (corruption, severity) in zip(files[1:], EVERY, strict=True):
        expected = [corrupt_points(one, corruption, severity, seed=5, number=at) for at, one in enumerate(clean)]
        np.testing.assert_array_equal(read_h5(path).clouds, expected)
    before = [path.read_bytes() for path in files]
    again = corrupt_files(sources, tmp_path / "out", seed=5, points=600, replace=True)
    assert [path.read_bytes() for path in again] == before
    assert len(open_samples(files[3], class_names=["a", "b", "c"])) == 7


def spoil(path, change):
    found = read_h5(path)
    write_h5(path, StoredClouds(change(found.clouds.copy()), found.labels))


def with_nan(clouds):
    clouds[1, 7, 2] = np.nan
    return clouds


def with_one_point(clouds):
    clouds[2] = 1
    return clouds


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (with_nan, "cloud 1: point 7 is NaN"),
        (with_one_point, "cloud 2: all 600 points are equal"),
        (lambda clouds: clouds[:, :500], "cloud 0 has 500 points, fewer than 600"),
    ],
)
def test_a_cloud_that_cannot_be_used_is_named_and_nothing_is_written(change, complaint, sources, tmp_path):
    spoil(sources[1], change)
    assert refusal(corrupt_files, sources, tmp_path / "out", points=600).startswith(f"{sources[1]}: {complaint}")
    assert not (tmp_path / "out").exists()


def test_clouds_with_too_few_points_for_a_corruption_are_refused(sources, tmp_path):
    said = refusal(corrupt_files, sources, tmp_path / "out", points=500)
    assert f"{sources[0]}: cloud 0: 500 points are too few for dropout_local of severity 4" in said


def test_files_that_exist_are_kept_unless_they_may_be_replaced(sources, tmp_path):
    kept = tmp_path / "jitter_3.h5"
    kept.write_text("mine")
    assert f"{kept} exists; choose another folder" in refusal(corrupt_files, sources, tmp_path, points=600)
    assert kept.read_text() == "mine"
    assert not (tmp_path / "clean.h5").exists()
    assert "no files of clouds" in refusal(corrupt_files, [], tmp_path / "out")


def test_a_second_writer_is_refused(sources, tmp_path):
    def meanwhile(done, total):
        with pytest.raises(FileInUse):
            corrupt_files(sources, tmp_path / "out", points=600, replace=True)

    corrupt_files(sources[:1], tmp_path / "out", points=600, on_progress=meanwhile)


def test_the_command_says_what_it_made_or_what_is_wrong(pta, sources, tmp_path):
    out = tmp_path / "out"
    done = pta("corrupt-points", *sources, out, "--points", 600, "--legacy", "--json", "-")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["seed"], record["points"], len(record["files"])) == (None, 600, 36)
    assert sorted(path.name for path in out.iterdir()) == sorted(NAMES)
    done = pta("corrupt-points", *sources, tmp_path / "other")
    assert (done.returncode, "cloud 0 has 620 points, fewer than 1024" in done.stderr) == (2, True)
    done = pta("corrupt-points", sources[0], tmp_path / "third", "--points", 600)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'third'}: 36 files\n")
