"""Blocks of features and labels as files: sources, numbers, resuming, and what is refused. Nothing here needs Ray."""

import io
import json
import shutil
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import torch

pa = pytest.importorskip("pyarrow")

import pyarrow.parquet as pq
from cluster_runs import BLOCK, CLASSES, FASHION, Backwards, contents, extract, extraction_of, predict, write_pictures

from pta.cluster import run_blocks, scan, start_of, summarise_block
from pta.cluster.blocks.scanning import pack_before, unpack_before
from pta.cluster.blocks.tasks import ThisProcess
from pta.cluster.ray.extraction import read_block
from pta.cluster.ray.prediction import FeatureFolder, predict_blocks, predict_streams
from pta.cluster.ray.storage import Folder
from pta.core.modality import IMAGES
from pta.data.features import load_features
from pta.data.open import find_samples
from pta.data.sources.table import list_samples
from pta.errors import InvalidParameter, InvalidSamples, StateMismatch, UnreadableFile, UnreadableSample
from pta.methods import create_adapter, load_adapter
from pta.models import load_encoder
from pta.run.classifier import Classifier
from pta.run.predict import predict_stream
from pta.run.reading import Reading, open_decoding

NO_PICTURE = "not an image that pta reads (JPEG, PNG, WEBP, GIF, BMP, TIFF, PPM)"
COUNT = 70  # four blocks and a part
OWN_LABELS = [CLASSES[label] for label in FASHION.labels[:COUNT]]
SUMMED = {"prior": "none", "calibration": "fixed"}  # of wpta, whose state is then sums alone


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures"), COUNT)


@pytest.fixture(scope="module")
def features(pictures, tmp_path_factory):
    out = tmp_path_factory.mktemp("features")
    extract(pictures, out)
    return out


@pytest.fixture(scope="module")
def labels(pictures, tmp_path_factory):
    out = tmp_path_factory.mktemp("labels")
    predict(pictures, out)
    return out


def rows_of(folder):
    return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("*.parquet")) if "-" in path.name])


def blocks_of(features):
    """All blocks of a folder."""
    source = FeatureFolder.find(str(features))
    return [read_block(source.folder, rows, source.about["run"]).block for rows in source.blocks]


def whole_stream(features):
    """The features of all blocks, and the classifier."""
    rows = torch.cat([block.features for block in blocks_of(features)])
    return rows, FeatureFolder.find(str(features)).classifier()


def test_the_labels_are_those_of_the_plain_functions(features, labels):
    classifier = FeatureFolder.find(str(features)).classifier()
    run = run_blocks(create_adapter("pta", classifier), blocks_of(features))
    found = rows_of(labels)
    assert found["number"].to_pylist() == list(range(COUNT))
    expected = [CLASSES[label] for answers in run.answers for label in answers.labels]
    assert found["label"].to_pylist() == expected
    assert found["probability"].to_pylist() == [
        one for answers in run.answers for one in answers.probabilities.tolist()
    ]
    assert found["zero_shot_label"].to_pylist() == [
        CLASSES[label] for answers in run.answers for label in answers.zero_shot
    ]


def test_the_labels_are_those_of_one_stream(features, labels):
    rows, classifier = whole_stream(features)
    logits = create_adapter("pta", classifier).step(rows)
    assert rows_of(labels)["label"].to_pylist() == [CLASSES[label] for label in logits.argmax(dim=1)]


def test_labels_of_feature_blocks_are_those_of_their_pictures(features, labels, tmp_path):
    predict(features, tmp_path / "out")
    assert rows_of(tmp_path / "out").equals(rows_of(labels))


def test_blocks_in_reverse_order_change_nothing(pictures, features, labels, tmp_path):
    extract(pictures, tmp_path / "features", Backwards())
    predict(pictures, tmp_path / "labels", Backwards())
    assert contents(tmp_path / "features", "safetensors") == contents(features, "safetensors")
    assert contents(tmp_path / "labels", "parquet") == contents(labels, "parquet")


