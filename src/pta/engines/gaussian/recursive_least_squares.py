"""Recursive least squares for a whole batch: what one rank-1 update per sample would give, from a few products.

With A = (G + γI)⁻¹ and W as they are before the batch, features F and targets Y, let I + F·A·Fᵀ = L·Lᵀ (Cholesky) and

    v = L⁻¹·(Y − F·W)        (B×C)        g = L⁻¹·F·A        (B×d)

Sample i then adds g_iᵀ·v_i to W and takes g_iᵀ·g_i from A, whatever comes after it, and f_t·g_i is L_ti for i < t. So
the scores f_t·W just before and just after sample t, and the lengths of W's columns then, are running sums.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pta.core.parameters import Order


@dataclass(frozen=True)
class Scores:
    """What every sample meets of W at its turn, just after (or just before) it was learned."""

    products: Tensor  # f_t·W_c, B×C, float64
    lengths: Tensor  # ‖W_c‖, B×C, float64

    @classmethod
    def of(cls, weights: Tensor, features: Tensor) -> "Scores":
        """The scores of features that all meet the same W."""
        f, w = features.double(), weights.double()
        return cls(f @ w.T, torch.linalg.vector_norm(w, dim=1).expand(len(f), -1))

    @property
    def cosines(self) -> Tensor:
        """f_t·W_c/‖W_c‖, and 0 where W_c is zero."""
        return torch.where(self.lengths > 0, self.products / self.lengths.clamp_min(1e-300), 0.0)


def learn_least_squares(inverse: Tensor, weights: Tensor, features: Tensor, targets: Tensor, order: Order) -> Scores:
    """Learn B samples with targets Y (B×C, float64) in order, changing A and W (a row per class, C×d) in place.

    A is float64: it is small, and float32 would lose its small directions to its large ones. The order says whether a
    sample's scores are from after it was learned or from before.
    """
    f, w = features.double(), weights.double()
    fa = f @ inverse
    k = fa @ f.T
    lower, _ = torch.linalg.cholesky_ex(k + torch.eye(len(k), dtype=k.dtype, device=k.device))
    before = f @ w.T
    v = torch.linalg.solve_triangular(lower, targets - before, upper=False)
    g = torch.linalg.solve_triangular(lower, fa, upper=False)

    gains = lower.tril(-1)
    products = before + gains @ v
    gg = g @ g.T
    growth = v * (2 * (g @ w.T + gg.tril(-1) @ v) + gg.diagonal()[:, None] * v)
    squares = w.square().sum(dim=1) + growth.cumsum(dim=0)
    if order == "update-first":
        own = (k.diagonal() - gains.square().sum(dim=1)) / lower.diagonal()  # L_tt − 1/L_tt, without its cancellation
        products = products + own[:, None] * v
    else:
        squares = squares - growth

    weights += (v.T @ g).to(weights.dtype)
    inverse -= g.T @ g
    inverse.copy_((inverse + inverse.T) / 2)
    return Scores(products, squares.clamp_(min=0).sqrt_())
