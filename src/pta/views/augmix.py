"""AugMix (https://arxiv.org/abs/1912.02781) at severity 1, as TPT and its successors use it.

1. Draw w ~ Dirichlet(1, 1, 1) and m ~ Beta(1, 1).
2. Each of three chains starts from the crop x and applies one, two or three random operations.
3. The view is m·x + (1 − m)·Σₖ wₖ·chainₖ, all of them normalised before.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

CHAINS = 3
_LONGEST_CHAIN = 3
_LEVELS = (0.1, 1.0)  # severity 1, out of 10

Operation = Callable[[Image.Image, float], Image.Image]


def autocontrast(picture: Image.Image, level: float) -> Image.Image:
    """Stretch the values of each channel to 0 … 255."""
    return ImageOps.autocontrast(picture)


def equalize(picture: Image.Image, level: float) -> Image.Image:
    """Give each channel a flat histogram."""
    return ImageOps.equalize(picture)


def posterize(picture: Image.Image, level: float) -> Image.Image:
    """Keep the upper bits of each value: four of them at any level of this severity."""
    return ImageOps.posterize(picture, 4 - int(4 * abs(level) / 10))


def rotate(picture: Image.Image, level: float) -> Image.Image:
    """Turn by up to two whole degrees."""
    return picture.rotate(int(30 * level / 10), resample=Image.Resampling.BILINEAR)


def solarize(picture: Image.Image, level: float) -> Image.Image:
    """Invert the brightest values."""
    return ImageOps.solarize(picture, 256 - int(256 * abs(level) / 10))


def shear_x(picture: Image.Image, level: float) -> Image.Image:
    """Lean to a side."""
    return _affine(picture, (1, 0.3 * level / 10, 0, 0, 1, 0))


def shear_y(picture: Image.Image, level: float) -> Image.Image:
    """Lean up or down."""
    return _affine(picture, (1, 0, 0, 0.3 * level / 10, 1, 0))


def translate_x(picture: Image.Image, level: float) -> Image.Image:
    """Move sideways by whole pixels, at most a thirtieth of the width."""
    return _affine(picture, (1, 0, int(picture.width / 3 * level / 10), 0, 1, 0))


def translate_y(picture: Image.Image, level: float) -> Image.Image:
    """Move up or down by whole pixels, at most a thirtieth of the height."""
    return _affine(picture, (1, 0, 0, 0, 1, int(picture.height / 3 * level / 10)))


OPERATIONS: tuple[Operation, ...] = (
    *(autocontrast, equalize, posterize, rotate, solarize),
    *(shear_x, shear_y, translate_x, translate_y),
)
"""What a chain is drawn from. A level of 0.1 … 1 says how much of it; where it has two sides, the sign says which."""


def random_level(rng: np.random.Generator) -> float:
    """How much of an operation: 0.1 … 1, to either side."""
    return float(rng.uniform(*_LEVELS)) * (1 if rng.random() < 0.5 else -1)


def random_chain(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """One to three operations in a row, drawn with replacement."""
    for _ in range(rng.integers(1, _LONGEST_CHAIN + 1)):
        operation = OPERATIONS[rng.integers(len(OPERATIONS))]
        picture = operation(picture, random_level(rng))
    return picture


def random_weights(rng: np.random.Generator) -> tuple[float, NDArray[np.float32]]:
    """The share m of the crop, and the shares w of the chains in the rest."""
    shares = rng.dirichlet(np.ones(CHAINS)).astype(np.float32)
    return float(np.float32(rng.beta(1.0, 1.0))), shares


def mix(crop: Tensor, chains: Sequence[Tensor] | Tensor, m: float, w: NDArray[np.float32]) -> Tensor:
    """The normalised crop and its normalised chains in one view."""
    mixed = sum((float(share) * chain for share, chain in zip(w, chains, strict=True)), torch.zeros_like(crop))
    return m * crop + (1 - m) * mixed


def _affine(picture: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    return picture.transform(picture.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR)