def test_a_rule_that_needs_repair_gives_the_labels_of_one_stream(features, tmp_path):
    slow = {"w": 0.9, "h": 1000.0}
    done = predict(features, tmp_path / "out", parameters=slow)
    rows, classifier = whole_stream(features)
    logits = create_adapter("pta", classifier, **slow).step(rows)
    best = logits.topk(2, dim=1).values
    clear = (best[:, 0] - best[:, 1] > 1e-2).tolist()
    pairs = zip(rows_of(tmp_path / "out")["label"].to_pylist(), logits.argmax(dim=1).tolist(), clear, strict=True)
    assert done.rounds > 0
    assert done.repaired > 0
    assert all(label == CLASSES[other] for label, other, is_clear in pairs if is_clear)


@pytest.mark.parametrize("method", ["pta", "wpta"])
def test_what_was_learned_before_a_block_survives_its_file(features, method):
    parameters = SUMMED if method == "wpta" else {}
    adapter = create_adapter(method, FeatureFolder.find(str(features)).classifier(), **parameters)
    summaries = [summarise_block(adapter, block) for block in blocks_of(features)]
    for before in scan(adapter, start_of(adapter), summaries):
        assert pack_before(unpack_before(pack_before(before))) == pack_before(before)


def test_wpta_gives_the_labels_of_one_stream(features, tmp_path):
    predict(features, tmp_path / "out", method="wpta", parameters=SUMMED)
    rows, classifier = whole_stream(features)
    logits = create_adapter("wpta", classifier, **SUMMED).step(rows)
    assert rows_of(tmp_path / "out")["label"].to_pylist() == [CLASSES[label] for label in logits.argmax(dim=1)]


def test_a_folder_of_blocks_is_one_set(pictures, tmp_path, pta):
    listed = tmp_path / "list.csv"
    lines = [f"{pictures}/{number:04d}.png,{OWN_LABELS[number]}" for number in range(COUNT)]
    listed.write_text("path,label\n" + "\n".join(lines))
    extract(listed, tmp_path / "features", labelled=True)
    data = load_features(tmp_path / "features")
    assert len(data.samples) == COUNT
    assert [CLASSES[label] for label in data.labels] == OWN_LABELS
    assert "features" in pta("eval", "--features", tmp_path / "features").stdout
    (tmp_path / "features" / "000000000016-000000000032.safetensors").unlink()
    assert "no such feature file" in pta("eval", "--features", tmp_path / "features").stderr


def test_what_is_there_is_not_computed_again(pictures, features):
    before = contents(features, "safetensors")
    assert extract(pictures, features).encoded == 0
    assert contents(features, "safetensors") == before


def test_a_block_that_is_cut_short_or_of_another_run_is_computed_again(pictures, features, tmp_path):
    out = tmp_path / "out"
    extract(pictures, out)
    names = sorted(contents(out, "safetensors"))
    (out / names[0]).write_bytes((out / names[0]).read_bytes()[:-5])
    extract(pictures, tmp_path / "other", classes=CLASSES[:5])
    (out / names[1]).write_bytes((tmp_path / "other" / names[1]).read_bytes())
    assert extract(pictures, out).encoded == 2 * BLOCK
    assert contents(out, "safetensors") == contents(features, "safetensors")


def test_labels_that_are_cut_short_are_computed_again(pictures, labels, tmp_path):
    out = tmp_path / "out"
    predict(pictures, out)
    path = sorted(out.glob("0*.parquet"))[2]
    path.write_bytes(path.read_bytes()[:-5])
    predict(pictures, out)
    assert contents(out, "parquet") == contents(labels, "parquet")
    assert not (out / "work").exists()


