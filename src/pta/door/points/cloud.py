"""A cloud: finite points, not all of them equal."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pta.core.plain import plain_tensor
from pta.door.points.shapes import FEWEST_POINTS, require_few, require_finite
from pta.errors import InvalidSamples

Cloud = NDArray[np.float32]
"""n×3: one row per point."""


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
