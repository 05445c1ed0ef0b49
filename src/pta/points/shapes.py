"""What shape points must have."""

from numbers import Integral

from torch import Tensor

from pta.errors import InvalidParameter, InvalidSamples, shown
from pta.plain import FLOATS


def require_batch(name: str, clouds: Tensor) -> None:
    """Refuse what is not a batch of clouds of one size."""
    if not isinstance(clouds, Tensor) or clouds.dtype not in FLOATS:
        got = clouds.dtype if isinstance(clouds, Tensor) else type(clouds).__name__
        raise InvalidSamples(f"{name} must be a floating-point tensor, got {got}")
    if clouds.ndim != 3 or clouds.shape[2] != 3 or clouds.shape[1] == 0:
        raise InvalidSamples(f"{name} must be B×n×3, got {tuple(clouds.shape)}")


def require_some(name: str, count: int) -> None:
    """Refuse what is no count from 1."""
    if not isinstance(count, Integral) or isinstance(count, bool) or count < 1:
        raise InvalidParameter(f"{name} must be a whole number from 1, not {shown(count)}")
