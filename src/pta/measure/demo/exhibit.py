"""Exhibit: the texts, pictures and methods of a demonstration for one kind of samples.

Pictures stand inside a page: images, and clouds from one side or from all around.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from pta.door.points.cloud import Cloud
from pta.models import EMBEDDED_TEMPLATES

_SIDE = 64  # pixels of a view
_VIEWS = 24  # of a turn; the style `turn` has as many steps
_FIRST = 0.6  # radians: where a turn begins
_TILT = 0.35  # radians that one looks down
_REACH = 1.15  # how far from the middle a point may be to be in the picture

Draw = Callable[[Any, str, str], str]
"""A sample, what it is, and a CSS class to the HTML of a picture."""


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


@dataclass(frozen=True)
class Exhibit:
    """What is particular to one kind of samples."""

    thing: str  # one sample
    title: str  # what is shown, for the top of the page
    command: str  # that shows it, without shift, severity and seed
    call: str  # the same in Python, with the bracket open
    severities: str  # how severities are counted
    templates: tuple[str, ...]  # of the prompts
    origin: str  # of the samples; {} is how many
    model: str  # that labels them
    others: tuple[str, ...]  # methods beside zero-shot and PTA: those that take seconds, not minutes
    batch: int  # samples that are encoded at once; few, so that a progress bar moves
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of PTA
    still: Draw = picture  # a picture among many
    shown: Draw = picture  # a picture to look at

    @property
    def things(self) -> str:
        """Several samples."""
        return f"{self.thing}s"


FASHION = Exhibit(
    thing="image",
    title="Fashion images, labelled by a small CLIP-like model",
    command="pta demo",
    call="run_demo(",
    severities="of 5",
    templates=EMBEDDED_TEMPLATES,
    origin="the first {} of Fashion-MNIST’s test file (Zalando SE, MIT licence)",
    model="the one embedded in pta, trained on Fashion-MNIST’s training images: a small model that knows only "
    "clothes, so these numbers say nothing about CLIP itself",
    others=("wpta", "tda", "sca", "onzeta", "bca", "adapt"),
    batch=100,
)
