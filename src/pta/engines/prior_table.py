"""BCA's tables: running means that change without a number read back, and priors of which a stream changes few rows."""

from collections.abc import Callable

import torch
from torch import Tensor

from pta.core.plain import is_host_readable


def update_row(
    means: Tensor, counts: Tensor, row: Tensor, condition: Tensor, next_mean: Callable[[Tensor, Tensor], Tensor]
) -> None:
    """If a condition holds, replace a row of C×n means by its next mean and count one more of C in it.

    Row and condition are tensors of one; `next_mean` gives the new row, 1×n, from the present one and its count.
    """
    mean = means.index_select(0, row)
    changed = next_mean(mean, counts.index_select(0, row))
    means.index_copy_(0, row, torch.where(condition, changed.to(mean.dtype), mean))
    counts.index_add_(0, row, condition.long())


def posterior_of(likelihood: Tensor, priors: Tensor, changed: Tensor) -> Tensor:
    """Πᵀ·q of …×C likelihoods q and C×C priors Π that began as the identity.

    On a CPU the rows that are not flagged as changed are not multiplied: they are those of the identity.
    """
    if not is_host_readable(changed):
        return likelihood @ priors
    rows = changed.nonzero()[:, 0]
    if 4 * len(rows) > len(priors):  # then picking them takes longer than multiplying all
        return likelihood @ priors
    return likelihood.index_fill(-1, rows, 0.0) + likelihood[..., rows] @ priors[rows]
