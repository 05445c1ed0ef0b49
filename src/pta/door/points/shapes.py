"""What shape points must have, and how many there may be."""

from numbers import Integral

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pta.core.plain import FLOATS
from pta.errors import InvalidParameter, InvalidSamples, shown

FEWEST_POINTS = 8  # of a cloud
MOST_ROWS = 2**20
"""Points of a cloud, corners and triangles of a mesh that are read."""


def require_few(what: str, count: int) -> None:
    """Refuse more points or faces than are read, before any work is done for them."""
    if count > MOST_ROWS:
        raise InvalidSamples(f"{count:,} {what} are too many; at most {MOST_ROWS:,} are read")


def require_finite(what: str, rows: NDArray[np.float64]) -> None:
    """Refuse rows that float32 cannot hold."""
    usable = (np.abs(rows) <= np.finfo(np.float32).max).all(axis=1)  # NaN is not
    if not usable.all():
        raise InvalidSamples(f"{what} {int(usable.argmin())} is NaN, infinite or too large for float32")


def require_batch(name: str, clouds: Tensor) -> None:
    """Refuse what is not a batch of clouds of one size."""
    if not isinstance(clouds, Tensor) or clouds.dtype not in FLOATS:
        got = clouds.dtype if isinstance(clouds, Tensor) else type(clouds).__name__
        raise InvalidSamples(f"{name} must be a floating-point tensor, got {got}")
    if clouds.ndim != 3 or clouds.shape[2] != 3 or clouds.shape[1] == 0:
        raise InvalidSamples(f"{name} must be B×n×3, got {tuple(clouds.shape)}")


def require_some(name: str, count: int) -> None:
    """Refuse what is no count of points."""
    if not isinstance(count, Integral) or isinstance(count, bool) or not 1 <= count <= MOST_ROWS:
        raise InvalidParameter(f"{name} must be a whole number from 1 to {MOST_ROWS:,}, not {shown(count)}")
