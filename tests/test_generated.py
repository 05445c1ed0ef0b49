"""Pictures generated from samples: found by the samples' names, stored beside them, and looked at by DiffTPT."""

import json
import re
import tarfile
from contextlib import nullcontext

import pytest
import torch
from photos import decode_image, noise, write_photos

from pta.core.limits import Limits
from pta.data.features import load_features, read_about
from pta.data.generated import find_generated
from pta.data.open import open_samples
from pta.data.prompts import build_classifier
from pta.errors import InvalidParameter, PtaError, StateMismatch, UnreadableFile, UnreadableSample
from pta.models import EmbeddedEncoder
from pta.run.extract import extract
from pta.run.reading import Reading, Views

COUNT = 3


@pytest.fixture
def photos(tmp_path):
    write_photos(tmp_path / "photos", 12)
    return tmp_path / "photos"


@pytest.fixture
def drawn(tmp_path, photos):
    """Noise for every photo, in files of several kinds."""
    keys = [path.relative_to(photos).with_suffix("") for path in sorted(photos.glob("*/*.jpg"))]
    return write_generated(tmp_path / "drawn", keys)


def write_generated(folder, stems, count=COUNT):
    for seed, stem in enumerate(stems):
        for number in range(count):
            path = folder / f"{stem}_{number}{('.jpg', '.PNG')[number % 2]}"
            path.parent.mkdir(parents=True, exist_ok=True)
            noise(40, 30, seed=100 * seed + number).save(path)
    return folder


def run(photos, drawn, out, count=COUNT, *, batch=64, views=None, limits=None, **how):
    encoder, images = EmbeddedEncoder.load().ready(), open_samples(photos)
    classifier = build_classifier(encoder, images.class_names, ("a photo of a {}.",))
    generated = None if drawn is None else find_generated(images, drawn, count)
    reading = Reading(batch, views=views, limits=limits or Limits(), generated=generated)
    return extract(images, encoder, classifier, out, reading, **how)


@pytest.mark.parametrize("views", [None, Views(4, seed=3)])
def test_they_are_stored_in_order_each_as_a_plain_image(views, photos, drawn, tmp_path):
    out, without = tmp_path / "f.safetensors", tmp_path / "g.safetensors"
    run(photos, drawn, out, batch=9, views=views, shard=4)
    assert run(photos, drawn, out, views=views).encoded == 0
    samples, encoder = load_features(out).samples, EmbeddedEncoder.load().ready()
    assert samples.generated.shape == (12, COUNT, 128)
    assert samples.generated.dtype == torch.float16
    assert (samples.views is None) == (views is None)
    key = open_samples(photos).samples[7].key.removesuffix(".jpg")
    files = [drawn / f"{key}_0.jpg", drawn / f"{key}_1.PNG", drawn / f"{key}_2.jpg"]
    expected = encoder.encode(encoder.preprocess([decode_image(file.read_bytes()) for file in files]))
    torch.testing.assert_close(samples.generated[7].float(), expected, atol=1e-3, rtol=0)
    run(photos, None, without, views=views)
    plain = load_features(without).samples
    assert plain.generated is None
    torch.testing.assert_close(samples.features, plain.features, atol=1e-6, rtol=0)
    assert "generated" not in read_about(without)["images"]  # as in files from before there were any


def test_the_size_of_the_file_counts_them(photos, drawn, tmp_path):
    told = []
    run(photos, drawn, tmp_path / "f.safetensors", views=Views(4), on_size=told.append)
    assert told == [12 * 128 * (4 + (4 + COUNT) * 2)]


def test_a_batch_counts_every_picture_that_is_encoded(photos, drawn):
    generated = find_generated(open_samples(photos), drawn, COUNT)
    assert Reading(64, generated=generated).samples_at_once == 16
    assert Reading(64, views=Views(5), generated=generated).samples_at_once == 8


def test_resumed_work_gives_the_same_bytes(photos, drawn, tmp_path):
    first, second = tmp_path / "f.safetensors", tmp_path / "g.safetensors"
    how = {"batch": 8, "shard": 2}
    run(photos, drawn, first, **how)
    with pytest.raises(Stopped):
        run(photos, drawn, second, **how, on_progress=stop_at_six)
    assert run(photos, drawn, second, **how).encoded == 6
    assert first.read_bytes() == second.read_bytes()


