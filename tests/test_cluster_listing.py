"""What is listed and how it is cut: parquet by reference, streams, and blocks that follow the workers."""

import json
import os
from itertools import pairwise

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")

import pyarrow.parquet as pq
import torch
from cluster_runs import CLASSES, contents, extract, extraction_of, predict, write_pictures

from pta.cluster.blocks.loop import ThisProcess
from pta.cluster.ray.listing import number_samples, usual_block
from pta.cluster.ray.prediction import predict_streams
from pta.cluster.ray.storage import Folder, kept_block
from pta.core.modality import IMAGES
from pta.data.features import load_features
from pta.data.sources.parquet import RowGroups
from pta.data.sources.table import list_samples
from pta.errors import InvalidParameter, InvalidSamples, StateMismatch, UnreadableFile

COUNT = 70


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures"), COUNT)


@pytest.fixture(scope="module")
def features(pictures, tmp_path_factory):
    """What the folder of the pictures gives."""
    out = tmp_path_factory.mktemp("features")
    extract(pictures, out)
    return contents(out, "safetensors")


def write_parquet(path, columns, size=9):
    pq.write_table(pa.table(columns), path, row_group_size=size)
    return path


def paths_of(pictures, numbers=range(COUNT)):
    return [str(pictures / f"{number:04d}.png") for number in numbers]


def rows_of(listing, folder):
    """All rows as workers read them."""
    listing.write(Folder(str(folder)))
    reader = listing.reader(Folder(str(folder)))
    return [reader.read(block, rows) for block, rows in enumerate(listing.blocks)]


def listed(source, by=None, size=16):
    return number_samples(list_samples(str(source), IMAGES, by), None, labelled=False).cut(size)


@pytest.mark.parametrize("seed", range(5))
def test_any_numbers_in_any_files_give_the_rows_of_a_sort(tmp_path, seed):
    dice = np.random.default_rng(seed)
    count = int(dice.integers(1, 300))
    numbers, keys = dice.permutation(count), np.array([f"{row}.png" for row in range(count)])
    streams = dice.integers(0, 7, count).astype(str)
    cuts = [0, *sorted(dice.integers(0, count + 1, 2).tolist()), count]
    for part, (first, last) in enumerate(pairwise(cuts)):
        columns = {"path": keys[first:last], "number": numbers[first:last], "camera": streams[first:last]}
        write_parquet(tmp_path / f"{part}.parquet", columns, int(dice.integers(1, 40)))
    one = rows_of(listed(tmp_path), tmp_path / "one")
    assert [int(number) for rows in one for number in rows.numbers] == list(range(count))
    assert [sample.key for rows in one for sample in rows.samples] == keys[np.argsort(numbers)].tolist()
    several = rows_of(listed(tmp_path, "camera"), tmp_path / "several")
    expected = sorted(range(count), key=lambda row: (streams[row], numbers[row]))
    assert [stream for rows in several for stream in rows.streams] == streams[expected].tolist()
    assert [int(number) for rows in several for number in rows.numbers] == numbers[expected].tolist()
    for before, after in pairwise(several):
        assert before.streams[-1] != after.streams[0]  # a file holds whole streams


def test_parquet_is_listed_without_reading_a_row(pictures, tmp_path, monkeypatch):
    source = write_parquet(tmp_path / "a.parquet", {"path": paths_of(pictures)})
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", None)
    monkeypatch.setattr(pq.ParquetFile, "read", None)
    assert len(listed(source)) == COUNT


@pytest.mark.parametrize("labelled", [False, True])
def test_labels_by_reference_are_those_of_a_table(pictures, tmp_path, labelled):
    labels = [CLASSES[number % 3] for number in range(COUNT)]
    source = write_parquet(tmp_path / "a.parquet", {"path": paths_of(pictures), "label": labels})
    (tmp_path / "a.csv").write_text(
        "path,label\n" + "\n".join(map(",".join, zip(paths_of(pictures), labels, strict=True)))
    )
    for given in (source, tmp_path / "a.csv"):
        extract(given, tmp_path / given.suffix, labelled=labelled)
    one, other = (load_features(tmp_path / ending) for ending in (".parquet", ".csv"))
    assert torch.equal(one.samples.features, other.samples.features)
    assert one.paths == other.paths
    assert (None if one.labels is None else one.labels.tolist()) == (
        [CLASSES.index(label) for label in labels] if labelled else None
    )


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"number": [0, 1, 3]}, "number 2 is missing"),
        ({"number": [0, 1, 1]}, "number 1 is there twice"),
        ({"number": [-1, 1, 2]}, "number -1 is negative"),
        ({"number": [0, None, 2]}, "row 1 has no number"),
    ],
)
def test_wrong_numbers_by_reference_are_refused(tmp_path, columns, complaint):
    source = write_parquet(tmp_path / "a.parquet", {"path": ["a.png"] * 3, **columns}, 2)
    with pytest.raises(InvalidSamples, match=complaint):
        listed(source)


