"""Farthest-point sampling: centres that cover a cloud, each the point farthest from those before it."""

from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor

from pta.door.points.shapes import require_batch, require_some
from pta.errors import InvalidParameter, shown

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
    require_batch("clouds", clouds)
    require_some("count", count)
    if sampling not in get_args(Sampling):
        raise InvalidParameter(f"sampling must be {' or '.join(get_args(Sampling))}, not {shown(sampling)}")
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
