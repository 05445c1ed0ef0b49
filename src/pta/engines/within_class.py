"""The covariance of samples within their classes, from sums, and the metric that whitens it.

S = G/t − μμᵀ − (1/t)·Σ_c U_c·U_cᵀ/(n_c+1) with μ = Σx/t and U_c = M_c − n_c·μ. Written out, only Σ M_c·M_cᵀ/(n_c+1) is
dear, and it does not hold μ: on the host it is brought up to date by the classes that have changed (`ClassScatter`).
"""

import torch
from torch import Tensor

from pta.host_readable import is_host_readable


class ClassScatter:
    """Σ_c M_c·M_cᵀ/(n_c+1) of sums M (C×d) and weights n (C) in float64, kept from one refresh to the next.

    Where numbers are not host-readable it is computed each time: a recorded step that is replayed changes the sums
    without any call.
    """

    def __init__(self) -> None:
        self._kept: tuple[Tensor, Tensor, Tensor] | None = None  # scatter; n and M_c/√(n_c+1) that are in it

    def __call__(self, sums: Tensor, weights: Tensor) -> Tensor:
        """The scatter of the present sums, d×d."""
        if self._kept is None or not is_host_readable(sums):
            rows = _scaled(sums, weights)
            self._kept = rows.T @ rows, weights.clone(), rows
        else:
            scatter, before, rows = self._kept
            changed = (weights != before).nonzero()[:, 0]
            new, old = _scaled(sums[changed], weights[changed]), rows[changed]
            twice = (new - old).T @ (new + old)
            scatter.add_(twice, alpha=0.5).add_(twice.T, alpha=0.5)
            before.copy_(weights)
            rows[changed] = new
        return self._kept[0]

    def forget(self) -> None:
        """Compute it anew the next time: the sums were replaced."""
        self._kept = None


def _scaled(sums: Tensor, weights: Tensor) -> Tensor:
    return sums / (weights + 1).sqrt()[:, None]


def within_class_covariance(
    t: Tensor, total: Tensor, gram: Tensor, sums: Tensor, weights: Tensor, scatter: ClassScatter
) -> Tensor:
    """S of t samples with sum Σx (d) and Gram matrix Σxxᵀ (d×d), float64."""
    mean, share = total / t, weights / (weights + 1)
    # all that holds μ is a·μᵀ + μ·aᵀ
    mixed = torch.outer(share @ sums - (t + share @ weights) / 2 * mean, mean)
    return (gram - scatter(sums, weights) + mixed + mixed.T) / t


def metric_of(covariance: Tensor, ridge: Tensor, enough: Tensor, dtype: torch.dtype) -> Tensor:
    """P = (S/(tr S/d) + ridge·I)⁻¹, or the identity if there is not `enough` to compute it from.

    The eigenvalues of the bracket are at most d apart from each other, so that low precision inverts it well.
    """
    identity = torch.eye(len(covariance), dtype=dtype, device=covariance.device)
    scaled = torch.where(enough, covariance / covariance.trace() * len(covariance), 0.0)
    scaled.diagonal().add_(ridge)
    lower, _ = torch.linalg.cholesky_ex(scaled.to(dtype))
    return torch.where(enough, torch.cholesky_inverse(lower), identity)
