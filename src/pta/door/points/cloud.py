"""A cloud: finite points, not all of them equal, and how many there may be."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pta.core.plain import plain_tensor
from pta.errors import InvalidSamples

Cloud = NDArray[np.float32]
"""n×3: one row per point."""

FEWEST_POINTS = 8  # of a cloud
MOST_ROWS = 2**20
"""Points of a cloud, corners and triangles of a mesh that are read."""


def as_cloud(points: object, *, normalise: bool = False) -> Cloud:
    """Points of an array, a tensor or a list as a float32 array n×3 of its own, or refused.

    >>> as_cloud(np.zeros((8, 3)))
    Traceback (most recent call last):
    pta.errors.InvalidSamples: all 8 points are equal
    """
    given = plain_tensor("points", points, InvalidSamples)
    if given.dtype == torch.bool:
        raise InvalidSamples("points must be numbers, got booleans")
    if given.ndim != 2 or given.shape[1] != 3:
        raise InvalidSamples(f"a cloud must be n×3, one row per point, got shape {tuple(given.shape)}")
    require_few("points", len(given))
    if len(given) < FEWEST_POINTS:
        raise InvalidSamples(f"{len(given)} points are too few; a cloud has {FEWEST_POINTS} or more")
    exact = given.cpu().double().numpy()
    require_finite("point", exact)
    compared = exact if normalise else exact.astype(np.float32)
    if (compared == compared[0]).all():
        raise InvalidSamples(f"all {len(compared)} points are equal")
    return (normalised(exact) if normalise else exact).astype(np.float32)


def normalised(points: NDArray[Any]) -> NDArray[Any]:
    """The points around their mean, the farthest at distance 1; computed in their own precision, as released.

    >>> normalised(np.array([[0.0, 0, 0], [4, 0, 0]]))[:, 0]
    array([-1.,  1.])
    """
    centred = points - np.mean(points, axis=0)
    return centred / np.max(np.sqrt(np.sum(centred**2, axis=1)))


def require_few(what: str, count: int) -> None:
    """Refuse more points or faces than are read, before any work is done for them."""
    if count > MOST_ROWS:
        raise InvalidSamples(f"{count:,} {what} are too many; at most {MOST_ROWS:,} are read")


def require_finite(what: str, rows: NDArray[np.float64]) -> None:
    """Refuse rows that float32 cannot hold."""
    usable = (np.abs(rows) <= np.finfo(np.float32).max).all(axis=1)  # NaN is not
    if not usable.all():
        raise InvalidSamples(f"{what} {int(usable.argmin())} is NaN, infinite or too large for float32")
