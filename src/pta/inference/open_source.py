"""The packaged images under a shift, as a source of images: `fashion/clean`, `fashion/gaussian_noise/3`, or the first
500 of them, `fashion/gaussian_noise/3/500`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pta.corruptions.shifts import SHIFTS, apply_shift
from pta.datasets.fashion import load_fashion_test
from pta.datasets.open import open_images
from pta.datasets.sample_set import ImageSet
from pta.errors import InvalidParameter

_NAME = "fashion"
_SEED = 1  # of a shift's randomness, as in `pta demo`


@dataclass(frozen=True, eq=False)
class PackagedImage:
    """A grey image in memory; `key` is what users see and tables hold."""

    key: str
    pixels: NDArray[np.uint8]

    def read(self) -> bytes:
        """The image as PNG, which loses nothing."""
        encoded = BytesIO()
        Image.fromarray(self.pixels).save(encoded, "png")
        return encoded.getvalue()

    @cached_property
    def stamp(self) -> tuple[str]:
        """The sha256 of the pixels: the same wherever the package lies, another after any change of a shift."""
        return (hashlib.sha256(self.pixels.tobytes()).hexdigest(),)


def open_source(source: str, *, root: Path | None = None, class_names: Sequence[str] | None = None) -> ImageSet:
    """The images of a source: the packaged ones by name, and whatever `pta.datasets.open_images` takes."""
    if source == _NAME or source.startswith(f"{_NAME}/"):
        return open_fashion(source, class_names)
    return open_images(source, root=root, class_names=class_names)


def open_fashion(source: str, class_names: Sequence[str] | None = None) -> ImageSet:
    """The packaged images, clean or under a shift of a severity from 1 to 5.

    Args:
        source: `fashion/clean`, or `fashion/SHIFT/SEVERITY` with one of `pta.corruptions.shifts.SHIFTS`; or
            `fashion/SHIFT/SEVERITY/COUNT` for the first so many images.
        class_names: in the place of their own, in the order of the labels.

    >>> images = open_fashion("fashion/blur/3")
    >>> len(images), images.images[0].key, images.class_names[images.labels[0]]
    (2000, 'fashion/blur/3/0000', 'ankle boot')
    """
    test = load_fashion_test()
    names = test.class_names if class_names is None else tuple(class_names)
    if len(names) != len(test.class_names):
        raise InvalidParameter(f"{source} has {len(test.class_names)} classes, but {len(names)} names are given")
    pixels = _shifted(test.images, source)
    images = tuple(PackagedImage(f"{source}/{number:04d}", image) for number, image in enumerate(pixels))
    return ImageSet(source, names, images, test.labels[: len(images)].astype(np.int64), prompts=_NAME)


def _shifted(images: NDArray[np.uint8], source: str) -> NDArray[np.uint8]:
    match source.split("/")[1:]:
        case ["clean"]:
            return images
        case [shift, severity] if severity.isdecimal():
            return apply_shift(images, shift, int(severity), _SEED)
        case [shift, severity, count] if severity.isdecimal() and count.isdecimal() and 0 < int(count) <= len(images):
            return apply_shift(images, shift, int(severity), _SEED)[: int(count)]
    raise InvalidParameter(
        f"{source!r} names no packaged images; there are {_NAME}/clean and {_NAME}/SHIFT/SEVERITY, a shift from "
        f"{', '.join(SHIFTS)} and a severity from 1 to 5, perhaps with /COUNT up to {len(images)} "
        f"(for a folder: ./{source})"
    )
