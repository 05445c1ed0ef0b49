"""Decoding image files that may be damaged, hostile or no images at all."""

import io

import numpy as np
from PIL import Image, UnidentifiedImageError

from pta.errors import UnreadableSample

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""What is decoded; other formats that Pillow knows have been a source of trouble."""

MAX_PIXELS = 89_478_485  # where Pillow begins to warn


def decode_image(content: bytes, name: str = "the image", *, at_least: int | None = None) -> Image.Image:
    """Decode an image, after its size was found to be sane; `name` is what messages call it.

    With `at_least`, a JPEG file is decoded at ½, ¼ or ⅛ of its size where that leaves both sides at least so long:
    faster, and a slightly different picture.
    """
    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)
        if image.width * image.height > MAX_PIXELS:
            raise UnreadableSample(
                f"{name} has {image.width}×{image.height} pixels; at most {MAX_PIXELS // 10**6} million are decoded"
            )
        if at_least is not None:
            image.draft("RGB", (at_least, at_least))
        image.load()
    except UnreadableSample:
        raise
    except Image.DecompressionBombError:
        raise UnreadableSample(f"{name} would decode to far too many pixels (a decompression bomb?)") from None
    except UnidentifiedImageError:
        raise UnreadableSample(f"{name} is no image that pta reads ({', '.join(FORMATS)})") from None
    except Exception as error:  # decoders of damaged files raise whatever they like
        raise UnreadableSample(f"{name} cannot be decoded: {str(error) or type(error).__name__}") from None
    return image


def as_picture(image: object) -> Image.Image:
    """A Pillow image from a Pillow image or a uint8 array of rows×columns(×3, red first), such as a frame."""
    if isinstance(image, Image.Image):
        return image
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and (image.ndim == 2 or image.shape[2:] == (3,)):
        return Image.fromarray(image)
    what = f"{image.dtype} array of shape {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
    raise UnreadableSample(f"expected a path, bytes, a Pillow image or a uint8 array rows×columns×3, got {what}")
