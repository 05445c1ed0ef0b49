"""How Pillow resizes, in closed form: its own weights, and its own order of the two passes."""

import numpy as np
import pytest
import torch
from PIL import Image

from pta.door.images.preprocessing import FILTERS
from pta.door.images.resize_weights import BITS, across_first, count_taps, line_weights, needed_pixels

SIZE = 16


def lengths_of_lines(count, seed=0):
    """Lines of cameras and thumbnails, made longer or shorter, and where the part begins that is kept of them."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        before, after = int(4000 ** rng.random()), int(rng.integers(SIZE, 400))
        yield before, after, int(rng.integers(after - SIZE + 1))


def assert_weights_are_pillows(lengths, first, weights, resample):
    """A line of 32-bit zeros with a 2²² now and then comes out of Pillow as weights, rounded as they are for bytes.

    The line is sent as often as there are weights, and shifted by one each time, so that each comes out alone.
    """
    before, after, start = lengths
    apart = len(weights) + 1
    impulses = (np.arange(before) % apart == np.arange(apart)[:, None]).astype(np.int32) << BITS
    resized = np.asarray(Image.fromarray(impulses).resize((after, apart), FILTERS[resample]))[:, start : start + SIZE]
    places = (first + np.arange(apart)[:, None]) % apart
    expected = np.take_along_axis(resized, places, axis=0)
    assert np.array_equal(np.vstack((weights, np.zeros_like(first))), expected), lengths
    used = np.nonzero(weights)[0] + np.broadcast_to(first, weights.shape)[np.nonzero(weights)]
    low, high = needed_pixels(*lengths, SIZE, resample)
    assert low <= used.min() <= used.max() < high <= before


@pytest.mark.parametrize("resample", FILTERS)
def test_weights_are_pillows_for_5000_sizes(resample):
    lengths = sorted(
        lengths_of_lines(5000 // len(FILTERS)), key=lambda line: line[0] / line[1]
    )  # of like numbers of taps
    for part in (lengths[start : start + 50] for start in range(0, len(lengths), 50)):
        first, weights = line_weights(part, SIZE, resample)
        for row, line in enumerate(part):
            taps = count_taps(*line[:2], resample)
            assert not weights[taps:, row].any()
            assert_weights_are_pillows(line, first[row].numpy(), weights[:taps, row].numpy(), resample)


def pillow_goes_across_first(size, resized):
    """Noise, resized at once and in two steps, shows which pass comes first; None where both orders give the same."""
    rng = np.random.default_rng(0)
    for _ in range(64):
        noise = Image.fromarray(rng.integers(0, 256, size[::-1], np.uint8))
        across = noise.resize((resized[0], size[1]), Image.Resampling.BICUBIC).resize(resized, Image.Resampling.BICUBIC)
        down = noise.resize((size[0], resized[1]), Image.Resampling.BICUBIC).resize(resized, Image.Resampling.BICUBIC)
        if across != down:
            return noise.resize(resized, Image.Resampling.BICUBIC) == across
    return None


@pytest.mark.parametrize("more", [-1, 0, 1, None])
def test_passes_come_in_pillows_order(more):
    """Also where the height shrinks by about twice as many pixels as the width, on either side of the border."""
    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(80):
        width, height, across, down = (int(side) for side in rng.integers(2, 90, 4))
        if more is not None:
            width, height = across + width, down + 2 * width + more
        expected = pillow_goes_across_first((width, height), (across, down))
        if expected is not None:
            assert across_first(width, height, across, down) == expected
            seen.add(expected)
    assert seen


def test_a_line_of_the_same_length_is_copied():
    first, weights = line_weights([(40, 40, 7)], SIZE, "bicubic")
    copied = torch.zeros(weights.shape[0], SIZE, dtype=torch.int32)
    copied[torch.arange(7, 7 + SIZE) - first[0], torch.arange(SIZE)] = 1 << BITS
    assert torch.equal(weights[:, 0], copied)
