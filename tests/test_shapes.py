"""Procedural shapes and furniture: what they are, where they come from, and as sources of clouds."""

import csv
import re
from importlib import resources

import numpy as np
import pytest
from furniture import as_stored
from procedural import TEST_SHAPES, stored
from refusals import refusal
from shapes.draw import draw_clouds, draw_shape
from shapes.solids import ball, box, leaning, moved, ring, rod, turned

from pta.core.modality import CLOUDS
from pta.data.open import open_samples
from pta.data.packaged_clouds import (
    FURNITURE_CLASSES,
    SHAPE_CLASSES,
    from_stored,
    joined,
    load_furniture_test,
    load_procedural_test,
    stored_solids,
)
from pta.data.prompts import load_templates
from pta.data.shifts.points import CORRUPTIONS, corrupt_points, corrupted_size
from pta.door.points.reading import read_cloud
from pta.models.packaged.embedded_points import POINT_TEMPLATES


@pytest.fixture(scope="module")
def credits():
    text = (resources.files("pta") / "assets" / "furniture.csv").read_text()
    return list(csv.DictReader(text.splitlines()))


# -- solids ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solid", "area"),
    [
        (box(1, 2, 3), 22),
        (turned([(0, 0), (1, 0), (1, 5), (0, 5)]), 2 * np.pi + 10 * np.pi),
        (rod((1, 2, 3), (1, 2, 7), 1), 2 * np.pi + 8 * np.pi),
        (ball(2.0), 16 * np.pi),
        (ring(5, 1), 20 * np.pi**2),
        (leaning(box(1, 2, 3), 0, 0.7, (1, 1, 1)), 22),
        (moved(box(1, 1, 1), (5, 5, 5), (1, 2, 3)), 22),
        (joined([box(1, 1, 1), box(2, 2, 2)]), 30),
    ],
)
def test_a_solid_has_about_the_area_of_what_it_stands_for(solid, area):
    first, second, third = np.moveaxis(solid.corners[solid.triangles], 1, 0)
    found = np.linalg.norm(np.cross(second - first, third - first), axis=1).sum() / 2
    assert found == pytest.approx(area, rel=0.15)  # round things have sixteen sides


def test_a_rod_reaches_from_its_start_to_its_end_and_a_box_stands_on_its_place():
    found = rod((1, 2, 3), (4, 6, 3), 0.5).corners
    along = (found - (1, 2, 3)) @ np.array([0.6, 0.8, 0])
    np.testing.assert_allclose([along.min(), along.max()], [0, 5], atol=1e-12)
    np.testing.assert_allclose(box(2, 3, 4, (1, 1, 1)).corners.min(axis=0), (0, 1, -1))


def test_leaning_turns_about_its_axis_and_place():
    np.testing.assert_allclose(
        leaning(box(0, 2, 0), 2, np.pi / 2, (1, 0, 0)).corners.min(axis=0), (-1, -1, 0), atol=1e-12
    )


# -- procedural shapes -------------------------------------------------------------------------------------------------


def test_there_are_at_least_20_classes_each_with_shapes_of_its_own():
    drawn = draw_clouds(4 * len(SHAPE_CLASSES))
    assert len(set(SHAPE_CLASSES)) == len(SHAPE_CLASSES) >= 20
    assert drawn.clouds.shape[1:] == (1024, 3)
    assert np.bincount(drawn.labels).tolist() == [4] * len(SHAPE_CLASSES)
    assert len({cloud.tobytes() for cloud in drawn.clouds}) == len(drawn)


def test_every_cloud_is_about_its_mean_in_the_unit_ball():
    clouds = draw_clouds(2 * len(SHAPE_CLASSES)).clouds
    np.testing.assert_allclose(clouds.mean(axis=1), 0, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(clouds, axis=2).max(axis=1), 1, atol=1e-5)


def test_a_cloud_depends_on_its_number_split_and_seed_alone():
    seventh = draw_shape(7).cloud()
    assert np.array_equal(seventh, draw_clouds(8).clouds[7])
    others = [
        draw_shape(7, "train"),
        draw_shape(7, "validation"),
        draw_shape(7, seed=2),
        draw_shape(7 + len(SHAPE_CLASSES)),
    ]
    assert not any(np.array_equal(seventh, shape.cloud()) for shape in others)


def test_no_test_shape_is_among_the_shapes_to_train_on():
    test, train = ({cloud.tobytes() for cloud in draw_clouds(300, split).clouds} for split in ("test", "train"))
    assert test.isdisjoint(train)


def test_the_packaged_shapes_are_those_that_are_drawn():
    packaged, some = load_procedural_test(), range(0, TEST_SHAPES, 77)
    assert len(packaged) == TEST_SHAPES == 2000
    assert packaged.labels.tolist() == [number % len(SHAPE_CLASSES) for number in range(TEST_SHAPES)]
    drawn = np.stack([draw_shape(number).cloud() for number in some])
    np.testing.assert_allclose(packaged.clouds[some], drawn, atol=1e-6)


