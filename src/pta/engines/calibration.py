"""Temperatures without labels: a method's confidence is matched with what zero-shot's confidence suggests.

Logits are divided by τ = 2 + τ̂/2. For each temperature θ of a grid, D_θ is a running mean of how much more confident
the method would be at θ than the target 1 − 0.8·(1 − max softmax(z)), where z are the zero-shot logits without prior.
It grows slowly at first: sample t counts max(1/200, 1/(t+1)). τ* is where D is zero, and τ̂ = (20·4 + t·τ*)/(20 + t).
A sample is answered with the D from before it. The rule and its constants are ours, chosen on development sets.
"""

import torch
from torch import Tensor

GRID = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 11.0, 15.0)
_FEWEST = 1 / 200  # the smallest weight of a sample
_LESS_ERROR = 0.8  # the method's errors in units of those that zero-shot expects
_FIRST, _FIRST_COUNTS = 4.0, 20  # τ̂ before the first sample, and how many samples that counts
_ROWS = 1024  # weights of older samples would underflow


def temperatures_in_order(gaps: Tensor, count: Tensor, scores: Tensor, confidence: Tensor) -> Tensor:
    """τ of B samples in order, each at its turn, which are then counted: in the 13 gaps D, and in the count.

    `scores` are the method's logits, B×C; `confidence` is max softmax(z), B.
    """
    found = []
    excess = _confidences(scores) - (1 - _LESS_ERROR * (1 - confidence.double()))[:, None]
    for rows in torch.split(excess, _ROWS):
        t = count + torch.arange(len(rows), device=rows.device)
        rate = (1 / (t + 1).double()).clamp_min(_FEWEST)
        kept = torch.where(t == 0, 1.0, 1 - rate).cumprod(dim=0)[:, None]  # there is nothing to keep at t = 0
        start = gaps * (t[0] > 0)
        after = kept * (start + (rate[:, None] * rows / kept).cumsum(dim=0))
        found.append(temperatures(torch.cat([start[None], after[:-1]]), t))
        gaps.copy_(after[-1])
        count.add_(len(rows))
    return torch.cat(found)


def temperatures(gaps: Tensor, count: Tensor) -> Tensor:
    """τ of …×13 gaps after so many samples."""
    grid = torch.cat([gaps.new_full((1,), theta) for theta in GRID])
    places = torch.arange(len(GRID), device=gaps.device)
    last = torch.where(gaps > 0, places, 0).amax(dim=-1, keepdim=True).clamp_max(len(GRID) - 2)
    above, below = gaps.gather(-1, last), gaps.gather(-1, last + 1)
    zero = (grid[last] + (grid[last + 1] - grid[last]) * above / (above - below)).squeeze(-1)
    zero = torch.where(gaps[..., -1] >= 0, GRID[-1], zero)
    zero = torch.where(gaps[..., 0] <= 0, GRID[0], zero)
    return 2 + (_FIRST_COUNTS * _FIRST + count * zero) / (_FIRST_COUNTS + count) / 2


def _confidences(scores: Tensor) -> Tensor:
    """max softmax(score/θ) for each θ, B×13, in float64."""
    below = scores - scores.amax(dim=1, keepdim=True)
    scaled = torch.empty_like(below)
    sums = [torch.mul(below, 1 / theta, out=scaled).exp_().sum(dim=1) for theta in GRID]
    return 1 / torch.stack(sums, dim=1).double()
