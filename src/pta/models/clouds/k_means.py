"""k-means of each sample's rows, a batch at a time; the centres depend on the rows alone."""

import torch
from torch import Tensor

_SEED = 1
_MOST_ROUNDS = 300  # scikit-learn's


def k_means(rows: Tensor, count: int) -> Tensor:
    """N×rows×width to N×count×width centres: k-means++ with the same draws for every sample, then Lloyd's rounds.

    All of it is float64. A centre that no row is nearest to stays where it is.

    >>> k_means(torch.tensor([[[0.0], [1.0], [10.0], [11.0]]]), 2).sort(dim=1).values
    tensor([[[ 0.5000], [10.5000]]])
    """
    wide = rows.double()
    centres, labels = _spread(wide, count), None
    for _ in range(_MOST_ROUNDS):
        nearest = (centres.square().sum(dim=-1)[:, None] - 2 * (wide @ centres.mT)).argmin(dim=-1)
        if labels is not None and torch.equal(nearest, labels):
            break
        labels = nearest
        belongs = torch.nn.functional.one_hot(labels, count).to(wide).mT
        sizes = belongs.sum(dim=-1, keepdim=True)
        centres = torch.where(sizes > 0, belongs @ wide / sizes.clamp_min(1), centres)
    return centres.to(rows.dtype)


def _spread(rows: Tensor, count: int) -> Tensor:
    """k-means++: rows drawn one after the other, in proportion to the squared distance from those before."""
    first, *others = torch.rand(count, generator=torch.Generator().manual_seed(_SEED), dtype=torch.float64).tolist()
    centres = [rows[:, int(first * rows.shape[1])]]
    nearest = rows.new_full(rows.shape[:2], torch.inf)
    for draw in others:
        nearest = torch.minimum(nearest, (rows - centres[-1][:, None]).square().sum(dim=-1))
        so_far = nearest.cumsum(dim=1)
        chosen = (so_far <= draw * so_far[:, -1:]).sum(dim=1).clamp_max(rows.shape[1] - 1)
        centres.append(rows.take_along_dim(chosen[:, None, None], dim=1)[:, 0])
    return torch.stack(centres, dim=1)