def test_rows_without_a_stream_are_refused(tmp_path):
    source = write_parquet(tmp_path / "a.parquet", {"path": ["a.png"] * 2, "camera": ["left", None]})
    with pytest.raises(InvalidParameter, match=r"--by camera.*without it"):
        listed(source, "camera")


@pytest.mark.parametrize("change", ["row groups", "a value", "one more row"])
def test_a_file_that_changes_between_two_starts_is_noticed(pictures, tmp_path, change):
    source = write_parquet(tmp_path / "a.parquet", {"path": paths_of(pictures)})
    extract(source, tmp_path / "out")
    before = source.stat()
    numbers = list(range(COUNT))
    if change == "a value":
        numbers[3] = 4
    write_parquet(source, {"path": paths_of(pictures, numbers)[: COUNT - (change == "one more row")]}, 8)
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(StateMismatch, match=r"another.*listing"):
        extract(source, tmp_path / "out")


def test_a_file_that_changes_while_workers_read_it_is_refused(pictures, tmp_path):
    source = write_parquet(tmp_path / "a.parquet", {"path": paths_of(pictures)})
    listing = listed(source)
    write_parquet(source, {"path": paths_of(pictures)}, 8)
    with pytest.raises(UnreadableFile, match="has changed since it was listed"):
        rows_of(listing, tmp_path / "out")


def test_a_path_that_leaves_the_folder_of_its_list_is_refused_by_the_worker(tmp_path):
    source = write_parquet(tmp_path / "a.parquet", {"path": ["a.png", "../b.png"]})
    with pytest.raises(UnreadableFile, match=r"line 1 points to '../b.png'"):
        rows_of(listed(source), tmp_path / "out")


def test_blocks_follow_samples_and_workers_within_bounds():
    assert usual_block(800, 2) == 100
    assert usual_block(10**7, 1000) == 2500
    assert usual_block(10**9, 1000) == 65_536
    assert usual_block(800, 1000) == usual_block(1, 1) == 64
    for count, workers in ((800, 2), (10**7, 1000), (10**9, 1000)):
        assert count / usual_block(count, workers) >= workers


def test_every_stream_has_a_task_of_its_own_up_to_a_bound(tmp_path, monkeypatch):
    lines = "\n".join(f"{row}.png,{row % 20:02d}" for row in range(400))
    (tmp_path / "a.csv").write_text(f"path,camera\n{lines}\n")
    listing = listed(tmp_path / "a.csv", "camera")
    assert len(listing.cut(listing.block_size(2)).blocks) == 20
    monkeypatch.setattr("pta.cluster.ray.listing._STREAM_FILES", 16)
    several = listing.cut(listing.block_size(2))
    assert several.block_size(2) == 64  # the least, so three streams of 20 samples share a file
    assert [len(rows) for rows in several.blocks] == [60] * 6 + [40]
    assert len(listing.cut(listing.block_size(5)).blocks) == 20  # which are more workers than files


def test_the_block_size_of_a_run_is_kept_by_later_starts(pictures, tmp_path):
    out = Folder(str(tmp_path / "out"))
    assert kept_block(out, COUNT) is None
    extract(pictures, out.address, block=24)
    assert kept_block(out, COUNT) == 24
    assert kept_block(out, COUNT + 1) is None
    predict(pictures, tmp_path / "labels", block=24)
    assert kept_block(Folder(str(tmp_path / "labels")), COUNT) == 24
    streams = extraction_of(pictures, by="folder", block=1)
    predict_streams(streams, "clip", {}, ThisProcess(), Folder(str(tmp_path / "streams")))
    assert kept_block(Folder(str(tmp_path / "streams")), COUNT) == 1


@pytest.mark.parametrize("content", ["[]", "{}", '{"inputs": 1}', '{"inputs": {"count": 70, "block": "x"}}'])
def test_what_is_no_run_has_no_block_size(tmp_path, content):
    (tmp_path / "about.json").write_text(content)
    assert kept_block(Folder(str(tmp_path)), COUNT) is None


def test_parquet_by_reference_is_recorded_by_its_row_groups(pictures, features, tmp_path):
    source = write_parquet(tmp_path / "a.parquet", {"path": paths_of(pictures)})
    extract(source, tmp_path / "out")
    recorded = pq.read_table(tmp_path / "out" / "listing.parquet").to_pydict()
    assert recorded["first"] == recorded["row"] == list(range(0, COUNT, 9))
    assert set(recorded["place"]) == {str(source)}
    assert not (tmp_path / "out" / "order.parquet").exists()
    inputs = json.loads((tmp_path / "out" / "about.json").read_text())["inputs"]
    assert (inputs["count"], inputs["block"]) == (COUNT, 16)
    assert sorted(features) == sorted(contents(tmp_path / "out", "safetensors"))


def test_a_listing_by_reference_holds_no_row(tmp_path):
    source = write_parquet(tmp_path / "a.parquet", {"path": ["a.png"] * 10_000, "camera": ["left"] * 10_000}, 5_000)
    groups = list_samples(str(source), IMAGES)
    assert isinstance(groups, RowGroups)
    assert groups.groups.nbytes == 2 * 4 * 8
