"""A cloud: finite points, not all of them equal."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pta.errors import InvalidSamples

FEWEST_POINTS = 8

Cloud = NDArray[np.float32]
"""n×3: one row per point."""


def as_cloud(points: object, *, normalise: bool = False) -> Cloud:
    """Points as a float32 array n×3 of its own, or refused.

    >>> as_cloud(np.zeros((8, 3)))
    Traceback (most recent call last):
    pta.errors.InvalidSamples: all 8 points are equal
    """
    given = np.asarray(points)
    if given.dtype.kind not in "fiu":
        raise InvalidSamples(f"points must be numbers, got {given.dtype}")
    if given.ndim != 2 or given.shape[1] != 3:
        raise InvalidSamples(f"a cloud must be n×3, one row per point, got shape {given.shape}")
    if len(given) < FEWEST_POINTS:
        raise InvalidSamples(f"{len(given)} points are too few; a cloud has {FEWEST_POINTS} or more")
    usable = (np.abs(given) <= np.finfo(np.float32).max).all(axis=1)  # NaN is not
    if not usable.all():
        raise InvalidSamples(f"point {int(usable.argmin())} is NaN, infinite or too large for float32")
    exact = given.astype(np.float64 if normalise else np.float32)
    if (exact == exact[0]).all():
        raise InvalidSamples(f"all {len(exact)} points are equal")
    return np.array(normalised(exact) if normalise else exact, np.float32, order="C", copy=None)


def normalised(points: NDArray[Any]) -> NDArray[Any]:
    """The points around their mean, the farthest at distance 1; computed in their own precision, as released.

    >>> normalised(np.array([[0.0, 0, 0], [4, 0, 0]]))[:, 0]
    array([-1.,  1.])
    """
    centred = points - np.mean(points, axis=0)
    return centred / np.max(np.sqrt(np.sum(centred**2, axis=1)))
