"""The packaged part of Fashion-MNIST: the first 2,000 images of its test file (Zalando SE, MIT licence)."""

from dataclasses import dataclass
from importlib import resources

import numpy as np
import numpy.typing as npt

CLASS_NAMES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
"""In the order of the labels 0 … 9."""


@dataclass(frozen=True)
class FashionTest:
    """Images (uint8 N×28×28, light on black), their labels (uint8 N) and the names of the labels."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]
    class_names: tuple[str, ...]


def load_fashion_test() -> FashionTest:
    """The packaged test images; no model of this package was trained or chosen on them.

    >>> test = load_fashion_test()
    >>> test.images.shape, test.class_names[test.labels[0]]
    ((2000, 28, 28), 'ankle boot')
    """
    packaged = resources.files("pta") / "assets" / "fashion_mnist_test_2000.npz"
    with packaged.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return FashionTest(arrays["images"], arrays["labels"], CLASS_NAMES)
