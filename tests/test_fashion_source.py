"""The packaged images, and as a source: the demo's features by `pta extract`, once, and known by their pixels."""

import json
from importlib import resources

import numpy as np
import pytest
import torch
from photos import decode_image
from refusals import refusal

from pta.data import fashion as packaged
from pta.data.fashion import load_fashion_test, open_fashion
from pta.data.features import load_features
from pta.data.open import open_samples
from pta.data.prompts import load_templates
from pta.data.shifts.images import SHIFTS, apply_shift
from pta.errors import InvalidParameter, UnreadableFile
from pta.measure.demo.run_demo import run_demo
from pta.models import EMBEDDED_TEMPLATES


def test_there_are_2000_small_grey_images_of_ten_named_classes_in_the_published_order():
    test = load_fashion_test()
    assert (test.images.shape, test.labels.shape) == ((2000, 28, 28), (2000,))
    assert test.images.dtype == test.labels.dtype == np.uint8
    assert len(set(test.class_names)) == 10
    assert np.bincount(test.labels, minlength=10).min() > 150
    assert test.labels[:12].tolist() == [9, 2, 1, 1, 6, 1, 4, 6, 5, 7, 4, 5]


def test_each_load_gives_fresh_arrays():
    load_fashion_test().images[:] = 0
    assert load_fashion_test().images.any()


def test_the_file_is_small():
    assert len((resources.files("pta") / "assets" / "fashion_mnist_test_2000.npz").read_bytes()) <= 1_500_000


@pytest.mark.parametrize("source", ["fashion/clean", *(f"fashion/{shift}/2" for shift in SHIFTS)])
def test_each_source_is_the_test_images_under_its_shift_with_their_labels(source):
    test, images = load_fashion_test(), open_fashion(source)
    _, shift, *severity = source.split("/")
    expected = apply_shift(test.images, shift, 2, seed=1) if severity else test.images
    for number in range(0, 2000, 97):
        image = images.samples[number]
        assert np.array_equal(decode_image(image.read(), image.key).convert("L"), expected[number])
    assert images.labels.tolist() == test.labels.tolist()
    assert (images.name, images.class_names, images.prompts) == (source, test.class_names, "fashion")
    assert len({image.key for image in images.samples}) == 2000


def test_a_fingerprint_is_that_of_the_pixels(monkeypatch):
    plain = open_fashion("fashion/blur/3").fingerprint
    assert open_fashion("fashion/blur/3").fingerprint == plain
    assert open_fashion("fashion/blur/2").fingerprint != plain

    def another(images, name, severity, seed):
        shifted = apply_shift(images, name, severity, seed)
        shifted[1234, 5, 6] ^= 1
        return shifted

    monkeypatch.setattr(packaged, "apply_shift", another)
    assert open_fashion("fashion/blur/3").fingerprint != plain


def test_extraction_gives_the_features_of_the_demo_and_does_nothing_twice(pta, tmp_path):
    out = tmp_path / "blur.safetensors"
    command = ("extract", "fashion/blur/3/300", "--model", "embedded", "--out", out, "--json", "-")
    first = pta(*command)
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["encoded"] == 300
    data, demo = load_features(out), run_demo("blur", severity=3, seed=1, limit=300)
    assert data.dataset == "fashion/blur/3/300"
    assert data.labels.tolist() == demo.labels.tolist()
    torch.testing.assert_close(data.samples.features, demo.data.samples.features, atol=1e-6, rtol=0)
    torch.testing.assert_close(data.classifier.anchors, demo.data.classifier.anchors, atol=1e-6, rtol=0)
    assert data.zero_shot_accuracy == pytest.approx(demo.difference.accuracies[0])
    written = out.stat().st_mtime_ns
    assert json.loads(pta(*command).stdout)["encoded"] == 0
    assert out.stat().st_mtime_ns == written


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("fashion", "fashion/clean and fashion/SHIFT/SEVERITY"),
        ("fashion/", "fashion/clean and fashion/SHIFT/SEVERITY"),
        ("fashion/blur", "fashion/clean and fashion/SHIFT/SEVERITY"),
        ("fashion/clean/1", "fashion/clean and fashion/SHIFT/SEVERITY"),
        ("fashion/blur/3/0", "perhaps with /COUNT up to 2000"),
        ("fashion/blur/3/2001", "perhaps with /COUNT up to 2000"),
        ("fashion/blurr/3", "unknown shift 'blurr'; did you mean 'blur'?"),
        ("fashion/blur/6", "severity must be a whole number from 1 to 5, not 6"),
        ("fashion/blur/0", "severity must be a whole number from 1 to 5, not 0"),
        ("fashion/blur/-1", "a severity from 1 to 5"),
        ("fashion/blur/much", "a severity from 1 to 5"),
    ],
)
def test_images_that_there_are_not_are_one_clear_line(source, complaint):
    assert complaint in refusal(open_samples, source)


def test_the_command_says_so_too(pta, tmp_path):
    done = pta("extract", "fashion/blur/6", "--model", "embedded", "--out", tmp_path / "f.safetensors")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "severity must be a whole number from 1 to 5" in done.stderr


def test_other_names_may_be_given_for_the_classes_but_as_many():
    assert open_samples("fashion/clean", class_names=list("abcdefghij")).class_names == tuple("abcdefghij")
    with pytest.raises(InvalidParameter, match="10 classes, but 2 names"):
        open_samples("fashion/clean", class_names=["a", "b"])


def test_every_other_source_is_opened_as_before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "fashion" / "clean"
    folder.mkdir(parents=True)
    (folder / "one.png").write_bytes(open_fashion("fashion/clean").samples[0].read())
    assert [sample.key for sample in open_samples("./fashion").samples] == ["clean/one.png"]
    assert open_samples(folder.parent.relative_to(tmp_path)).fingerprint == open_samples("./fashion").fingerprint
    with pytest.raises(UnreadableFile, match="no such file or folder"):
        open_samples("fashionable/clean")


def test_the_templates_of_these_images_are_those_of_the_embedded_model():
    assert {load_templates(name, "fashion") for name in ("clip", "coop", "dpe")} == {EMBEDDED_TEMPLATES}
    assert load_templates("vanilla", "fashion") == ("a photo of a {}.",)


def test_the_first_so_many_are_those_of_all():
    few, all_of_them = open_fashion("fashion/rotate/3/7"), open_fashion("fashion/rotate/3")
    assert len(few) == len(few.labels) == 7
    assert [image.stamp for image in few.samples] == [image.stamp for image in all_of_them.samples[:7]]
    assert few.labels.tolist() == all_of_them.labels[:7].tolist()
