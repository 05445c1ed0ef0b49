"""The covariance of samples within their classes, from sums, and the metric that whitens it.

S = G/t − μμᵀ − (1/t)·Σ_c U_c·U_cᵀ/(n_c+1) with μ = Σx/t and U_c = M_c − n_c·μ. Written out, only Σ M_c·M_cᵀ/(n_c+1) is
dear, and it does not hold μ. `ClassScatter` gives it, and the other sums over classes beside it.
"""

import torch
from torch import Tensor

from pta.host_readable import is_host_readable
from pta.samples import LONGEST_MEAN

_ROUNDING = 1e-11  # of sums, per sample


class ClassScatter:
    """Σ_c (M_c, n_c)·(M_c, n_c)ᵀ/(n_c+1) of sums M (C×d) and weights n (C), (d+1)×(d+1), float64.

    Where numbers are host-readable, it is kept from one call to the next and brought up to date by the classes that
    have changed; the change is computed in the precision `dtype`.
    """

    def __init__(self) -> None:
        self._kept: tuple[Tensor, Tensor, Tensor] | None = None  # the scatter; n and the rows that are in it

    def __call__(self, sums: Tensor, weights: Tensor, dtype: torch.dtype) -> Tensor:
        """The scatter of the present sums; not to be written to."""
        if self._kept is None:
            rows = _rows(sums, weights)
            scatter = rows.T @ rows
            if is_host_readable(sums):
                self._kept = scatter, weights.clone(), rows.to(dtype)
            return scatter
        scatter, before, rows = self._kept
        changed = (weights != before).nonzero()[:, 0]
        new, old = _rows(sums[changed], weights[changed]).to(dtype), rows[changed]
        twice = (new - old).T @ (new + old)
        scatter.add_(twice + twice.T, alpha=0.5)
        before.copy_(weights)
        rows[changed] = new
        return scatter


def _rows(sums: Tensor, weights: Tensor) -> Tensor:
    return torch.cat([sums, weights[:, None]], dim=1).div_((weights + 1).sqrt()[:, None])


def scatter_within_classes(t: Tensor, total: Tensor, gram: Tensor, apart: Tensor) -> Tensor:
    """t·S of t samples with sum Σx (d), Gram matrix Σxxᵀ (d×d) and what `ClassScatter` gives, float64."""
    mean = total / t
    mixed = apart[:-1, -1] - (t + apart[-1, -1]) / 2 * mean  # all that holds μ is mixed·μᵀ + μ·mixedᵀ
    return (gram - apart[:-1, :-1]).addr_(mixed, mean).addr_(mean, mixed)


def whitening_factor(scatter: Tensor, ridge: Tensor, enough: Tensor, dtype: torch.dtype) -> Tensor:
    """L with L·Lᵀ = P⁻¹ = S/(tr S/d) + ridge·I of a multiple of S; I if there is not `enough` to compute it from.

    The eigenvalues of P⁻¹ are between ridge and ridge + d, so that low precision will do.
    """
    inverse = scatter.to(dtype).mul_(torch.where(enough, len(scatter) / scatter.trace(), 0.0))
    inverse.diagonal().add_(torch.where(enough, ridge, 1.0))
    lower, _ = torch.linalg.cholesky_ex(inverse)
    return lower


def contradiction_of_sums(t: float, total: Tensor, gram: Tensor, sums: Tensor, weights: Tensor) -> str | None:
    """What no t samples, each with weights that add up to at most one, could have as their sums.

    What they do not give to a class is a class of its own here. G − Σ_c M_c·M_cᵀ/n_c over all of them is positive
    semidefinite, and stays it whatever is learned, forgotten or added. Then so is S.
    """
    slack = _ROUNDING * (1 + t)
    rows = torch.cat([sums, (total - sums.sum(dim=0))[None]])
    shares = torch.cat([weights, (t - weights.sum())[None]])
    if not bool(shares[-1] >= -slack) or not float(gram.trace()) <= LONGEST_MEAN**2 * t + slack:
        return "weights and squares are those of more samples than there were"
    if not bool((torch.linalg.vector_norm(rows, dim=1) <= LONGEST_MEAN * shares + slack).all()):
        return "they are longer than their weights"
    rest = gram - (rows / shares.clamp_min(slack)[:, None]).T @ rows
    rest.diagonal().add_(slack)
    return None if int(torch.linalg.cholesky_ex(rest).info) == 0 else "they are more than all samples together"
