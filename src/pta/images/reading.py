"""Opening image files that may be damaged, hostile or no images at all."""

import io
import stat
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from pta.errors import UnreadableImage, reason

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""What is decoded; other formats that Pillow knows have been a source of trouble."""

MAX_PIXELS = 89_478_485  # where Pillow begins to warn
MAX_BYTES = 256 * 2**20


def read_image(path: Path) -> bytes:
    """The content of an image file, still encoded, unless it is absurdly large."""
    if "\0" in str(path):
        raise UnreadableImage(f"{str(path)[:100]!a}… is no path: it holds a zero byte (paths stand one a line)")
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableImage(f"{path} is no file")
        if status.st_size > MAX_BYTES:
            raise UnreadableImage(f"{path} has {status.st_size >> 20} MiB; at most {MAX_BYTES >> 20} are read")
        return path.read_bytes()
    except OSError as error:
        raise UnreadableImage(f"{path} cannot be read: {reason(error)}") from None


def decode_image(content: bytes, name: str = "the image", *, at_least: int | None = None) -> Image.Image:
    """Decode an image, after its size was found to be sane; `name` is what messages call it.

    With `at_least`, a JPEG file is decoded at ½, ¼ or ⅛ of its size where that leaves both sides at least so long:
    faster, and a slightly different picture.
    """
    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)
        if image.width * image.height > MAX_PIXELS:
            raise UnreadableImage(
                f"{name} has {image.width}×{image.height} pixels; at most {MAX_PIXELS // 10**6} million are decoded"
            )
        if at_least is not None:
            image.draft("RGB", (at_least, at_least))
        image.load()
    except UnreadableImage:
        raise
    except Image.DecompressionBombError:
        raise UnreadableImage(f"{name} would decode to far too many pixels (a decompression bomb?)") from None
    except UnidentifiedImageError:
        raise UnreadableImage(f"{name} is no image that pta reads ({', '.join(FORMATS)})") from None
    except Exception as error:  # decoders of damaged files raise whatever they like
        raise UnreadableImage(f"{name} cannot be decoded: {str(error) or type(error).__name__}") from None
    return image


def as_picture(image: object) -> Image.Image:
    """A Pillow image from a Pillow image, a path, or a uint8 array of rows×columns(×3, red first), such as a frame."""
    if isinstance(image, Image.Image):
        return image
    if isinstance(image, str | Path):
        return decode_image(read_image(Path(image)), str(image))
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and (image.ndim == 2 or image.shape[2:] == (3,)):
        return Image.fromarray(image)
    what = f"{image.dtype} array of shape {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
    raise UnreadableImage(f"expected a path, a Pillow image or a uint8 array rows×columns×3, got {what}")
