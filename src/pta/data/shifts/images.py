"""Named shifts of small grey images, in five severities.

The kinds and their tables follow the common-corruption benchmarks (Hendrycks & Dietterich, 2019), scaled to
images of about 28×28; the constants were set beforehand and not fitted to any result.
"""

from collections.abc import Callable
from numbers import Integral

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

from pta.core.parameters import require_seed, require_text
from pta.errors import InvalidParameter, nearest, shown

Images = npt.NDArray[np.uint8]
Random = np.random.Generator


def gaussian_noise(images: Images, severity: int, rng: Random) -> Images:
    """Independent noise on every pixel."""
    deviation = (0.08, 0.12, 0.18, 0.26, 0.38)[severity - 1]  # of the full range
    return _to_uint8(images + 255 * deviation * rng.standard_normal(images.shape))


def blur(images: Images, severity: int, rng: Random) -> Images:
    """Gaussian blur."""
    radius = (0.5, 0.75, 1.0, 1.5, 2.0)[severity - 1]  # pixels
    return _each(images, lambda image, _: image.filter(ImageFilter.GaussianBlur(radius)))


def contrast(images: Images, severity: int, rng: Random) -> Images:
    """Pixels drawn towards the mean of their image."""
    kept = (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    means = images.mean(axis=(1, 2), keepdims=True)
    return _to_uint8(means + kept * (images - means))


def rotate(images: Images, severity: int, rng: Random) -> Images:
    """A turn to either side about the centre; the corners that come in are black."""
    angle = (10, 15, 20, 30, 40)[severity - 1]  # degrees
    signs = rng.choice((-1, 1), size=len(images))
    return _each(images, lambda image, i: image.rotate(angle * signs[i], Image.Resampling.BILINEAR))


def pixelate(images: Images, severity: int, rng: Random) -> Images:
    """Fewer, larger pixels."""
    kept = (0.6, 0.5, 0.4, 0.3, 0.2)[severity - 1]  # of each side

    def coarse(image: Image.Image, _: int) -> Image.Image:
        small = (max(1, round(kept * image.width)), max(1, round(kept * image.height)))
        return image.resize(small, Image.Resampling.BOX).resize(image.size, Image.Resampling.BOX)

    return _each(images, coarse)


_PURE = (gaussian_noise, blur, contrast, rotate, pixelate)


def mixed(images: Images, severity: int, rng: Random) -> Images:
    """One of the other shifts for each image, drawn at random."""
    drawn = rng.integers(len(_PURE), size=len(images))
    shifted = np.empty_like(images)
    for kind, shift in enumerate(_PURE):
        shifted[drawn == kind] = shift(images[drawn == kind], severity, rng)
    return shifted


_BY_NAME = {shift.__name__: shift for shift in (*_PURE, mixed)}

SHIFTS = tuple(_BY_NAME)
"""The names that `apply_shift` knows."""


def apply_shift(images: Images, name: str, severity: int, seed: int) -> Images:
    """The images (uint8 N×H×W) under the shift `name` of severity 1 … 5; the same seed gives the same pixels.

    >>> half_lit = np.zeros((1, 4, 4), np.uint8)
    >>> half_lit[:, :2] = 200
    >>> apply_shift(half_lit, "contrast", severity=2, seed=1)[0, :, 0]
    array([150, 150,  50,  50], dtype=uint8)
    """
    if require_text("the name of a shift", name) not in _BY_NAME:
        raise InvalidParameter(f"unknown shift {name!r}; {nearest(name, SHIFTS)}")
    if not isinstance(severity, Integral) or not 1 <= severity <= 5:
        raise InvalidParameter(f"severity must be a whole number from 1 to 5, not {shown(severity)}")
    if not isinstance(images, np.ndarray):
        raise InvalidParameter(f"images must be a uint8 array N×H×W, not {type(images).__name__}")
    if images.dtype != np.uint8 or images.ndim != 3 or 0 in images.shape[1:]:
        shape = "×".join(map(str, images.shape))
        raise InvalidParameter(
            f"images must be a uint8 array N×H×W, not {images.dtype} of shape {shape}; "
            "convert grey values to 0 … 255 and add the axis of a single image with images[None]"
        )
    return _BY_NAME[name](images, severity, np.random.default_rng(require_seed(seed)))


def _each(images: Images, change: Callable[[Image.Image, int], Image.Image]) -> Images:
    changed = np.empty_like(images)
    for i, image in enumerate(images):
        changed[i] = np.asarray(change(Image.fromarray(image), i))
    return changed


def _to_uint8(values: npt.NDArray[np.float64]) -> Images:
    return values.round().clip(0, 255).astype(np.uint8)
