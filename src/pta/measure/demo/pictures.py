"""Small pictures inside a page: images, clouds from one side or from all around, and which of them are shown."""

from base64 import b64encode
from html import escape
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from pta.door.points.cloud import Cloud

_SIDE = 64  # pixels of a view
_VIEWS = 24  # of a turn; the style `turn` has as many steps
_FIRST = 0.6  # radians: where a turn begins
_TILT = 0.35  # radians that one looks down
_REACH = 1.15  # how far from the middle a point may be to be in the picture


def picture(image: NDArray[np.uint8], alt: str, mark: str = "") -> str:
    """A grey image as an <img> that carries its own pixels; `mark` is a CSS class."""
    buffer = BytesIO()
    Image.fromarray(image).save(buffer, "PNG", optimize=True)
    height, width = image.shape
    return (
        f'<img class="{escape(mark)}" width="{width}" height="{height}" alt="{escape(alt)}" '
        f'title="{escape(alt)}" src="data:image/png;base64,{b64encode(buffer.getvalue()).decode()}">'
    )


def nearest(features: Tensor, vectors: Tensor, count: int) -> NDArray[np.int64]:
    """For each vector the numbers of the features with the largest cosine to it, best first; all rows are unit.

    >>> import torch
    >>> nearest(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), torch.tensor([[0.0, 1.0]]), 2)
    array([[1, 2]])
    """
    cosines = features @ vectors.to(features.dtype).T
    return cosines.argsort(dim=0, descending=True, stable=True)[:count].T.numpy()


def spread(positions: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    """At most `count` of the positions, evenly from the first to the last: no picking.

    >>> spread(np.arange(10, 21), 3), spread(np.arange(2), 3)
    (array([10, 15, 20]), array([0, 1]))
    """
    if len(positions) <= count:
        return positions
    return positions[np.linspace(0, len(positions) - 1, count).round().astype(np.intp)]


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
    light = (150 + 100 * np.clip(towards, -1, 1)).astype(np.uint8)
    seen = np.zeros((_SIDE, _SIDE), np.uint8)
    np.maximum.at(seen, (rows[inside], columns[inside]), light[inside])
    return seen
