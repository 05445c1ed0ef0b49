"""The nearest points of a cloud to each of several centres."""

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from pta.door.points.shapes import require_batch, require_some
from pta.errors import InvalidSamples


def nearest_points(clouds: Tensor, centres: Tensor, count: int) -> Tensor:
    """B×n×3 and B×g×3 to B×g×count numbers of the nearest points, unsorted; which of equally near ones is not said.

    >>> nearest_points(torch.tensor([[[0.0, 0, 0], [1, 0, 0], [5, 0, 0]]]), torch.ones(1, 1, 3), 2).sort().values
    tensor([[[0, 1]]])
    """
    require_batch("clouds", clouds)
    require_batch("centres", centres)
    require_some("count", count)
    if len(centres) != len(clouds):
        raise InvalidSamples(f"{len(clouds)} clouds need as many rows of centres, got {len(centres)}")
    if count > clouds.shape[1]:
        raise InvalidSamples(f"clouds of {clouds.shape[1]} points have no {count} nearest ones")
    clouds, centres = clouds.detach(), centres.detach()
    if {clouds.dtype, centres.dtype} == {torch.float32} and clouds.device.type == "cpu" and _numba_is_installed():
        from pta.door.points.numba_neighbours import nearest_by_numba

        return nearest_by_numba(clouds, centres, count)
    return nearest_by_product(clouds, centres, count)


def nearest_by_product(clouds: Tensor, centres: Tensor, count: int) -> Tensor:
    """The same, with distances computed as −2ab + a² + b² in the precision of the clouds, as released."""
    return squared_distances(clouds, centres).topk(count, largest=False, sorted=False).indices


def squared_distances(clouds: Tensor, centres: Tensor) -> Tensor:
    """B×g×n squared distances, which rounding can make negative."""
    distances = torch.bmm(centres, clouds.mT).mul_(-2)
    return distances.add_(centres.square().sum(-1)[..., None]).add_(clouds.square().sum(-1)[:, None])


@cache
def _numba_is_installed() -> bool:
    return find_spec("numba") is not None
