"""Views: the crop, the operations, the mixture, and the mean over the most confident of them."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from photos import decode_image, encoded, smooth
from PIL import Image

from pta import Samples, ZeroShotClassifier
from pta.data.views import (
    AREA,
    ASPECT,
    OPERATIONS,
    central_box,
    confident_mean,
    make_views,
    random_box,
    random_chain,
    random_crop,
    random_level,
    random_weights,
)
from pta.door.images import Preprocessing
from pta.errors import InvalidParameter, InvalidSamples
from pta.run.reading import Views

SMALL = Preprocessing(32)
GREY = Preprocessing(28, resize="square", mean=(0.286,), std=(0.353,))
LEVELS = st.floats(0.1, 1.0) | st.floats(-1.0, -0.1)
SEEDS = st.integers(0, 2**32)


@cache
def picture(width=70, height=50, mode="RGB"):
    """Through a real JPEG file."""
    return decode_image(encoded(smooth(width, height), quality=95)).convert(mode)


def values(image):
    return np.asarray(image).astype(int)


def slow_affine(image, matrix):
    """Where each pixel's centre comes from, and the four neighbours there, in float64; black where that is outside."""
    a, b, c, d, e, f = matrix
    given_ = np.asarray(image, float)
    height, width = given_.shape[:2]
    out = np.zeros_like(given_)
    for y in range(height):
        for x in range(width):
            u, v = a * (x + 0.5) + b * (y + 0.5) + c, d * (x + 0.5) + e * (y + 0.5) + f
            if not (0 <= u < width and 0 <= v < height):
                continue
            left, top = math.floor(u - 0.5), math.floor(v - 0.5)
            right, down = u - 0.5 - left, v - 0.5 - top
            across, along = np.clip([left, left + 1], 0, width - 1), np.clip([top, top + 1], 0, height - 1)
            (p, q), (r, s) = given_[np.ix_(along, across)]
            out[y, x] = (1 - down) * ((1 - right) * p + right * q) + down * ((1 - right) * r + right * s)
    return out


# -- the crop ---------------------------------------------------------------------------------------------------------


@given(st.integers(1, 500), st.integers(1, 500), SEEDS)
def test_a_box_lies_in_the_picture_and_has_the_area_and_aspect_it_may_have(width, height, seed):
    left, top, right, bottom = random_box(width, height, np.random.default_rng(seed))
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    wide, high = right - left, bottom - top
    if (left, top, right, bottom) == central_box(width, height):
        return
    # sides are rounded to pixels, so the bounds hold for sides that are half a pixel longer or shorter
    assert (wide + 0.5) * (high + 0.5) >= 0.08 * width * height
    assert (wide - 0.5) * (high - 0.5) <= width * height
    assert (wide + 0.5) / (high - 0.5) >= 3 / 4
    assert (wide - 0.5) / (high + 0.5) <= 4 / 3


@given(st.integers(1, 2000), st.integers(1, 2000))
def test_the_central_box_is_the_largest_that_is_allowed(width, height):
    left, top, right, bottom = central_box(width, height)
    wide, high = right - left, bottom - top
    assert abs(left - (width - right)) <= 1
    assert abs(top - (height - bottom)) <= 1
    if 3 / 4 <= width / height <= 4 / 3:
        assert (wide, high) == (width, height)
    elif width < height:
        assert (wide, high) == (width, round(width * 4 / 3))
    else:
        assert (wide, high) == (round(height * 4 / 3), height)


def test_the_bounds_are_torchvisions_and_a_picture_that_no_draw_fits_into_gets_the_central_box():
    """The area of a very long picture cannot be had at an aspect near one."""
    assert (AREA, ASPECT) == ((0.08, 1.0), (0.75, 4 / 3))
    assert {random_box(5000, 10, np.random.default_rng(seed)) for seed in range(20)} == {central_box(5000, 10)}


def test_the_area_is_uniform_and_the_aspect_log_uniform():
    rng = np.random.default_rng(1)
    boxes = np.array([random_box(1000, 1000, rng) for _ in range(4000)])
    wide, high = (boxes[:, 2] - boxes[:, 0]).astype(float), (boxes[:, 3] - boxes[:, 1]).astype(float)
    aspect = np.log(wide / high) / np.log(4 / 3)
    assert abs(aspect.mean()) < 0.03
    small = wide * high < 0.5e6  # where every draw fits, so nothing is drawn again
    assert aspect[small].std() == pytest.approx(1 / math.sqrt(3), abs=0.03)
    share = wide[small] * high[small] / 1e6
    assert share.mean() == pytest.approx((0.08 + 0.5) / 2, abs=0.01)
    assert share.min() < 0.09
    room = boxes[:, 0] / np.maximum(1000 - wide, 1)
    assert room.mean() == pytest.approx(0.5, abs=0.03)


