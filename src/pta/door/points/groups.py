"""Groups of points: centres that cover a cloud, and the points nearest to each."""

from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

Sampling = Literal["deterministic", "legacy"]

_NEAR_ORIGIN = 1e-3  # squared norm; the CUDA operator of pointnet2 skips such points
_FAR = 1e10  # the distance to no centre at all, as released


def farthest_points(
    clouds: Tensor, count: int, *, sampling: Sampling = "deterministic", generator: torch.Generator | None = None
) -> Tensor:
    """B×n×3 to B×count numbers of points; of equally far points the first. With fewer points than `count` some repeat.

    `deterministic` starts at point 0 and computes in float32. A later centre has a squared norm above 10⁻³, as with the
    CUDA operator; a cloud without such points gives point 0 again. `legacy` starts at a random point, drawn on the CPU,
    and computes squared distances in half precision, as Point-Cache does.

    >>> farthest_points(torch.tensor([[[1.0, 0, 0], [2, 0, 0], [9, 0, 0], [4, 0, 0]]]), 3)
    tensor([[0, 2, 3]])
    """
    clouds = clouds.detach()
    if sampling == "legacy":
        start = torch.randint(clouds.shape[1], (len(clouds),), generator=generator).to(clouds.device)
        return _spread(clouds.half(), count, start, torch.full(clouds.shape[:2], _FAR, device=clouds.device))
    clouds = clouds.float()
    eligible = clouds.square().sum(-1) > _NEAR_ORIGIN
    start = torch.zeros(len(clouds), dtype=torch.long, device=clouds.device)
    return _spread(clouds, count, start, torch.where(eligible, _FAR, -1.0))  # a minimum below zero is never the largest


def _spread(clouds: Tensor, count: int, start: Tensor, nearest: Tensor) -> Tensor:
    """The centres, given the first, and of every point the squared distance to the nearest centre, which is changed."""
    axes = clouds.permute(2, 0, 1).contiguous()  # sums over a first dimension are several times as fast
    difference = torch.empty_like(axes)
    centres = torch.empty(count, len(clouds), dtype=torch.long, device=clouds.device)
    centres[0] = start
    for before, here in pairwise(centres):
        centre = axes.gather(2, before.expand(3, -1)[..., None])
        squares = torch.sub(axes, centre, out=difference).square_()
        torch.minimum(nearest, squares.sum(0), out=nearest)
        torch.argmax(nearest, dim=1, out=here)
    return centres.T.contiguous()


def nearest_points(clouds: Tensor, centres: Tensor, count: int) -> Tensor:
    """B×n×3 and B×g×3 to B×g×count numbers of the nearest points, unsorted; which of equally near ones is not said.

    >>> nearest_points(torch.tensor([[[0.0, 0, 0], [1, 0, 0], [5, 0, 0]]]), torch.ones(1, 1, 3), 2).sort().values
    tensor([[[0, 1]]])
    """
    clouds, centres = clouds.detach(), centres.detach()
    if {clouds.dtype, centres.dtype} == {torch.float32} and clouds.device.type == "cpu" and _numba_is_installed():
        from pta.door.points.numba_neighbours import nearest_by_numba

        return nearest_by_numba(clouds, centres, count)
    return nearest_by_product(clouds, centres, count)


def nearest_by_product(clouds: Tensor, centres: Tensor, count: int) -> Tensor:
    """The same, with distances computed as −2ab + a² + b² in the precision of the clouds, as released."""
    distances = torch.bmm(centres, clouds.mT).mul_(-2)  # rounding can make squares negative
    squares = distances.add_(centres.square().sum(-1)[..., None]).add_(clouds.square().sum(-1)[:, None])
    return squares.topk(count, largest=False, sorted=False).indices


@cache
def _numba_is_installed() -> bool:
    return find_spec("numba") is not None