class Stopped(Exception):
    pass


def stop_at_six(done):
    if done == 6:
        raise Stopped


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("other", ["pictures", "count", "none"])
def test_what_was_begun_with_other_pictures_is_not_mixed_in(finished, other, photos, drawn, tmp_path):
    out, how = tmp_path / "f.safetensors", {"batch": 8, "shard": 2}
    with nullcontext() if finished else pytest.raises(Stopped):
        run(photos, drawn, out, **how, on_progress=print if finished else stop_at_six)
    if other == "pictures":
        noise(9, 9).save(next(drawn.glob("*/*_0.jpg")))
    with pytest.raises(StateMismatch, match="of other samples or with other options"):
        run(photos, None if other == "none" else drawn, out, 2 if other == "count" else COUNT, **how)


def test_a_generated_picture_that_cannot_be_read_counts_as_its_image(photos, drawn, tmp_path):
    bad, out = sorted(drawn.glob("*/*_1.PNG"))[5], tmp_path / "f.safetensors"
    bad.write_bytes(b"no picture")
    key = open_samples(photos).samples[5].key
    complaint = f"generated from {key}: {bad.relative_to(drawn)}: not an image that pta reads"
    with pytest.raises(UnreadableSample, match=complaint):
        run(photos, drawn, out)
    assert not out.exists()
    done = run(photos, drawn, out, on_error="skip")
    assert done.samples == len(load_features(out).samples.generated) == 11
    assert [line.startswith(complaint) for line in done.skipped] == [True]


@pytest.mark.parametrize(
    ("limits", "complaint"),
    [(Limits(max_pixels=96 * 80), "100×90 pixels are too many"), (Limits(max_bytes=20_000), "27,.* bytes; at most")],
)
def test_what_is_too_large_is_refused_here_too(limits, complaint, photos, drawn, tmp_path):
    noise(100, 90).save(sorted(drawn.glob("*/*_1.PNG"))[5])
    with pytest.raises(UnreadableSample, match=complaint):
        run(photos, drawn, tmp_path / "f.safetensors", limits=limits)


@pytest.mark.parametrize(
    ("image", "stem"),
    [
        ("cats/1.jpg", "cats/1"),
        ("cats/1.jpg", "1"),
        ("cats/0.5_egret _ 0.9.v2.jpg", "cats/0.5_egret _ 0.9.v2"),  # as ImageNet-A calls its files
        ("cats/with/more/1.jpg", "more/1"),
    ],
)
def test_they_are_found_by_the_stem_of_the_name_in_folders_or_without(image, stem, tmp_path):
    path = tmp_path / "photos" / image
    path.parent.mkdir(parents=True)
    noise(9, 9).save(path)
    (sample,) = open_samples(tmp_path / "photos").samples
    found = find_generated(open_samples(tmp_path / "photos"), write_generated(tmp_path / "drawn", [stem]), COUNT)
    assert [one.key for one in found.of(sample)] == [f"{stem}_0.jpg", f"{stem}_1.PNG", f"{stem}_2.jpg"]


def test_names_in_a_list_or_an_archive_do_as_well(photos, drawn, tmp_path):
    images = sorted(photos.glob("*/*.jpg"))
    (tmp_path / "list.csv").write_text("path\n" + "".join(f"{path}\n" for path in images))
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for path in images:
            archive.add(path, path.relative_to(photos))
    expected = find_generated(open_samples(photos), drawn, COUNT)
    for source in ("list.csv", "a.tar"):
        found = find_generated(open_samples(tmp_path / source), drawn, COUNT)
        assert [*found.names.values()] == [*expected.names.values()]


def test_the_nearest_folder_is_taken(photos, drawn):
    images = open_samples(photos)
    expected = find_generated(images, drawn, COUNT).names
    write_generated(drawn, [path.stem for path in photos.glob("*/*.jpg")])
    assert find_generated(images, drawn, COUNT).names == expected