def test_a_crop_is_its_box_scaled_bilinearly_and_flipped_half_of_the_time():
    image, flips = picture(), 0
    for seed in range(300):
        rng, twin = np.random.default_rng(seed), np.random.default_rng(seed)
        found = random_crop(image, 24, rng)
        plain = image.crop(random_box(70, 50, twin)).resize((24, 24), Image.Resampling.BILINEAR)
        flipped = not np.array_equal(values(found), values(plain))
        assert np.array_equal(values(found), values(plain)[:, ::-1] if flipped else values(plain))
        flips += flipped
    assert 120 < flips < 180


# -- the operations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["RGB", "L"])
@given(level=LEVELS)
def test_posterize_always_keeps_four_bits(mode, level):
    image = picture(mode=mode)
    assert np.array_equal(values(OPERATIONS["posterize"](image, level)), values(image) & 0xF0)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@given(level=LEVELS)
def test_solarize_inverts_from_a_threshold_between_231_and_254(mode, level):
    image = Image.fromarray(np.tile(np.arange(256, dtype=np.uint8), (4, 1))).convert(mode)
    threshold = 256 - int(25.6 * abs(level))
    assert 231 <= threshold <= 254
    given_ = values(image)
    assert np.array_equal(
        values(OPERATIONS["solarize"](image, level)), np.where(given_ < threshold, given_, 255 - given_)
    )


WIDTH, HEIGHT = 61, 34


def whole(number):
    return math.copysign(math.floor(abs(number)), number)


def turned(degrees):
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    x, y = WIDTH / 2, HEIGHT / 2
    return cos, -sin, x - x * cos + y * sin, sin, cos, y - x * sin - y * cos


MATRICES = {
    "rotate": lambda level: turned(whole(3 * level)),  # by whole degrees, at most two; a level of one is never drawn
    "shear_x": lambda level: (1, 0.03 * level, 0, 0, 1, 0),
    "shear_y": lambda level: (1, 0, 0, 0.03 * level, 1, 0),
    "translate_x": lambda level: (1, 0, whole(WIDTH / 30 * level), 0, 1, 0),  # by whole pixels, 7 of 224 at most
    "translate_y": lambda level: (1, 0, 0, 0, 1, whole(HEIGHT / 30 * level)),
}


