"""Temperatures without labels: a method's confidence is matched with what zero-shot's confidence suggests.

Logits are divided by τ = 2 + τ̂/2. For each temperature θ of a grid, D_θ is a running mean of how much more confident
the method would be at θ than the target 1 − 0.8·(1 − max softmax(z)), where z are the zero-shot logits without prior.
It grows slowly at first: sample t counts max(1/200, 1/(t+1)). τ* is where D is zero, and τ̂ = (20·4 + t·τ*)/(20 + t).
A sample is answered with the D from before it. The rule and its constants are ours, chosen on development sets.
"""

from functools import cache

import torch
from torch import Tensor

GRID = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 11.0, 15.0)
FEWEST = 1 / 200  # the smallest weight of a sample
LESS_ERROR = 0.8  # the method's errors in units of those that zero-shot expects
FIRST, FIRST_COUNTS = 4.0, 20  # τ̂ before the first sample, and how many samples that counts
_ROWS = 1024  # weights of older samples would underflow
SMALLEST = 2.2250738585072014e-308  # normal float64: what two equal gaps are taken to differ by
_NUMBERS_AT_ONCE = 2**17  # which stay in a processor's cache


def temperatures_in_order(gaps: Tensor, count: Tensor, scores: Tensor, confidence: Tensor) -> Tensor:
    """τ of B samples in order, each at its turn, which are then counted: in the 13 gaps D, and in the count.

    `scores` are the method's logits, B×C; `confidence` is max softmax(z), B.
    """
    target = confidence.double().mul(LESS_ERROR).add_(1 - LESS_ERROR)
    excess = _confidences(scores) - target[:, None]
    if len(excess) == 1:
        tau = temperatures(gaps[None], count)
        gaps.lerp_(excess[0], count.double().add_(1).reciprocal_().clamp_min_(FEWEST))
        count.add_(1)
        return tau
    found = []
    for rows in torch.split(excess, _ROWS):
        t = count + torch.arange(len(rows), device=rows.device)
        rate = (1 / (t + 1).double()).clamp_min(FEWEST)
        kept = torch.where(t == 0, 1.0, 1 - rate).cumprod(dim=0)[:, None]  # there is nothing to keep at t = 0
        start = gaps * (t[0] > 0)
        after = kept * (start + (rate[:, None] * rows / kept).cumsum(dim=0))
        found.append(temperatures(torch.cat([start[None], after[:-1]]), t))
        gaps.copy_(after[-1])
        count.add_(len(rows))
    return torch.cat(found)


def temperatures(gaps: Tensor, count: Tensor) -> Tensor:
    """τ of …×13 gaps, none above the one before, after so many samples."""
    grid, above = _grid(gaps), gaps[..., :-1]
    # the part of each step of the grid that is before the zero
    before = above.div((above - gaps[..., 1:]).clamp_min_(SMALLEST)).clamp_(0, 1)
    zero = (before @ grid.diff()).add_(GRID[0])
    return zero.mul_(count).add_(FIRST_COUNTS * FIRST).div_(count + FIRST_COUNTS).div_(2).add_(2)


def _confidences(scores: Tensor) -> Tensor:
    """max softmax(score/θ) for each θ, B×13, in float64."""
    colder = _grid(scores).reciprocal().to(scores.dtype)[:, None]
    below = (scores - scores.amax(dim=1, keepdim=True))[:, None]
    rows = max(1, _NUMBERS_AT_ONCE // (below.shape[2] * len(GRID)))
    sums = [(part * colder).exp_().sum(dim=2) for part in torch.split(below, rows)]
    return torch.cat(sums).double().reciprocal_()


def _grid(like: Tensor) -> Tensor:
    """The grid in float64 on the device of a tensor. It is kept, because a CUDA graph cannot copy it from the host."""
    if type(like) is Tensor:
        return grid_on(like.device)
    return torch.cat([like.new_full((1,), theta, dtype=torch.float64) for theta in GRID])  # without numbers


@cache
def grid_on(device: torch.device) -> Tensor:
    """The grid on a device, float64."""
    return torch.tensor(GRID, dtype=torch.float64, device=device)