@pytest.mark.parametrize(
    ("folder", "removed", "added", "complaint"),
    [
        ("none", "", "", r"cannot list .*none: no such file or directory"),
        ("drawn/bag/1_0.jpg", "", "", r"cannot list .*1_0.jpg: not a directory"),
        ("empty", "", "", r"empty holds no images \(.bmp .gif"),
        (
            *("drawn", "drawn/bag/1_1.PNG drawn/bag/2_0.jpg drawn/bag/2_2.jpg", ""),
            r"drawn holds 2 of the 3 pictures bag/1_0 … bag/1_2 generated from bag/1.jpg; 2 of 3 images have too few; "
            "make them, or take fewer of each with --generated",
        ),
        ("drawn", "", "drawn/bag/1_1.bmp", r"bag/1_1.PNG or bag/1_1.bmp was generated from bag/1.jpg; remove one"),
        ("drawn", "", "photos/bag/1.png", r"bag/1_0.jpg was generated from bag/1.jpg or from bag/1.png; leave them in"),
    ],
)
def test_the_command_refuses_what_is_missing_or_unclear_in_one_line(folder, removed, added, complaint, pta, tmp_path):
    write_generated(tmp_path / "drawn", ["bag/1", "bag/2", "bag/3"])
    (tmp_path / "photos" / "bag").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    for name in ("photos/bag/1.jpg", "photos/bag/2.jpg", "photos/bag/3.jpg", *added.split()):
        noise(9, 9).save(tmp_path / name)
    for name in removed.split():
        (tmp_path / name).unlink()
    how = ("--model", "embedded", "--views-from", folder, "--generated", COUNT)
    done = pta("extract", "photos", "--out", "f.safetensors", *how)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert re.search(complaint, done.stderr)
    assert not list(tmp_path.glob("f.safetensors*"))


def test_two_images_that_would_share_their_pictures_are_refused(tmp_path):
    for name in ("cats", "dogs"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        noise(9, 9).save(tmp_path / "photos" / name / "1.jpg")
    with pytest.raises(UnreadableFile, match=r"1_0.jpg was generated from cats/1.jpg or from dogs/1.jpg"):
        find_generated(open_samples(tmp_path / "photos"), write_generated(tmp_path / "drawn", ["1"]), COUNT)


@pytest.mark.parametrize("count", [0, -1, 1025, 1.5, True, None])
def test_an_impossible_number_of_pictures_is_refused(count, photos, drawn):
    with pytest.raises(InvalidParameter, match="the number of generated pictures must be a whole number from 1"):
        find_generated(open_samples(photos), drawn, count)


def test_pictures_that_were_found_for_other_images_are_no_bug_but_a_mistake(photos, drawn, tmp_path):
    write_photos(tmp_path / "others", 13)
    found = find_generated(open_samples(photos), drawn, COUNT)
    with pytest.raises(PtaError, match="no generated pictures were looked for"):
        [*map(found.of, open_samples(tmp_path / "others").samples)]


@pytest.mark.extensive
def test_difftpt_takes_128_rows_of_a_file_made_by_the_command_and_says_how_to_make_one(pta, photos, tmp_path):
    stems = [path.relative_to(photos).with_suffix("") for path in photos.glob("*/*.jpg")]
    drawn, stored = write_generated(tmp_path / "drawn", stems, 63), tmp_path / "f.safetensors"
    extract_views = ("extract", photos, "--model", "embedded", "--out", stored, "--views", "65")
    difftpt = ("eval", "--features", stored, "--model", "embedded", "--method", "difftpt")
    advice = "make them with pta extract --views 65 --views-from DIR, or choose difftpt-augmented, which needs none"
    needed = f"difftpt needs generated pictures, which are missing; {advice}"

    assert pta(*extract_views).returncode == 0
    done = pta(*difftpt)
    assert (done.returncode, needed in done.stderr) == (2, True)
    done = pta("predict", photos, "--classes", "bag,coat", "--model", "embedded", "--method", "difftpt", "--out", "-")
    assert (done.returncode, done.stdout, needed in done.stderr) == (2, "", True)

    assert pta(*extract_views, "--views-from", drawn, "--replace").returncode == 0
    samples = load_features(stored).samples
    assert samples.views.shape[1] + samples.generated.shape[1] == 128
    done = pta(*difftpt, "--json", "-")
    (record,) = json.loads(done.stdout)
    assert (record["n"], record["remarks"]) == (12, [])


def test_a_number_of_pictures_without_their_folder_is_refused(pta, photos, tmp_path):
    done = pta("extract", photos, "--model", "embedded", "--out", tmp_path / "f.safetensors", "--generated", "5")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--generated needs --views-from, the folder of the generated pictures" in done.stderr
