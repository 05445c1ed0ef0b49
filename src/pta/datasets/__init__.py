"""Labelled data to adapt on and to measure with."""

from pta.datasets.open import open_images
from pta.datasets.sample_set import FileImage, ImageSet, TarImage

__all__ = ["FileImage", "ImageSet", "TarImage", "open_images"]
