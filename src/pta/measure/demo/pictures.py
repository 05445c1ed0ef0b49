"""Small pictures inside a page, and which pictures are shown."""

from base64 import b64encode
from html import escape
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor


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
