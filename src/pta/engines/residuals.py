"""Prototypes at unit length, moved by one step of AdamW on residuals that start at zero, in closed form.

A prototype is a row of W, its direction ŵ = (w + r)/|w + r| with the residual r = 0. A loss L with the gradient g by ŵ
has the gradient (g − ŵ⟨ŵ, g⟩)/|w| by r.
"""

import torch
from torch import Tensor

_EPS = 1e-3  # of AdamW, released program of DPE
_SHORTEST = 1e-12  # a row of length 0 has no direction


def directions(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows at unit length, N×d, and how long they were, N×1."""
    lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp_min_(_SHORTEST)
    return rows / lengths, lengths


def stepped(rows: Tensor, unit: Tensor, lengths: Tensor, gradient: Tensor, rate: float) -> Tensor:
    """The directions after a step, given those before and the gradient by them, which is overwritten.

    From zero moments AdamW moves every coordinate by −rate·g/(|g| + ε); weight decay does nothing to a zero.
    """
    along = torch.linalg.vecdot(unit, gradient)[:, None]
    gradient.addcmul_(unit, along, value=-1).div_(lengths)
    return directions(rows.sub(gradient.div_(gradient.abs().add_(_EPS)), alpha=rate))[0]


def alignment_gradients(visual: Tensor, text: Tensor, present: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The gradients of InfoNCE from visual to text prototypes by both, M×d unit rows each.

    InfoNCE is the mean of −ln softmax(visual·textᵀ/temperature) on the diagonal, over the rows and columns of present
    classes (M flags).
    """
    logits = (visual / temperature) @ text.T
    p = logits.masked_fill_(~present, torch.finfo(logits.dtype).min).softmax(dim=1)
    p.diagonal().sub_(1.0)
    share = present[:, None] / (temperature * present.sum().clamp_min(1))
    return (p @ text).mul_(share), p.T @ (share * visual)


def add_to_rows(total: Tensor, rows: Tensor | slice, more: Tensor, factor: float) -> None:
    """Add more, times a factor, to some rows in place."""
    if isinstance(rows, slice):
        total[rows].add_(more, alpha=factor)
    else:
        total.index_add_(0, rows, more, alpha=factor)
