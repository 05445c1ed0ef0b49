"""Labelled data to adapt on and to measure with."""

from pta.datasets.images import FileImage, ImageSet, TarImage
from pta.datasets.open import open_images

__all__ = ["FileImage", "ImageSet", "TarImage", "open_images"]
