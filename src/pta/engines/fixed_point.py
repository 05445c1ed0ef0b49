"""Iterations that each row of a batch ends by itself, once it hardly moves."""

from collections.abc import Callable

import torch
from torch import Tensor


def iterate_rows(x: Tensor, step: Callable[[Tensor], Tensor], at_most: int, settled: float) -> Tensor:
    """Let x, B×n, be step(x) up to so many times; a row that a step moves by less than `settled` stays there."""
    moving = x.new_ones((len(x), 1), dtype=torch.bool)
    for _ in range(at_most):
        moved = step(x)
        far = torch.linalg.vector_norm(moved - x, dim=1, keepdim=True) >= settled
        x = torch.where(moving, moved, x)
        moving = moving & far
    return x
