"""The random resized crop, as torchvision defines it, and the flip that follows it."""

import math
from typing import NamedTuple

import numpy as np
from PIL import Image

AREA = (0.08, 1.0)
ASPECT = (3 / 4, 4 / 3)
_TRIES = 10


class Box(NamedTuple):
    """A part of a picture in whole pixels, as Pillow's `crop` takes it."""

    left: int
    top: int
    right: int
    bottom: int


def random_box(width: int, height: int, rng: np.random.Generator) -> Box:
    """A part with a random share of the area and a random aspect; the central one where ten draws do not fit."""
    for _ in range(_TRIES):
        area = width * height * rng.uniform(*AREA)
        aspect = math.exp(rng.uniform(math.log(ASPECT[0]), math.log(ASPECT[1])))
        wide, high = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < high <= height:
            left, top = int(rng.integers(width - wide + 1)), int(rng.integers(height - high + 1))
            return Box(left, top, left + wide, top + high)
    return central_box(width, height)


def central_box(width: int, height: int) -> Box:
    """The largest part in the middle whose aspect is allowed.

    >>> central_box(100, 30)
    Box(left=30, top=0, right=70, bottom=30)
    """
    wide, high = width, height
    if width / height < ASPECT[0]:
        high = round(width / ASPECT[0])
    elif width / height > ASPECT[1]:
        wide = round(height * ASPECT[1])
    left, top = (width - wide) // 2, (height - high) // 2
    return Box(left, top, left + wide, top + high)


def random_crop(picture: Image.Image, size: int, rng: np.random.Generator) -> Image.Image:
    """A random part, scaled to size×size (bilinear, unlike the model's own preprocessing), half of the time flipped."""
    part = picture.crop(random_box(*picture.size, rng)).resize((size, size), Image.Resampling.BILINEAR)
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else part
