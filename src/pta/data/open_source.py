"""`open_source`: samples by the name of their source.

The packaged images have names of their own: `fashion/clean`, `fashion/gaussian_noise/3`, or the first 500 of these,
`fashion/gaussian_noise/3/500`. Those of packaged clouds are in `point_shapes`. Other installed packages declare a NAME
in the entry-point group `pta.sources`: a function `(source, *, root, class_names)` that returns a
`SampleSet` for `NAME` and `NAME/…`.
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

from pta.core.modality import IMAGES, Modality
from pta.core.parameters import require_text, require_texts
from pta.core.plugins import load_plugin
from pta.data import point_shapes
from pta.data.fashion import load_fashion_test
from pta.data.open import open_samples
from pta.data.sample_set import SampleSet
from pta.data.shifts.images import SHIFTS, apply_shift
from pta.door.files import as_path
from pta.door.limits import USUAL_LIMITS
from pta.door.refused_places import require_place_with_samples
from pta.errors import InvalidParameter, UnreadableFile

GROUP = "pta.sources"
_NAME = "fashion"
_SEED = 1  # of a shift's randomness, as in `pta demo`


@dataclass(frozen=True, eq=False)
class PackagedImage:
    """A grey image in memory; `key` is what users see and tables hold."""

    key: str
    pixels: NDArray[np.uint8]

    def read(self, most: int = USUAL_LIMITS.max_bytes) -> bytes:
        """The image as PNG, which loses nothing and is small."""
        encoded = BytesIO()
        Image.fromarray(self.pixels).save(encoded, "png")
        return encoded.getvalue()

    @cached_property
    def stamp(self) -> tuple[str]:
        """The sha256 of the pixels: independent of the package's path, and different after any change of a shift."""
        return (hashlib.sha256(self.pixels.tobytes()).hexdigest(),)


def open_source(
    source: str, *, root: Path | None = None, class_names: Sequence[str] | None = None, modality: Modality = IMAGES
) -> SampleSet:
    """The samples of a source: packaged, of a plugin, or any that `pta.data.open_samples` takes."""
    as_path(source)
    require_place_with_samples(str(source))
    name = str(source).partition("/")[0]
    if name == _NAME:
        return open_fashion(str(source), class_names)
    if name == point_shapes.NAME:
        return point_shapes.open_point_shapes(str(source), class_names)
    declared = load_plugin(GROUP, name, UnreadableFile)
    if declared is None:
        return open_samples(source, root=root, class_names=class_names, modality=modality)
    found = declared(source, root=root, class_names=class_names)
    if not isinstance(found, SampleSet):
        raise UnreadableFile(f"{name} is declared by a plugin, but does not return a pta.data.SampleSet")
    return found


def open_fashion(source: str, class_names: Sequence[str] | None = None) -> SampleSet:
    """The packaged images, clean or under a shift of a severity from 1 to 5; `class_names` replace their own.

    >>> images = open_fashion("fashion/blur/3")
    >>> len(images), images.samples[0].key, images.class_names[images.labels[0]]
    (2000, 'fashion/blur/3/0000', 'ankle boot')
    """
    test = load_fashion_test()
    names = test.class_names if class_names is None else tuple(require_texts("class names", class_names))
    if len(names) != len(test.class_names):
        raise InvalidParameter(f"{source} has {len(test.class_names)} classes, but {len(names)} names are given")
    pixels = _shifted(test.images, source)
    images = tuple(PackagedImage(f"{source}/{number:04d}", image) for number, image in enumerate(pixels))
    return SampleSet(source, names, images, test.labels[: len(images)].astype(np.int64), prompts=_NAME)


def _shifted(images: NDArray[np.uint8], source: str) -> NDArray[np.uint8]:
    match require_text("the name of packaged images", source).split("/")[1:]:
        case ["clean"]:
            return images
        case [shift, severity, *counts] if severity.isdecimal() and len(counts) < 2:
            count = (counts or [str(len(images))])[0]
            if count.isdecimal() and 0 < int(count) <= len(images):
                return apply_shift(images, shift, int(severity), _SEED)[: int(count)]
    raise InvalidParameter(
        f"{source!r} names no packaged images; there are {_NAME}/clean and {_NAME}/SHIFT/SEVERITY, a shift from "
        f"{', '.join(SHIFTS)} and a severity from 1 to 5, perhaps with /COUNT up to {len(images)} "
        f"(for a folder: ./{source})"
    )
