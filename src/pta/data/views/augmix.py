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


def _affine(picture: Image.Image, *matrix: float) -> Image.Image:
    return picture.transform(picture.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR)


OPERATIONS: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "autocontrast": lambda picture, level: ImageOps.autocontrast(picture),
    "equalize": lambda picture, level: ImageOps.equalize(picture),
    "posterize": lambda picture, level: ImageOps.posterize(picture, 4 - int(4 * abs(level) / 10)),  # four bits, always
    "rotate": lambda picture, level: picture.rotate(int(30 * level / 10), resample=Image.Resampling.BILINEAR),
    "solarize": lambda picture, level: ImageOps.solarize(picture, 256 - int(256 * abs(level) / 10)),
    "shear_x": lambda picture, level: _affine(picture, 1, 0.3 * level / 10, 0, 0, 1, 0),
    "shear_y": lambda picture, level: _affine(picture, 1, 0, 0, 0.3 * level / 10, 1, 0),
    # By whole pixels, at most a thirtieth of the side.
    "translate_x": lambda picture, level: _affine(picture, 1, 0, int(picture.width / 3 * level / 10), 0, 1, 0),
    "translate_y": lambda picture, level: _affine(picture, 1, 0, 0, 0, 1, int(picture.height / 3 * level / 10)),
}
"""What a chain is drawn from. A level of 0.1 … 1 says how much of it; where it has two sides, the sign says which."""

_DRAWN = tuple(OPERATIONS.values())


def random_level(rng: np.random.Generator) -> float:
    """How much of an operation: 0.1 … 1, to either side."""
    return float(rng.uniform(*_LEVELS)) * (1 if rng.random() < 0.5 else -1)


def random_chain(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """One to three operations in a row, drawn with replacement."""
    for _ in range(rng.integers(1, _LONGEST_CHAIN + 1)):
        picture = _DRAWN[rng.integers(len(_DRAWN))](picture, random_level(rng))
    return picture


def random_weights(rng: np.random.Generator) -> tuple[float, NDArray[np.float32]]:
    """The share m of the crop, and the shares w of the chains in the rest."""
    shares = rng.dirichlet(np.ones(CHAINS)).astype(np.float32)
    return float(np.float32(rng.beta(1.0, 1.0))), shares


def mix(crop: Tensor, chains: Sequence[Tensor] | Tensor, m: float, w: NDArray[np.float32]) -> Tensor:
    """The normalised crop and its normalised chains in one view."""
    mixed = sum((float(share) * chain for share, chain in zip(w, chains, strict=True)), torch.zeros_like(crop))
    return m * crop + (1 - m) * mixed
