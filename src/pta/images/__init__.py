"""Image files to pixels, with Pillow alone."""

from pta.images.preprocessing import CLIP_PREPROCESSING, Preprocessing
from pta.images.reading import as_picture, decode_image, read_image

__all__ = ["CLIP_PREPROCESSING", "Preprocessing", "as_picture", "decode_image", "read_image"]
