"""Opening and decoding image files that may be damaged, hostile or no images at all.

What a picture costs is known from its header. It is refused before it is decoded if it has too many pixels, or takes
too many passes over them. The files of the formats that Pillow decodes in Python count as files of many passes.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Condition
from typing import TypeVar

import numpy as np
from PIL import Image, UnidentifiedImageError

from pta.core.limits import USUAL_LIMITS, Limits
from pta.door.foreign import in_words
from pta.door.images.bare import FORMATS, bare_image
from pta.door.images.preprocessing import Preprocessing
from pta.errors import UnreadableSample, first_line

Made = TypeVar("Made")

_USUAL_PASSES = 16  # a progressive JPEG has about ten scans
_PASSES_IN_PYTHON = 256  # measured: 1.6 µs per pixel, where a JPEG takes 6 ns
_TEXT_CODEC = "ppm_plain"  # takes time by the square of the comments in it
_AS_A_LIST = "give several pictures as a list, list(pictures)"
_UNREAD_PHOTOS = (b"heic", b"heix", b"heim", b"hevc", b"mif1", b"msf1", b"avif", b"avis")  # their first box says so
_SHORTEST_ROW = 64  # pixels that take about as much memory and time as any row does beside its pixels


def open_image(content: bytes, *, limits: Limits = USUAL_LIMITS, at_least: int | None = None) -> Image.Image:
    """A picture that is not decoded yet; what would take too many pixels or too much time is refused.

    With `at_least`, a JPEG file will be decoded at ½, ¼ or ⅛ of its size where that leaves both sides at least so long:
    faster, and a slightly different picture.
    """
    image, _ = open_counted(content, limits)
    if at_least is not None:
        with _decoding():
            image.draft("RGB", (at_least, at_least))
    return image


def open_counted(content: bytes, limits: Limits) -> tuple[Image.Image, int]:
    """A picture that is not decoded yet, and how many pixels it counts as."""
    with _decoding():
        found = bare_image(content)
        if found is None:
            if content[4:8] == b"ftyp" and content[8:12] in _UNREAD_PHOTOS:
                raise UnreadableSample("it is a HEIC or AVIF photograph, which pta does not read; convert it to JPEG")
            raise UnidentifiedImageError
        format, bare = found
        image = Image.open(io.BytesIO(bare.content), formats=[format])
        pixels = require_few_pixels(*image.size, limits, decoded=bare.pixels)
        codecs = {tile[0] for tile in image.tile}
        if _TEXT_CODEC in codecs:
            raise UnreadableSample("its pixels are written as text, which is not supported; save it as PNG")
        passes = _PASSES_IN_PYTHON if codecs & Image.DECODERS.keys() else bare.passes
        if passes > _USUAL_PASSES and passes * max(pixels, len(content)) > _USUAL_PASSES * limits.max_pixels:
            size = f"{image.width}×{image.height}"
            raise UnreadableSample(f"{passes:,} passes over {size} pixels are too slow to decode; save it anew, as PNG")
        return image, pixels


def require_few_pixels(width: int, height: int, limits: Limits, *, decoded: int = 0) -> int:
    """How many pixels a picture counts as, which are at least the `decoded` ones; more than the limit are refused."""
    pixels = max(max(width, _SHORTEST_ROW) * height, decoded)
    if pixels > limits.max_pixels:
        thin = f", where a row counts as at least {_SHORTEST_ROW}" if width < _SHORTEST_ROW else ""
        raise UnreadableSample(f"{width}×{height} pixels are too many; at most {limits.max_pixels:,} are decoded{thin}")
    return pixels


def load_image(image: Image.Image) -> None:
    """Decode a picture that is open."""
    with _decoding():
        image.load()


def as_picture(image: object) -> Image.Image:
    """A Pillow image from a Pillow image or a uint8 array of rows×columns(×3, red first), such as a frame."""
    if isinstance(image, Image.Image):
        return image
    what = type(image).__name__
    if isinstance(image, np.ndarray):
        has_shape = image.ndim == 2 or image.shape[2:] == (3,)
        if image.dtype == np.uint8 and has_shape and image.size <= 3 * USUAL_LIMITS.max_pixels:
            return Image.fromarray(image)
        what = f"{image.dtype} array of shape {image.shape}"
    expected = "expected a path, bytes, a Pillow image or a uint8 array rows×columns×3"
    raise UnreadableSample(f"{expected}, got {what}{_advice(image)}")


def _advice(given: object) -> str:
    """What makes a picture of something else, as the tail of an error message."""
    if given is None:
        return ": the picture was not read"
    if hasattr(given, "read"):
        return "; pass its content, file.read()"
    if isinstance(given, Iterator):
        return f"; {_AS_A_LIST}"
    if hasattr(given, "detach"):
        return "; a tensor 3×rows×columns of bytes becomes one by tensor.permute(1, 2, 0).cpu().numpy()"
    if not isinstance(given, np.ndarray):
        return ""
    if given.shape[2:] == (4,):
        return "; image[:, :, :3] leaves the alpha channel out"
    if given.ndim > 2 and given.shape[2:] != (3,):
        is_picture = given.ndim == 3 and given.shape[0] == 3
        return f"; {'np.moveaxis(image, 0, 2) puts the channels last' if is_picture else _AS_A_LIST}"
    if given.dtype != np.uint8:
        return "; (255 * image).astype(np.uint8) makes one of numbers from 0 to 1"
    return ""


def _decoding() -> AbstractContextManager[None]:
    def said(error: Exception) -> UnreadableSample:
        is_other = isinstance(error, UnidentifiedImageError)
        not_read = f"not an image that pta reads ({', '.join(FORMATS)})"
        return UnreadableSample(not_read if is_other else f"it cannot be decoded: {first_line(error)}")

    return in_words(said, passing=UnreadableSample)


class Room:
    """So many pixels may be in work; who needs more waits until there is room.

    A picture that is larger than the whole room is worked on alone.
    """

    def __init__(self, pixels: int) -> None:
        self.pixels = self.free = pixels
        self._changed = Condition()

    @contextmanager
    def of(self, pixels: int) -> Iterator[None]:
        """Room for this number of pixels, once it is there and as long as the block lasts."""
        taken = min(pixels, self.pixels)
        with self._changed:
            self._changed.wait_for(lambda: self.free >= taken)
            self.free -= taken
        try:
            yield
        finally:
            with self._changed:
                self.free += taken
                self._changed.notify_all()


ROOM = Room(89_478_485)
"""For every picture of the process. A pixel takes up to 24 bytes while it is decoded, so this is at most 2 GiB."""


def made_in_room(picture: Image.Image, preprocess: Preprocessing, make: Callable[[Image.Image], Made]) -> Made:
    """What is made of an open picture, which is decoded and resized once there is room for it."""
    (width, height), _ = preprocess.geometry(*picture.size)  # refuses what would be blown up too far
    with ROOM.of(picture.width * picture.height + width * height):
        load_image(picture)
        try:
            return make(picture)
        except MemoryError:
            raise UnreadableSample("it needs too much memory") from None
