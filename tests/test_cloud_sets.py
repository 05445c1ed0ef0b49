"""Clouds go from files to answers as images do: from folders, from .h5 files and from the catalogue."""

import json
import shutil
from dataclasses import replace

import clouds
import h5py
import numpy as np
import pytest
import torch
from clouds import SHAPES, CloudEncoder, shape, write_clouds
from refusals import refusal

import pta
from pta.core.modality import CLOUDS
from pta.data import open_samples
from pta.data.catalogue import catalogue, find_entry
from pta.data.check import check
from pta.data.features import load_features
from pta.data.open import find_samples
from pta.data.prompts import build_classifier, load_templates
from pta.door.points.h5 import StoredClouds, write_h5
from pta.door.points.reading import read_cloud
from pta.errors import InvalidParameter, InvalidSamples, UnreadableFile, UnreadableSample
from pta.models import EmbeddedEncoder
from pta.run.extract import extract
from pta.run.predict import predict_stream
from pta.run.reading import Reading

TEMPLATES = ("a cloud of a {}.",)


@pytest.fixture
def encoder():
    return CloudEncoder().ready()


def extracted(samples, encoder, out, **how):
    return extract(samples, encoder, build_classifier(encoder, samples.class_names, TEMPLATES), out, **how)


def in_folders(folder):
    """The same clouds as `write_clouds` writes, one file each; some have another size."""
    for at in range(9):
        name = SHAPES[at % 3]
        (folder / name).mkdir(parents=True, exist_ok=True)
        np.save(folder / name / f"{at}.npy", shape(name, 32 if at % 2 else 64, at))
    return folder


# -- files to features -------------------------------------------------------------------------------------------------


def test_an_h5_file_is_its_clouds_with_their_labels_and_the_names_beside_it(tmp_path):
    path = write_clouds(tmp_path / "shapes.h5")
    found = open_samples(path)
    assert (found.name, found.class_names, found.modality) == ("shapes", SHAPES, CLOUDS)
    assert [sample.key for sample in found.samples[:2]] == ["shapes.h5/0", "shapes.h5/1"]
    assert found.labels.tolist() == [0, 1, 2] * 3
    np.testing.assert_array_equal(read_cloud(found.samples[4].read()), shape("disc", seed=4))
    before = found.fingerprint
    assert open_samples(path).fingerprint == before
    write_clouds(path, points=65)
    assert open_samples(path).fingerprint != before


def test_names_may_be_given_or_lie_one_folder_above_and_without_them_labels_mean_nothing(tmp_path):
    (tmp_path / "below").mkdir()
    path = write_clouds(tmp_path / "below" / "shapes.h5")
    (tmp_path / "below" / "shape_names.txt").rename(tmp_path / "shape_names.txt")
    assert open_samples(path).class_names == SHAPES
    assert open_samples(path, class_names=["a", "b", "c", "d"]).class_names == ("a", "b", "c", "d")
    (tmp_path / "shape_names.txt").unlink()
    assert (open_samples(path).class_names, open_samples(path).labels) == ((), None)


def test_extraction_of_an_h5_file_gives_the_features_of_its_clouds_and_resumes(encoder, tmp_path):
    samples = open_samples(write_clouds(tmp_path / "shapes.h5"))
    done = extracted(samples, encoder, tmp_path / "f.safetensors")
    raw = torch.from_numpy(np.stack([shape(SHAPES[at % 3], seed=at) for at in range(9)]))
    data = load_features(done.path)
    torch.testing.assert_close(data.samples.features, encoder.encode(raw))
    assert data.labels.tolist() == [0, 1, 2] * 3
    assert extracted(samples, encoder, tmp_path / "f.safetensors").encoded == 0


def test_clouds_of_different_sizes_are_encoded_together_as_one_by_one(encoder, tmp_path):
    samples = open_samples(in_folders(tmp_path / "shapes"), modality=CLOUDS)
    data = load_features(extracted(samples, encoder, tmp_path / "f.safetensors").path)
    singly = [encoder.encode(torch.from_numpy(encoder.prepare(one.read()))[None])[0] for one in samples.samples]
    torch.testing.assert_close(data.samples.features, torch.stack(singly))
    assert {len(read_cloud(one.read())) for one in samples.samples} == {32, 64}