@pytest.mark.parametrize("block", [0, 1])
def test_features_that_are_cut_short_are_refused_by_name(features, tmp_path, block):
    copy = shutil.copytree(features, tmp_path / "copy")
    name = sorted(contents(copy, "safetensors"))[block]
    (copy / name).write_bytes((copy / name).read_bytes()[:-5])
    with pytest.raises(UnreadableFile, match=rf"{name}.*makes"):
        predict(copy, tmp_path / "out")


@pytest.mark.parametrize("other", [{"block": 8}, {"classes": CLASSES[:4]}])
def test_a_folder_of_another_run_is_refused_and_stays(pictures, features, other):
    before = contents(features, "*")
    with pytest.raises(StateMismatch, match=next(iter(other)).replace("classes", "classifier")):
        extract(pictures, features, **other)
    assert contents(features, "*") == before


def test_features_of_another_model_or_classifier_are_refused(features):
    source = FeatureFolder.find(str(features))
    encoder = load_encoder("embedded")
    source.require_from(encoder, source.classifier())
    fewer = Classifier(encoder, CLASSES[:4]).classifier
    with pytest.raises(StateMismatch, match="another classifier"):
        source.require_from(encoder, fewer)
    source.about["inputs"]["model"] = "0" * 64
    with pytest.raises(StateMismatch, match="another model"):
        source.require_from(encoder, source.classifier())


@pytest.mark.parametrize(
    ("numbers", "complaint"),
    [([0, 1, 3], "number 2 is missing"), ([0, 1, 1], "number 1 is there twice"), ([1, 2, 3], "number 0 is missing")],
)
def test_numbers_that_are_missing_or_twice_are_refused(pictures, tmp_path, numbers, complaint):
    listed = tmp_path / "list.csv"
    listed.write_text("path,number\n" + "".join(f"{pictures}/{n:04d}.png,{n}\n" for n in numbers))
    with pytest.raises(InvalidSamples, match=complaint):
        extraction_of(listed)


def test_numbers_of_the_data_decide_not_the_order_of_rows(pictures, features, tmp_path):
    listed = tmp_path / "list.csv"
    shuffled = np.random.default_rng(1).permutation(COUNT)
    listed.write_text("path,number\n" + "".join(f"{pictures}/{n:04d}.png,{n}\n" for n in shuffled))
    extract(listed, tmp_path / "out")
    assert torch.equal(whole_stream(tmp_path / "out")[0], whole_stream(features)[0])


def test_an_unreadable_picture_has_a_row_without_a_label_and_others_keep_their_numbers(pictures, tmp_path):
    damaged = write_pictures(tmp_path / "pictures", COUNT)
    (damaged / "0020.png").write_bytes(b"no picture")
    with pytest.raises(UnreadableSample, match="--on-error skip"):
        predict(damaged, tmp_path / "skip")
    done = predict(damaged, tmp_path / "skip", on_error="skip")
    rows = rows_of(tmp_path / "skip")
    assert [key for _, key, _ in done.failed] == ["0020.png"]
    assert rows["number"].to_pylist() == list(range(COUNT))
    assert rows.slice(20, 1).to_pylist()[0] == {
        **{"number": 20, "key": "0020.png", "reason": f"0020.png: {NO_PICTURE}"},
        **dict.fromkeys(("label", "probability", "zero_shot_label", "zero_shot_probability", "entropy")),
    }
    assert rows["label"].null_count == 1


def test_a_block_without_a_readable_picture_is_a_block(tmp_path):
    damaged = write_pictures(tmp_path / "pictures", 3 * BLOCK)
    for number in range(BLOCK, 2 * BLOCK):
        (damaged / f"{number:04d}.png").write_bytes(b"")
    predict(damaged, tmp_path / "skip", on_error="skip")
    assert rows_of(tmp_path / "skip")["label"].null_count == BLOCK
    for path in damaged.iterdir():
        path.write_bytes(b"")
    with pytest.raises(UnreadableSample, match="none of the 48"):
        predict(damaged, tmp_path / "none", on_error="skip")
    streams = extraction_of(damaged, on_error="skip", by="folder")
    with pytest.raises(UnreadableSample, match="none of the 48"):
        predict_streams(streams, "pta", {}, ThisProcess(), Folder(str(tmp_path / "streams")))


