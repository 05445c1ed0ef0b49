"""Image files and frames to pixels, as Pillow makes them."""

from pta.door.images.device import DevicePreprocessing
from pta.door.images.preprocessing import CLIP_PREPROCESSING, Preprocessing
from pta.door.images.reading import as_picture, load_image, open_image

__all__ = [
    "CLIP_PREPROCESSING",
    "DevicePreprocessing",
    "Preprocessing",
    "as_picture",
    "load_image",
    "open_image",
]