@pytest.mark.parametrize("level", [-1.0, -0.7, 0.1, 0.34, 0.99])
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("operation", MATRICES)
def test_affine_operations_equal_the_slow_ones(operation, mode, level):
    image = picture(WIDTH, HEIGHT, mode)
    difference = np.abs(values(OPERATIONS[operation](image, level)) - slow_affine(image, MATRICES[operation](level)))
    edge = 2 if operation == "rotate" else 0  # at the border a pixel may be just inside or just outside
    assert difference[edge : HEIGHT - edge, edge : WIDTH - edge].max() <= 1


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_autocontrast_stretches_and_equalize_flattens_each_channel(mode):
    image = picture(mode=mode).point(lambda value: 60 + value // 3)
    stretched, flat = (
        values(OPERATIONS[name](image, 0.5)).reshape(50 * 70, len(mode)) for name in ("autocontrast", "equalize")
    )
    assert stretched.min(axis=0).tolist() == [0] * len(mode)
    assert stretched.max(axis=0).tolist() == [255] * len(mode)
    for channel in flat.T:
        below = [(channel < bound).mean() for bound in (64, 128, 192)]
        assert below == pytest.approx([0.25, 0.5, 0.75], abs=0.08)


def test_levels_are_uniform_from_a_tenth_to_one_on_either_side():
    rng = np.random.default_rng(1)
    levels = np.array([random_level(rng) for _ in range(4000)])
    assert np.abs(levels).min() >= 0.1
    assert np.abs(levels).max() <= 1.0
    assert np.abs(levels).mean() == pytest.approx(0.55, abs=0.02)
    assert np.abs(levels).std() == pytest.approx(0.9 / math.sqrt(12), abs=0.01)
    assert (levels > 0).mean() == pytest.approx(0.5, abs=0.03)


def test_a_chain_is_one_to_three_operations_drawn_uniformly_with_replacement(monkeypatch):
    called = []
    spies = [lambda image, level, number=number: (called.append(number), image)[1] for number in range(9)]
    monkeypatch.setattr("pta.data.views._DRAWN", tuple(spies))
    rng, chains = np.random.default_rng(1), []
    for _ in range(4000):
        called.clear()
        random_chain(picture(4, 4), rng)
        chains.append(tuple(called))
    lengths = np.bincount([len(chain) for chain in chains], minlength=4)
    assert lengths[0] == 0
    assert lengths[1:] / 4000 == pytest.approx([1 / 3] * 3, abs=0.03)
    drawn = np.bincount([number for chain in chains for number in chain])
    assert drawn / drawn.sum() == pytest.approx([1 / 9] * 9, abs=0.015)
    assert any(len(set(chain)) < len(chain) for chain in chains)


def test_the_nine_operations_are_those_of_the_released_program():
    names = "autocontrast equalize posterize rotate solarize shear_x shear_y translate_x translate_y"
    assert list(OPERATIONS) == names.split()


# -- the mixture ------------------------------------------------------------------------------------------------------


def test_weights_are_uniform_shares():
    rng = np.random.default_rng(1)
    drawn = [random_weights(rng) for _ in range(4000)]
    m, w = np.array([one for one, _ in drawn]), np.stack([own for _, own in drawn])
    assert w.dtype == np.float32
    assert w.shape == (4000, 3)
    assert w.sum(axis=1) == pytest.approx(np.ones(4000), abs=1e-6)
    assert (m.mean(), m.std()) == (pytest.approx(0.5, abs=0.02), pytest.approx(1 / math.sqrt(12), abs=0.01))
    assert w.mean(axis=0) == pytest.approx([1 / 3] * 3, abs=0.02)
    assert w.std(axis=0) == pytest.approx([1 / math.sqrt(18)] * 3, abs=0.01)  # of Dirichlet(1, 1, 1)


@pytest.mark.parametrize(("preprocessing", "mode"), [(SMALL, "RGB"), (GREY, "L")])
def test_a_view_is_a_normalised_crop_or_mixed_from_one(preprocessing, mode):
    image = picture()
    plain, mixed = (make_views(image, preprocessing, count=2, mode=own, seed=9)[1] for own in ("crops", "augmix"))
    rng = np.random.default_rng(9)
    crop = random_crop(image.convert(mode), preprocessing.size, rng)
    m, w = random_weights(rng)
    mean, std = (np.array(numbers)[:, None, None] for numbers in (preprocessing.mean, preprocessing.std))
    ready = [
        (values(one).reshape(preprocessing.size, preprocessing.size, -1).transpose(2, 0, 1) / 255 - mean) / std
        for one in (crop, *(random_chain(crop, rng) for _ in range(3)))
    ]
    expected = m * ready[0] + (1 - m) * sum(float(share) * chain for share, chain in zip(w, ready[1:], strict=True))
    assert np.abs(plain.numpy() - ready[0]).max() < 1e-5
    assert np.abs(mixed.numpy() - expected).max() < 1e-5


# -- the views --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["augmix", "crops"])
@pytest.mark.parametrize("preprocessing", [SMALL, GREY, Preprocessing(17)])
def test_the_first_view_is_what_the_model_sees_and_the_others_come_from_the_seed(preprocessing, mode):
    image, channels, size = picture(), len(preprocessing.mean), preprocessing.size
    one = make_views(image, preprocessing, count=6, mode=mode, seed=(1, 7))
    assert (one.shape, one.dtype) == ((6, channels, size, size), torch.float32)
    assert torch.equal(one[0], preprocessing(image)[0])
    assert torch.equal(one, make_views(image, preprocessing, count=6, mode=mode, seed=(1, 7)))
    assert torch.equal(one[:3], make_views(image, preprocessing, count=3, mode=mode, seed=(1, 7)))
    for seed in ((1, 8), (2, 7), 1):
        other = make_views(image, preprocessing, count=6, mode=mode, seed=seed)
        assert torch.equal(one[0], other[0])
        assert not any(torch.equal(a, b) for a, b in zip(one[1:], other[1:], strict=True))


@given(st.integers(1, 90), st.integers(1, 90), st.sampled_from(["RGB", "L", "RGBA", "P", "CMYK"]), SEEDS)
def test_any_picture_gives_finite_views_within_the_range_of_pixels(width, height, kind, seed):
    image = picture(width, height).convert(kind)
    views = make_views(image, SMALL, count=3, mode="augmix", seed=seed)
    mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (SMALL.mean, SMALL.std))
    pixels = views * std + mean
    assert pixels.min() > -1e-4
    assert pixels.max() < 1 + 1e-4


def test_views_are_made_from_the_picture_and_not_from_the_first_view():
    """The centre crop of this picture is black; crops of the picture are not."""
    image = Image.new("RGB", (200, 40), "white")
    image.paste("black", (60, 0, 140, 40))
    views = make_views(image, SMALL, count=20, mode="crops", seed=1)
    black = views[0].min()
    assert views[0].max() < SMALL(Image.new("RGB", (9, 9), "white")).min()
    assert (views[1:] > black + 1).any()


def test_there_is_at_least_one_view_and_a_mode_is_known_by_name():
    assert make_views(picture(), SMALL, count=1, mode="crops", seed=1).shape[0] == 1
    with pytest.raises(InvalidParameter, match="an image can have 2 to 1024 views, not 0"):
        Views(0, "crops")
    with pytest.raises(InvalidParameter, match="did you mean 'augmix'"):
        Views(2, "augmx")


