"""The packaged furniture: clouds of freely licensed models from Sweet Home 3D's catalogues (`training/furniture.py`).

Authors, licences and titles of all models, those of the test and those trained on, are in `data/furniture.csv`.
"""

from importlib import resources

import numpy as np
from numpy.typing import NDArray

from pta.data.labelled_clouds import LabelledClouds
from pta.door.points.cloud import Cloud

FURNITURE_CLASSES = (
    "armchair",
    "bed",
    "bike",
    "bottle",
    "cabinet",
    "car",
    "chair",
    "cup",
    "door",
    "lamp",
    "person",
    "plant",
    "shelf",
    "sofa",
    "table",
    "window",
)
"""In the order of the labels."""

_STEPS = 2**16 - 1  # between −1 and 1; a step is finer than the surface of any model


def load_furniture_test() -> LabelledClouds:
    """The packaged test clouds; no model of this package was trained or chosen on these objects.

    >>> test = load_furniture_test()
    >>> test.clouds.shape[1:], test.class_names[test.labels[0]]
    ((1024, 3), 'armchair')
    """
    packaged = resources.files("pta") / "assets" / "furniture_test.npz"
    with packaged.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        labels = arrays["labels"].astype(np.int64)
        return LabelledClouds(from_stored(arrays["clouds"]), labels, FURNITURE_CLASSES)


def as_stored(cloud: Cloud) -> NDArray[np.uint16]:
    """Coordinates between −1 and 1 as whole numbers of two bytes.

    >>> from_stored(as_stored(np.array([[-1, 0.5, 1]], np.float32))).round(4)
    array([[-1. ,  0.5,  1. ]], dtype=float32)
    """
    return np.round((cloud.astype(np.float64) + 1) / 2 * _STEPS).astype(np.uint16)


def from_stored(stored: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The coordinates again."""
    return (stored * (2 / _STEPS) - 1).astype(np.float32)
