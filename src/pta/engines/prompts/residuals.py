"""Prototypes at unit length, moved by one step of AdamW on residuals that start at zero, in closed form.

A prototype is a row w of W, its direction ŵ = (w + r)/|w + r| with the residual r = 0. A loss with the gradient g by ŵ
has the gradient (g − ŵ⟨ŵ, g⟩)/|w| by r. Most of g is a multiple of one feature f, whose cosines ⟨ŵ, f⟩ are known.
"""

from typing import NamedTuple

import torch
from torch import Tensor

_EPS = 1e-3  # of AdamW, released program of DPE
_ABSENT = -1e30  # a logit whose probability is 0 beside any other
_SHORTEST = 1e-12  # a row of length 0 has no direction


class Directions(NamedTuple):
    """Rows of which only the direction counts."""

    rows: Tensor  # N×d
    lengths: Tensor  # N×1

    @classmethod
    def of(cls, rows: Tensor) -> "Directions":
        """Rows with their lengths."""
        return cls(rows, torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp_min_(_SHORTEST))

    def unit(self) -> Tensor:
        """The rows at unit length."""
        return self.rows / self.lengths

    def cosines(self, features: Tensor) -> Tensor:
        """Of B×d features with the directions, B×N, in the precision of the features."""
        return (features @ self.rows.to(features.dtype).T).div_(self.lengths.T)

    def some(self, numbers: Tensor | slice) -> "Directions":
        """Those with some numbers."""
        return Directions(self.rows[numbers], self.lengths[numbers])


def stepped(
    before: Directions,
    f: Tensor,
    cosines: Tensor,
    along: Tensor,
    rate: float,
    more: Tensor | None = None,
    rows: Tensor | slice = slice(None),
) -> Directions:
    """The directions after a step.

    The gradient by direction c is along_c·f, where the cosine of both is given, and for some rows what `more` has.
    From zero moments AdamW moves every coordinate by −rate·g/(|g| + ε); weight decay does nothing to a zero.
    """
    w, lengths = before
    radial = (along * cosines)[:, None]  # ⟨ŵ, g⟩
    if more is not None:
        radial[rows] += torch.linalg.vecdot(w[rows], more)[:, None] / lengths[rows]
    g = (w * (-radial / lengths.square())).addcmul_(along[:, None] / lengths, f)
    if more is not None:
        g[rows] += more / lengths[rows]
    return Directions.of(w.addcdiv(g, g.abs().add_(_EPS), value=-rate))


def alignment_gradients(
    visual: Tensor, text: Tensor, present: Tensor, temperature: float, weight: float
) -> tuple[Tensor, Tensor]:
    """The gradients of a weight times InfoNCE from visual to text prototypes by both, M×d unit rows each.

    InfoNCE is the mean of −ln softmax(visual·textᵀ/temperature) on the diagonal, over the rows and columns of present
    classes (M flags).
    """
    without_absent = visual.new_zeros(len(visual)).masked_fill_(~present, _ABSENT)
    p = torch.addmm(without_absent, visual / temperature, text.T).softmax(dim=1)
    p.diagonal().sub_(1.0)
    share = present.to(visual.dtype)[:, None] * (weight / temperature) / present.sum().clamp_min(1)
    return (p @ text).mul_(share), p.T @ (share * visual)
