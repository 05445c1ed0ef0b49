"""The packaged part of Fashion-MNIST: the first 2,000 images of its test file (Zalando SE, MIT licence).

As a source: `fashion/clean`, `fashion/gaussian_noise/3`, or the first 500 of these, `fashion/gaussian_noise/3/500`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pta.data.sample_set import SampleSet, names_for, packaged_set
from pta.data.shifts.images import SHIFTS, apply_shift
from pta.door.files import packaged_arrays
from pta.errors import InvalidParameter

NAME = "fashion"
CLASS_NAMES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
"""In the order of the labels 0 … 9."""
_SEED = 1  # of a shift's randomness, as in `pta demo`


@dataclass(frozen=True)
class FashionTest:
    """Images (uint8 N×28×28, light on black), their labels (uint8 N) and the names of the labels."""

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    class_names: tuple[str, ...]


def load_fashion_test() -> FashionTest:
    """The packaged test images; no model of this package was trained or chosen on them.

    >>> test = load_fashion_test()
    >>> test.images.shape, test.class_names[test.labels[0]]
    ((2000, 28, 28), 'ankle boot')
    """
    arrays = packaged_arrays("fashion_mnist_test_2000.npz")
    return FashionTest(arrays["images"], arrays["labels"], CLASS_NAMES)


def as_png(pixels: NDArray[np.uint8]) -> bytes:
    """A grey image as PNG, which loses nothing and is small."""
    encoded = BytesIO()
    Image.fromarray(pixels).save(encoded, "png")
    return encoded.getvalue()


def open_fashion(source: str, class_names: Sequence[str] | None = None) -> SampleSet:
    """The packaged images, clean or under a shift of a severity from 1 to 5; `class_names` replace their own.

    >>> images = open_fashion("fashion/blur/3")
    >>> len(images), images.samples[0].key, images.class_names[images.labels[0]]
    (2000, 'fashion/blur/3/0000', 'ankle boot')
    """
    test = load_fashion_test()
    names = names_for(source, test.class_names, class_names)
    return packaged_set(source, _shifted(test.images, source), as_png, test.labels, names)


def _shifted(images: NDArray[np.uint8], source: str) -> NDArray[np.uint8]:
    match source.split("/")[1:]:
        case ["clean"]:
            return images
        case [shift, severity, *counts] if shift != "clean" and severity.isdecimal() and len(counts) < 2:
            count = (counts or [str(len(images))])[0]
            if count.isdecimal() and 0 < int(count) <= len(images):
                return apply_shift(images, shift, int(severity), _SEED)[: int(count)]
    raise InvalidParameter(
        f"{source!r} does not name packaged images; there are {NAME}/clean and {NAME}/SHIFT/SEVERITY, a shift from "
        f"{', '.join(SHIFTS)} and a severity from 1 to 5, the latter perhaps with /COUNT up to {len(images)} "
        f"(for a folder: ./{source})"
    )
