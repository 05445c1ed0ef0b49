"""Running means in the rows of a table, changed without reading a number back from the device."""

from collections.abc import Callable

import torch
from torch import Tensor


def update_row(
    means: Tensor, counts: Tensor, row: Tensor, condition: Tensor, next_mean: Callable[[Tensor, Tensor], Tensor]
) -> None:
    """If a condition holds, replace a row by its next mean and count one more in it.

    Args:
        means: C×n.
        counts: C, how many samples each row is the mean of.
        row: the number of the row, in a tensor of one.
        condition: whether to change anything, in a tensor of one.
        next_mean: gives the new row, 1×n, from the present one and its count.
    """
    mean = means.index_select(0, row)
    changed = next_mean(mean, counts.index_select(0, row))
    means.index_copy_(0, row, torch.where(condition, changed.to(mean.dtype), mean))
    counts.index_add_(0, row, condition.long())