def tar_of(path, pictures, numbers, cameras=None):
    with tarfile.open(path, "w") as archive:
        for number in numbers:
            archive.add(pictures / f"{number:04d}.png", f"{number:04d}.png")
            if cameras:
                content = json.dumps({"camera": cameras[number % len(cameras)]}).encode()
                member = tarfile.TarInfo(f"{number:04d}.json")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize(
    "kind", ["tar", "parquet of files", "parquet of paths", "remote folder", "remote csv", "remote tar"]
)
def test_every_source_gives_the_features_of_the_folder(pictures, features, tmp_path, kind):
    names = [f"{number:04d}.png" for number in range(COUNT)]
    if kind.endswith("tar"):
        tar_of(tmp_path / "a-0.tar", pictures, range(40))
        tar_of(tmp_path / "a-1.tar", pictures, range(40, COUNT))
        source = str(tmp_path / "a-{0..1}.tar")
    elif kind == "parquet of files":
        for part, rows in enumerate((range(40), range(40, COUNT))):
            cells = [{"bytes": (pictures / names[row]).read_bytes(), "path": None} for row in rows]
            pq.write_table(pa.table({"image": cells}), tmp_path / f"{part}.parquet", row_group_size=7)
        source = str(tmp_path)
    elif kind == "parquet of paths":
        paths = [str(pictures / name) for name in names]
        pq.write_table(pa.table({"path": paths[::-1], "number": range(COUNT - 1, -1, -1)}), tmp_path / "a.parquet")
        source = str(tmp_path / "a.parquet")
    elif kind == "remote csv":
        (tmp_path / "list.csv").write_text("path\n" + "\n".join(f"file://{pictures}/{name}" for name in names))
        source = str(tmp_path / "list.csv")
    else:
        source = str(pictures)
    if kind.startswith("remote"):
        source = f"file://{source}"
    extract(source, tmp_path / "out")
    assert torch.equal(whole_stream(tmp_path / "out")[0], whole_stream(features)[0])


def test_blocks_go_to_an_object_store_and_come_back(pictures, features):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    extract(pictures, "memory://bucket/features")
    predict("memory://bucket/features", "memory://bucket/labels")
    for name, content in contents(features, "safetensors").items():
        assert memory.cat_file(f"/bucket/features/{name}") == content
    assert len(memory.glob("/bucket/labels/0*.parquet")) == 5
    assert extract(pictures, "memory://bucket/features").encoded == 0
    assert not memory.exists("/bucket/labels/work")


@pytest.mark.parametrize("kind", ["csv", "parquet", "tar", "folder"])
def test_one_stream_per_key_is_the_stream_of_that_key_alone(pictures, tmp_path, kind):
    cameras = ["left", "right"]
    names = [f"{number:04d}.png" for number in range(COUNT)]
    source, by = tmp_path / f"list.{kind}", "camera"
    if kind == "csv":
        lines = [f"{pictures}/{name},{cameras[number % 2]}" for number, name in enumerate(names)]
        source.write_text("path,camera\n" + "\n".join(lines))
    elif kind == "parquet":
        table = {"path": [str(pictures / name) for name in names], "camera": [cameras[n % 2] for n in range(COUNT)]}
        pq.write_table(pa.table(table), source)
    elif kind == "tar":
        tar_of(source, pictures, range(COUNT), cameras)
    else:
        by = "folder"
        for camera in (0, 1):
            (source / cameras[camera]).mkdir(parents=True)
            for name in names[camera::2]:
                (source / cameras[camera] / name).hardlink_to(pictures / name)
    extraction = extraction_of(source, by=by)
    predict_streams(extraction, "tda", {}, ThisProcess(), Folder(str(tmp_path / "out")))
    rows = rows_of(tmp_path / "out")
    assert len(list((tmp_path / "out").glob("0*.parquet"))) == 2
    for camera in (0, 1):
        alone = Classifier("embedded", CLASSES, method="tda")
        files = [str(pictures / name) for name in names[camera::2]]
        expected = [alone(file).label for file in files]
        own = rows.filter(pa.compute.equal(rows["stream"], cameras[camera]))
        assert own["label"].to_pylist() == expected