def test_raw_samples_need_one_size(encoder, tmp_path):
    samples = open_samples(in_folders(tmp_path / "shapes"), modality=CLOUDS)
    with pytest.raises(InvalidSamples, match="raw samples must have one shape, got 64×3 and 32×3"):
        extracted(samples, encoder, tmp_path / "f.safetensors", reading=Reading(raw=True))


def test_a_cloud_that_is_none_is_named_by_file_and_number_or_skipped(encoder, tmp_path):
    spoilt = np.stack([shape("ball", seed=at) for at in range(3)])
    spoilt[1, 5, 0] = np.nan
    write_h5(tmp_path / "spoilt.h5", StoredClouds(spoilt, np.zeros(3, np.int64)))
    samples = open_samples(tmp_path / "spoilt.h5", class_names=["ball", "rod"])
    with pytest.raises(UnreadableSample, match=r"spoilt\.h5/1: point 5 is NaN, .*--on-error skip"):
        extracted(samples, encoder, tmp_path / "f.safetensors")
    assert extracted(samples, encoder, tmp_path / "f.safetensors", on_error="skip").samples == 2


# -- files to answers --------------------------------------------------------------------------------------------------


def test_a_classifier_answers_folders_and_h5_files(encoder, tmp_path):
    write_clouds(tmp_path / "shapes.h5")
    classifier = pta.Classifier(encoder, SHAPES, templates=TEMPLATES, cache=None)
    files = find_samples([tmp_path / "shapes.h5", in_folders(tmp_path / "shapes")], CLOUDS)
    answered = [
        pair for part in predict_stream(classifier, files) for pair in zip(part.answered, part.answers, strict=True)
    ]
    assert [answer.label for _, answer in answered] == [*SHAPES] * 3 + [name for name in sorted(SHAPES) for _ in "abc"]
    assert [answer.label for answer in classifier([file.read() for file in files[:3]])] == [*SHAPES]
    assert refusal(classifier, [files[0].read(), b"1 2 3"]).startswith("sample 1: 1 points are too few")


