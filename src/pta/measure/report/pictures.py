"""Small pictures that stand inside a page: arrays, files of images, and clouds from one side or from all around."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from html import escape
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pta.core.modality import CLOUDS, IMAGES, Modality
from pta.data.sample_set import SampleReference
from pta.door.images.preprocessing import Preprocessing
from pta.door.images.reading import made_in_room, open_image
from pta.door.points.cloud import Cloud, normalised
from pta.door.points.reading import read_cloud
from pta.errors import PtaError, UnreadableSample, UserMistake

Picture = Callable[[int, str, str], str | None]
"""A sample's number, what it is and a CSS class to the HTML of a picture; None if it cannot be read."""

_THUMBNAIL = Preprocessing(size=96)  # the middle of a picture, as CLIP sees it; in JPEG at most 15 kB
_SIDE = 64  # pixels of a view of a cloud
_VIEWS = 24  # of a turn; the style `turn` has as many steps
_FIRST = 0.6  # radians: where a turn begins
_TILT = 0.35  # radians that one looks down
_REACH = 1.15  # how far from the middle a point may be to be in the picture


def picture(image: NDArray[np.uint8], alt: str, mark: str = "", *, format: str = "PNG") -> str:
    """A grey or coloured image as an <img> that carries its own pixels; `mark` is a CSS class."""
    buffer = BytesIO()
    Image.fromarray(image).save(buffer, format, optimize=True)
    height, width = image.shape[:2]
    return (
        f'<img class="{escape(mark)}" width="{width}" height="{height}" alt="{escape(alt)}" title="{escape(alt)}" '
        f'src="data:image/{format.lower()};base64,{b64encode(buffer.getvalue()).decode()}">'
    )


def thumbnail(content: bytes, alt: str, mark: str = "") -> str | None:
    """The picture of an image file, small; None if it cannot be read or would take too much to decode."""
    try:
        opened = open_image(content, at_least=_THUMBNAIL.size)
        pixels = made_in_room(opened, _THUMBNAIL, _THUMBNAIL.pixels)
    except UnreadableSample:
        return None
    return picture(pixels.transpose(1, 2, 0), alt, mark, format="JPEG")


def cloud_thumbnail(content: bytes, alt: str, mark: str = "") -> str | None:
    """One view of the cloud in a file; None if it cannot be read."""
    try:
        cloud = read_cloud(content)
    except UserMistake:
        return None
    return still_cloud(normalised(cloud.astype(np.float64)), alt, mark)


def pictures_of(samples: Sequence[SampleReference], modality: Modality) -> Picture | None:
    """Pictures of a source's samples by their numbers, read when they are drawn; None if nothing draws such samples."""
    draw = {IMAGES: thumbnail, CLOUDS: cloud_thumbnail}.get(modality)

    def drawn(number: int, alt: str, mark: str) -> str | None:
        try:
            return draw(samples[number].read(), alt, mark) if draw else None
        except PtaError:  # a file that vanished, or a disk that fails: the report is worth more than one picture
            return None

    return drawn if draw else None


def still_cloud(cloud: Cloud, alt: str, mark: str = "") -> str:
    """One view of a cloud."""
    return picture(_view(cloud, _FIRST), alt, mark)


def turning_cloud(cloud: Cloud, alt: str, mark: str = "") -> str:
    """A cloud that turns about the vertical; it stands still for those who want no motion."""
    turns = np.linspace(_FIRST, _FIRST + 2 * np.pi, _VIEWS, endpoint=False)
    views = np.concatenate([_view(cloud, turn) for turn in turns], axis=1)
    return f'<span class="turning">{picture(views, alt, mark)}</span>'


def _view(cloud: Cloud, turn: float) -> NDArray[np.uint8]:
    """Points from one side, light on black; the nearer, the lighter."""
    points = np.asarray(cloud, np.float64)
    x, y, z = points.T
    across, near = np.cos(turn) * x + np.sin(turn) * z, np.cos(turn) * z - np.sin(turn) * x
    up, towards = np.cos(_TILT) * y - np.sin(_TILT) * near, np.sin(_TILT) * y + np.cos(_TILT) * near
    columns, rows = (
        ((1 + sign * way / _REACH) / 2 * (_SIDE - 1)).round().astype(int) for way, sign in ((across, 1), (up, -1))
    )
    inside = (columns >= 0) & (columns < _SIDE) & (rows >= 0) & (rows < _SIDE)
    light = (150 + 100 * np.clip(towards, -1, 1)).astype(np.uint8) & 0xF0  # few shades make a small file
    seen = np.zeros((_SIDE, _SIDE), np.uint8)
    np.maximum.at(seen, (rows[inside], columns[inside]), light[inside])
    return seen
