"""Image files to pixels, with Pillow alone."""

from pta.images.preprocessing import CLIP_PREPROCESSING, Preprocessing
from pta.images.reading import decode_image, read_image

__all__ = ["CLIP_PREPROCESSING", "Preprocessing", "decode_image", "read_image"]