# -- the mean of the most confident ---------------------------------------------------------------------------------


def slow_mean(views, anchors, scale, keep):
    """Views sorted by entropy, the first int(V·keep) averaged, in float64."""
    means = []
    for own in views:
        unit = [view / np.sqrt((view**2).sum()) for view in own]
        entropies = []
        for view in unit:
            z = np.array([scale * (anchor @ view) for anchor in anchors])
            p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
            entropies.append(-sum(q * math.log(q) for q in p if q > 0))
        most_confident = sorted(range(len(unit)), key=lambda v: entropies[v])[: max(1, int(len(unit) * keep))]
        means.append(sum(unit[v] for v in most_confident) / len(most_confident))
    return np.array(means)


def mean_of(views, classifier, **options):
    return confident_mean(Samples.of(views[:, 0].nan_to_num(1.0), views=views), classifier, **options)


@given(st.integers(1, 5), st.integers(1, 20), st.sampled_from([0.05, 0.1, 0.5, 1.0]), SEEDS)
def test_the_confident_mean_equals_the_slow_one(count, views, keep, seed):
    rng = np.random.default_rng(seed)
    anchors, features = rng.standard_normal((4, 6)), rng.standard_normal((count, views, 6))
    classifier = ZeroShotClassifier(anchors, list("abcd"), scale=5.0, bias=-2.0)
    found = mean_of(torch.tensor(features), classifier, keep=keep)
    expected = slow_mean(features, classifier.anchors.numpy(), 5.0, keep)
    assert np.abs(found.features.numpy() - expected).max() < 1e-12


def test_of_64_views_six_are_kept_and_their_mean_is_not_scaled_again():
    views = torch.tensor(np.random.default_rng(1).standard_normal((3, 64, 8)))
    found = mean_of(views, ZeroShotClassifier(np.eye(8), list("abcdefgh"), scale=10.0))
    assert found.most_confident.shape == (3, 6, 8)
    assert torch.allclose(found.features, found.most_confident.mean(dim=1))
    assert (found.features.norm(dim=1) < 0.99).all()


def test_equal_views_give_their_feature_back_and_ties_go_to_the_first():
    classifier = ZeroShotClassifier(np.eye(3), list("abc"))
    one = torch.tensor([0.0, 0.6, 0.8])
    assert torch.allclose(mean_of(one.expand(2, 10, 3), classifier, keep=0.5).features, one.expand(2, 3).double())
    mirrored = torch.tensor([[[0.9, 0.1, 0.0], [0.1, 0.9, 0.0]]])  # equally sure
    assert mean_of(mirrored, classifier).features.argmax() == 0


def test_samples_are_taken_part_by_part_without_changing_anything(monkeypatch):
    rng = np.random.default_rng(1)
    classifier = ZeroShotClassifier(rng.standard_normal((4, 6)), list("abcd"))
    views = torch.tensor(rng.standard_normal((9, 7, 6)))
    whole = mean_of(views, classifier, keep=0.5).features
    monkeypatch.setattr("pta.data.views._LOGITS_AT_ONCE", 2 * 7 * 4)
    torch.testing.assert_close(mean_of(views, classifier, keep=0.5).features, whole)


def test_half_precision_views_are_averaged_in_the_classifiers_precision():
    rng = np.random.default_rng(1)
    classifier = ZeroShotClassifier(rng.standard_normal((4, 6)).astype(np.float32), list("abcd"))
    views = torch.tensor(rng.standard_normal((9, 20, 6))).half()
    found = mean_of(views, classifier).features
    assert found.dtype == torch.float32
    assert (found - mean_of(views.float(), classifier).features).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("views", "complaint"),
    [
        (torch.ones(3, 2, 5), "5 dimensions but the classifier's anchors have 6"),
        (torch.ones(3, 2, 6).index_fill(1, torch.tensor([1]), 0.0), "views: number 1 of sample 0"),
        (torch.ones(3, 2, 6).index_fill(0, torch.tensor([2]), math.nan), "views: number 0 of sample 2"),
    ],
)
def test_views_that_cannot_be_used_are_one_clear_line(views, complaint):
    with pytest.raises(InvalidSamples, match=complaint):
        mean_of(views, ZeroShotClassifier(np.eye(6), list("abcdef")))


@pytest.mark.parametrize("keep", [0.0, 1.1, -1.0, math.nan])
def test_the_share_that_is_kept_is_a_share(keep):
    with pytest.raises(InvalidParameter, match="keep must be a share"):
        mean_of(torch.ones(1, 1, 2), ZeroShotClassifier(np.eye(2), list("ab")), keep=keep)
