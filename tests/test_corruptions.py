"""The named shifts of grey images."""

import numpy as np
import pytest
from PIL import Image

from pta.data.fashion import load_fashion_test
from pta.data.shifts.images import SHIFTS, apply_shift
from pta.errors import InvalidParameter


@pytest.fixture(scope="module")
def images():
    return load_fashion_test().images[:200]


def distance(a, b):
    return float(np.sqrt(((a.astype(float) - b) ** 2).mean()))


@pytest.mark.parametrize("name", SHIFTS)
class TestEveryShift:
    def test_gives_the_same_pixels_for_the_same_seed(self, images, name):
        again = apply_shift(images, name, 3, seed=7)
        assert np.array_equal(apply_shift(images, name, 3, seed=7), again)

    def test_keeps_shape_and_type_and_leaves_its_input_alone(self, images, name):
        before = images.copy()
        shifted = apply_shift(images, name, 5, seed=1)
        assert shifted.shape == images.shape
        assert shifted.dtype == np.uint8
        assert np.array_equal(images, before)
        assert not np.shares_memory(images, shifted)

    def test_moves_further_from_the_clean_images_with_every_severity(self, images, name):
        distances = [distance(images, apply_shift(images, name, severity, seed=1)) for severity in range(1, 6)]
        assert distances[0] > 0
        assert distances == sorted(set(distances))

    def test_accepts_any_number_of_images_of_any_shape_that_may_be_read_only(self, name):
        for shape in ((3, 5, 9), (0, 28, 28)):
            frozen = np.full(shape, 100, np.uint8)
            frozen.flags.writeable = False
            assert apply_shift(frozen, name, 5, seed=1).shape == shape


@pytest.mark.parametrize("name", ["gaussian_noise", "rotate", "mixed"])
def test_another_seed_gives_other_pixels(images, name):
    assert not np.array_equal(apply_shift(images, name, 3, seed=1), apply_shift(images, name, 3, seed=2))


def turned(images, angle):
    return np.stack([Image.fromarray(image).rotate(angle, Image.Resampling.BILINEAR) for image in images])


def equal_images(a, b):
    return (a == b).all(axis=(1, 2))


def test_rotate_turns_to_both_sides(images):
    shifted = apply_shift(images, "rotate", 1, seed=1)
    left, right = equal_images(shifted, turned(images, 10)), equal_images(shifted, turned(images, -10))
    assert (left | right).all()
    assert left.sum() > 60
    assert right.sum() > 60


def test_mixed_gives_each_image_one_of_the_five_others(images):
    shifted = apply_shift(images, "mixed", 5, seed=1)
    kinds = {name: equal_images(shifted, apply_shift(images, name, 5, seed=1)) for name in SHIFTS[1:5]}
    kinds["rotate"] = equal_images(shifted, turned(images, 40)) | equal_images(shifted, turned(images, -40))
    # No noisy image can be foretold; noise is what makes half of the black background grey.
    kinds["gaussian_noise"] = (shifted[:, :2] > 0).mean(axis=(1, 2)) > 0.25
    kinds["gaussian_noise"] &= ~np.logical_or.reduce([kinds[name] for name in SHIFTS[1:5]])
    counts = {name: int(matches.sum()) for name, matches in kinds.items()}
    assert sum(counts.values()) == len(images)
    assert min(counts.values()) > 20


def test_there_are_six_shifts_and_an_unknown_one_is_answered_with_the_nearest(images):
    assert SHIFTS == ("gaussian_noise", "blur", "contrast", "rotate", "pixelate", "mixed")
    with pytest.raises(InvalidParameter, match=r"'blurr'; did you mean 'blur'\?"):
        apply_shift(images, "blurr", 1, seed=1)


@pytest.mark.parametrize("severity", [0, 6, -1, 2.5, "3"])
def test_a_severity_outside_one_to_five_is_rejected(images, severity):
    with pytest.raises(InvalidParameter, match="from 1 to 5"):
        apply_shift(images, "blur", severity, seed=1)


@pytest.mark.parametrize(
    "wrong",
    [np.zeros((2, 28, 28)), np.zeros((28, 28), np.uint8), np.zeros((2, 28, 28, 3), np.uint8)],
    ids=["float", "one image", "colour"],
)
def test_anything_but_grey_uint8_images_is_rejected(wrong):
    with pytest.raises(InvalidParameter, match="uint8 array N×H×W"):
        apply_shift(wrong, "blur", 1, seed=1)