def test_solids_are_stored_exactly_whatever_they_are():
    shapes = [draw_shape(number) for number in range(2 * len(SHAPE_CLASSES))]
    drawn = [solid for shape in shapes for solid in shape.solids]
    for solid, read in zip(drawn, stored_solids(stored(shapes)), strict=True):
        np.testing.assert_allclose(read.corners, solid.corners, rtol=0, atol=1e-9 * np.abs(solid.corners).max())
        assert np.array_equal(read.triangles, solid.triangles)


# -- furniture ---------------------------------------------------------------------------------------------------------


def test_furniture_has_16_classes_which_are_the_first_of_the_procedural_ones(credits):
    test = load_furniture_test()
    assert test.class_names == FURNITURE_CLASSES == SHAPE_CLASSES[:16]
    rows = [row["class_name"] for row in credits if row["split"] == "test"]
    assert rows == [FURNITURE_CLASSES[label] for label in test.labels]
    assert np.bincount(test.labels).min() >= 4
    np.testing.assert_allclose(np.linalg.norm(test.clouds, axis=2).max(axis=1), 1, atol=1e-4)


def test_training_and_test_objects_never_share_a_model_name_even_but_for_digits(credits):
    names = {
        split: {re.sub(r"[^a-z]", "", row["model"].lower()) for row in credits if row["split"] == split}
        for split in ("train", "test")
    }
    assert min(map(len, names.values())) > 100
    assert names["train"].isdisjoint(names["test"])


def test_every_object_has_an_author_and_a_licence_that_allows_it(credits):
    assert all(row["author"] and row["title"] for row in credits)
    assert {row["licence"] for row in credits} == {"CC0-1.0", "CC-BY-3.0", "CC-BY-3.0-US"}


def test_the_packaged_clouds_are_small_and_stored_within_a_step_of_their_place():
    sizes = {"furniture_test.npz": 1_500_000, "procedural_test.npz": 750_000}
    assert all(len((resources.files("pta") / "assets" / name).read_bytes()) <= most for name, most in sizes.items())
    cloud = draw_shape(1).cloud()
    np.testing.assert_allclose(from_stored(as_stored(cloud)), cloud, atol=2e-5)


# -- as sources --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_each_source_is_the_test_clouds_under_its_corruption_with_their_labels(corruption):
    source, test = f"point_shapes/furniture/{corruption}/3", load_furniture_test()
    clouds = open_samples(source, modality=CLOUDS)
    for number in range(0, len(test), 31):
        expected = corrupt_points(test.clouds[number], corruption, 3, seed=1, number=number)
        sample = clouds.samples[number]
        np.testing.assert_allclose(read_cloud(sample.read(), sample.key), expected, atol=1e-6)
        assert len(expected) == corrupted_size(1024, corruption, 3)
    assert clouds.labels.tolist() == test.labels.tolist()
    assert (clouds.name, clouds.class_names, clouds.modality) == (source, FURNITURE_CLASSES, CLOUDS)


def test_a_count_takes_the_first_and_a_fingerprint_is_that_of_the_points():
    first, again, other = (
        open_samples(f"point_shapes/furniture/jitter/{severity}/12").fingerprint for severity in (1, 1, 2)
    )
    assert first == again != other
    assert len(open_samples("point_shapes/furniture/rotate/0/12")) == 12


def test_the_templates_of_the_sources_are_those_of_the_embedded_model():
    assert load_templates("clip", "point_shapes") == POINT_TEMPLATES


@pytest.mark.parametrize(
    "source",
    [
        "point_shapes",
        "point_shapes/",
        "point_shapes/furnitur",
        "point_shapes/furniture/jitter",
        "point_shapes/furniture/jitter/5",
        "point_shapes/furniture/jitter/-1",
        "point_shapes/furniture/jiter/1",
        "point_shapes/furniture/jitter/1/0",
        "point_shapes/furniture/jitter/1/9999",
        "point_shapes/furniture/jitter/1/x",
        "point_shapes/furniture/jitter/1/2/3",
    ],
)
def test_a_wrong_name_is_one_line_that_says_what_there_is(source):
    assert re.search("point_shapes|corruption|severity", refusal(open_samples, source))


def test_class_names_of_ones_own_must_be_as_many():
    names = [f"thing {k}" for k in range(16)]
    assert open_samples("point_shapes/furniture/jitter/1/5", class_names=names).class_names == tuple(names)
    assert "16 classes" in refusal(open_samples, "point_shapes/furniture", class_names=names[:3])


def test_a_model_of_images_is_refused(pta, tmp_path):
    done = pta(
        "extract", "point_shapes/furniture/jitter/1/5", "--model", "embedded", "--out", tmp_path / "a.safetensors"
    )
    assert done.returncode == 2
    assert "cloud" in done.stderr