def test_a_stream_of_a_method_that_depends_on_the_batch_has_the_batches_of_one_process(pictures, tmp_path):
    given = {"offset": "panda-batch"}
    alone = Classifier("embedded", CLASSES, method="clip", **given)
    reading = alone.reading(Reading(batch=8, workers=1))
    extraction = replace(extraction_of(pictures, by="folder"), reading=reading)
    predict_streams(extraction, "clip", given, ThisProcess(), Folder(str(tmp_path / "out")))
    parts = predict_stream(alone, find_samples([pictures]), reading, open_decoding(alone.encoder, reading))
    expected = [probability for part in parts for probability in part.answers.columns.probabilities[0]]
    assert rows_of(tmp_path / "out")["probability"].to_pylist() == pytest.approx(expected, abs=1e-5)


def test_a_parquet_column_of_another_kind_or_twice_is_refused_in_one_line(tmp_path):
    for number, table in enumerate(
        [pa.table({"path": [{"a": 1}]}), pa.table([["a.png"], ["b.png"]], ["path", "path"])]
    ):
        pq.write_table(table, tmp_path / f"{number}.parquet")
        with pytest.raises(UnreadableFile, match=rf"{number}\.parquet.*path"):
            list_samples(str(tmp_path / f"{number}.parquet"), IMAGES)


def test_a_column_that_is_not_there_is_refused(pictures, tmp_path):
    (tmp_path / "list.csv").write_text("path\n0000.png\n")
    with pytest.raises(InvalidParameter, match="--by camera"):
        list_samples(str(tmp_path / "list.csv"), IMAGES, "camera")
    with pytest.raises(InvalidParameter, match="--by folder"):
        list_samples(str(pictures), IMAGES, "camera")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.csv", "file\n0000.png\n"),
        ("list.csv", "path\n../0000.png\n"),
        ("list.csv", "path,number\n0000.png,one\n"),
        ("list.csv", "path\n"),
        ("a.parquet", "no parquet"),
        ("a.tar", "no archive"),
        ("a.zip", "no source"),
    ],
)
def test_a_source_that_cannot_be_listed_is_refused_in_one_line(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(UnreadableFile) as refused:
        list_samples(str(tmp_path / name), IMAGES)
    assert name in str(refused.value)


def test_a_list_from_elsewhere_names_no_files_of_this_machine(pictures, tmp_path):
    (tmp_path / "list.csv").write_text(f"path\n{pictures}/0000.png\n")
    with pytest.raises(UnreadableFile, match="leaves the folder"):
        list_samples(f"file://{tmp_path}/list.csv", IMAGES)


def test_the_state_goes_on_and_is_that_of_the_stream(features, tmp_path):
    rows, classifier = whole_stream(features)
    source, out = FeatureFolder.find(str(features)), Folder(str(tmp_path / "out"))
    first = create_adapter("pta", classifier)
    first.step(rows[:30])
    predict_blocks(source, first, ThisProcess(), out, 1e-6)
    after = load_adapter(tmp_path / "out" / "state.safetensors", classifier)
    first.step(rows)
    assert after.position == first.position == 30 + COUNT
    assert torch.allclose(after.knowledge, first.knowledge, atol=1e-6)
    assert torch.allclose(after.anchored, first.anchored, atol=1e-5)
    before = contents(tmp_path / "out", "*")
    predict_blocks(source, after, ThisProcess(), out, 1e-6)  # the same command once more
    assert contents(tmp_path / "out", "*") == before