def test_a_model_of_another_modality_is_refused_in_one_line(encoder, tmp_path):
    image_model, path = EmbeddedEncoder().ready(), write_clouds(tmp_path / "shapes.h5")
    samples = open_samples(path, modality=image_model.modality)
    classifier = build_classifier(image_model, ["bag", "dress"], ("{}",))
    complaint = f"shapes holds clouds, but {image_model.architecture} reads images"
    with pytest.raises(InvalidParameter, match=complaint):
        extract(samples, image_model, classifier, tmp_path / "f.safetensors")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    assert "no clouds in" in refusal(find_samples, [tmp_path / "photos"], CLOUDS)
    with pytest.raises(UnreadableFile, match=r"photos holds no clouds \(\.npy"):
        open_samples(tmp_path / "photos", modality=encoder.modality)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The model of `clouds.py`, as a package that pip has installed."""
    about = tmp_path / "site" / "clouds_for_pta-1.0.dist-info"
    about.mkdir(parents=True)
    shutil.copy(clouds.__file__, tmp_path / "site" / "clouds_for_pta.py")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: clouds-for-pta\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[pta.encoders]\nclouds = clouds_for_pta:load_clouds\n")
    monkeypatch.syspath_prepend(tmp_path / "site")


@pytest.mark.usefixtures("installed")
def test_the_commands_take_clouds_and_call_them_so(pta, tmp_path):
    path, out = write_clouds(tmp_path / "shapes.h5"), tmp_path / "f.safetensors"
    model = ("--model", "clouds", "--templates", *TEMPLATES)
    done = pta("extract", path, *model, "--out", out)
    assert (done.returncode, f"{out}: 9 clouds, 9 encoded now" in done.stdout) == (0, True), done.stderr
    done = pta("eval", "--features", out, "--method", "pta", "--json", tmp_path / "o.json")
    assert done.returncode == 0, done.stderr
    rows = tmp_path / "rows.jsonl"
    done = pta("predict", path, *model, "--classes", ",".join(SHAPES), "--out", rows)
    assert (done.returncode, "clouds: 9, " in done.stderr) == (0, True), done.stderr
    assert [json.loads(line)["label"] for line in rows.read_text().splitlines()] == [*SHAPES] * 3
    done = pta("extract", path, "--model", "embedded", "--out", tmp_path / "g.safetensors")
    assert (done.returncode, "shapes holds clouds, but" in done.stderr) == (2, True), done.stderr


# -- .h5 files that are not what they should be ------------------------------------------------------------------------


def damage(path, change):
    """An .h5 file of clouds after a change by hand."""
    write_clouds(path)
    with h5py.File(path, "a") as file:
        change(file)
    return refusal(open_samples, path)


def instead(name, **dataset):
    def change(file):
        del file[name]
        file.create_dataset(name, **dataset)

    return change


def linked(link):
    def change(file):
        del file["data"]
        file["data"] = link

    return change


def without_label(file):
    del file["label"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (without_label, "has no label; a file of clouds has data and label, this one data"),
        (instead("data", data=np.zeros((9, 64, 2))), "data must be numbers N×n×3, got float64 of shape (9, 64, 2)"),
        (instead("data", data=np.zeros((9, 64, 3), "S3")), "data must be numbers N×n×3, got |S3"),
        (instead("data", data=np.zeros((0, 64, 3))), "of shape (0, 64, 3)"),
        (instead("data", data=np.zeros((8, 64, 3))), "label must be a whole number for each of 8 clouds, got"),
        (instead("label", data=np.zeros((9, 2), int)), "for each of 9 clouds, got int64 of shape (9, 2)"),
        (instead("label", data=np.zeros(9)), "got float64"),
        (instead("label", data=np.arange(9)), "cloud 3 has label 3; there are 3 classes"),
        (instead("label", data=np.arange(9) - 1), "cloud 0 has label -1; there are 3 classes"),
        (instead("data", shape=(9, 10**12, 3), dtype="f4", chunks=(1, 64, 3)), "GiB of memory"),
        (instead("data", shape=(9, 2**26, 3), dtype="f4", chunks=(1, 2**26, 3)), "a chunk of data has more"),
    ],
)
def test_an_h5_file_without_its_keys_shapes_or_labels_is_refused_by_name(change, complaint, tmp_path):
    said = damage(tmp_path / "shapes.h5", change)
    assert "shapes.h5" in said
    assert complaint in said


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (linked(h5py.ExternalLink("/etc/passwd", "/data")), "data is a ExternalLink, no dataset"),
        (linked(h5py.SoftLink("/label")), "data is a SoftLink, no dataset"),
        (
            instead("data", shape=(9, 64, 3), dtype="u1", external=[("/etc/passwd", 0, 1728)]),
            "the numbers of data are in other files",
        ),
    ],
)
def test_an_h5_file_that_points_elsewhere_is_refused(change, complaint, tmp_path):
    assert complaint in damage(tmp_path / "shapes.h5", change)


def test_a_virtual_dataset_and_an_unknown_filter_are_refused(tmp_path):
    def virtual(file):
        del file["data"]
        layout = h5py.VirtualLayout((9, 64, 3), "f4")
        layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "data", (9, 64, 3))
        file.create_virtual_dataset("data", layout)

    def packed(file):
        del file["data"]
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((1, 64, 3))
        properties.set_filter(32015, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple((9, 64, 3))
        h5py.h5d.create(file.id, b"data", h5py.h5t.IEEE_F32LE, space, properties)

    assert "the numbers of data are in other files" in damage(tmp_path / "shapes.h5", virtual)
    assert "data is packed by filter 32015" in damage(tmp_path / "shapes.h5", packed)


def test_what_is_no_h5_file_is_one_line(tmp_path):
    path = write_clouds(tmp_path / "shapes.h5")
    content = path.read_bytes()
    for spoilt in (b"", b"nonsense", content[:100], content[: len(content) // 2]):
        path.write_bytes(spoilt)
        assert "shapes.h5 cannot be read as a file of clouds" in refusal(open_samples, path)
    assert "no such cloud file" in refusal(open_samples, tmp_path / "none.h5")


# -- the catalogue -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    """The sets with few clouds of few points."""
    modelnet, scans = catalogue()["modelnet_c"], catalogue()["sonn_c"]
    monkeypatch.setitem(catalogue(), "modelnet_c", replace(modelnet, count=40, points=600))
    monkeypatch.setitem(catalogue(), "sonn_c", replace(scans, counts=dict.fromkeys(scans.counts, 15), points=600))


def write_part(root, name, count, points):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = np.random.default_rng(1).standard_normal((count, points, 3), np.float32)
    write_h5(path, StoredClouds(data, np.arange(count)))


@pytest.mark.parametrize(
    ("source", "file", "count", "points"),
    [
        ("modelnet_c/add_global/2", "modelnet_c/add_global_2.h5", 2468, 1054),
        ("modelnet_c/dropout_local/4", "modelnet_c/dropout_local_4.h5", 2468, 524),
        ("modelnet_c/clean", "modelnet_c/clean.h5", 2468, 1024),
        ("sonn_c/obj_only/add_local/0", "sonn_c/obj_only/add_local_0.h5", 581, 1124),
        ("sonn_c/obj_bg/rotate/1", "sonn_c/obj_bg/rotate_1.h5", 581, 1024),
        ("sonn_c/hardest/dropout_global/3", "sonn_c/hardest/dropout_global_3.h5", 2882, 384),
        ("sonn_c/hardest/clean", "sonn_c/hardest/clean.h5", 2882, 1024),
    ],
)
def test_each_corruption_and_severity_has_its_file_its_count_and_its_points(source, file, count, points):
    entry = find_entry(source)
    assert (entry.id, entry.images, entry.count, entry.points) == (source, (file,), count, points)
    assert len(entry.class_names) == entry.classes == (40 if source.startswith("modelnet") else 15)
    assert load_templates("clip", entry.prompts) == load_templates("ulip64")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("modelnet_c/rotate", "modelnet_c is chosen as modelnet_c/jitter/4"),
        ("modelnet_c/rotate/5", "'5' does not exist; known: 0, 1, 2, 3, 4"),
        ("modelnet_c/clean/0", "'clean' does not exist"),
        ("sonn_c/clean", "sonn_c is chosen as"),
        ("sonn_c/easiest/clean", "'easiest' does not exist; did you mean 'hardest'?"),
    ],
)
def test_a_part_that_does_not_exist_is_answered_with_one_that_does(source, said):
    assert said in refusal(find_entry, source)


@pytest.mark.usefixtures("small")
def test_a_catalogued_file_is_read_and_checked(tmp_path):
    source = "modelnet_c/dropout_global/1"
    assert f"no file of clouds {tmp_path}/modelnet_c/dropout_global_1.h5; get it" in refusal(
        open_samples, source, root=tmp_path
    )
    write_part(tmp_path, "modelnet_c/dropout_global_1.h5", 40, 375)
    found = open_samples(source, root=tmp_path)
    assert (found.name, len(found), found.class_names[15], found.modality) == (source, 40, "flower_pot", CLOUDS)
    assert (found.prompts, found.notes) == ("point_clouds", ())
    assert check(source, tmp_path).complete


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("count", "points"), [(39, 375), (40, 374)])
def test_another_number_of_clouds_or_points_is_refused(count, points, tmp_path):
    write_part(tmp_path, "modelnet_c/dropout_global_1.h5", count, points)
    said = refusal(open_samples, "modelnet_c/dropout_global/1", root=tmp_path)
    assert f"holds {count} clouds of {points} points; the published modelnet_c/dropout_global/1 holds 40" in said
    assert said.endswith("40 clouds of 375 points")


@pytest.mark.usefixtures("small")
def test_a_whole_set_is_checked_in_the_parts_that_are_there(tmp_path):
    write_part(tmp_path, "sonn_c/obj_bg/clean.h5", 15, 600)
    write_part(tmp_path, "sonn_c/hardest/add_local_4.h5", 15, 1100)
    report = check("sonn_c", tmp_path)
    assert (report.images, report.expected_images, report.problems) == (30, 30, ())
    assert "2 of 108 parts were found" in report.notes[0]
    write_part(tmp_path, "sonn_c/hardest/add_local_4.h5", 15, 600)
    assert "hardest/add_local/4: " in check("sonn_c", tmp_path).problems[0]
