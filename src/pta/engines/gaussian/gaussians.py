"""Gaussians of one covariance around the means of the classes.

ADAPT and OGA estimate the covariance from the moments of the items in a bank: Σ (r, 1)(r, 1)ᵀ over the residuals
r = x − μ of their classes, a (d+1)×(d+1) matrix in float64 with the second moments, the sums and the count n.

No number needs to be read on the host, so that a GPU can record everything. Where numbers are host-readable, reading
some saves work: a Cholesky factor in low precision if that will do (`Gaussians.of`), rows that are left out
(`add_scatter`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from pta.core.plain import is_host_readable

_ROUNDING_OF_MOMENTS = 1e-8  # per item; millions of updates in float64 stay below
_SQUARINGS = 26  # largest eigenvalues that differ by less than 2⁻²⁶ of them count as one
_SIGN_STEPS = 64  # tell eigenvalues from the cutoff that are 10⁻¹⁰ of the largest away from it
_NO_SPREAD = 1e-12  # squared residuals of unit features below this are rounding, not spread


def add_moments(moments: Tensor, items: Tensor, means: Tensor, filled: Tensor, *, sign: int = 1) -> None:
    """Add (sign = 1) or take away (−1) the moments of …×d items around means that broadcast with them.

    Only the items that are filled (…) count.
    """
    rows = _moment_rows(items, means, filled)
    moments.addmm_(rows.T, rows, alpha=sign)


def are_moments_of(moments: Tensor, items: Tensor, means: Tensor, filled: Tensor) -> bool:
    """Whether the moments are those of the filled items, but for rounding.

    M = RᵀR is told by M·v = Rᵀ(R·v) of random vectors v, which costs far less than RᵀR.
    """
    rows = _moment_rows(items[filled], means.expand_as(items)[filled], filled[filled])
    generator = torch.Generator()
    generator.seed()
    probe = torch.randn(len(moments), 2, generator=generator, dtype=torch.float64).to(moments.device)
    difference = moments @ probe - rows.T @ (rows @ probe)
    return bool((difference.abs() <= _ROUNDING_OF_MOMENTS * (1 + len(rows))).all())


def _moment_rows(items: Tensor, means: Tensor, filled: Tensor) -> Tensor:
    residuals = items.double() - means.double()
    rows = torch.cat([residuals, torch.ones_like(residuals[..., :1])], dim=-1) * filled[..., None]
    return rows.flatten(0, -2)


def add_scatter(covariance: Tensor, x: Tensor, means: Tensor, shares: Tensor) -> None:
    """Add Σ_c share_c·(x−μ_c)·(x−μ_c)ᵀ of a feature (d), C×d means and C float64 shares to a d×d covariance."""
    if is_host_readable(means):
        learning = shares > torch.finfo(torch.float64).eps / (8 * len(shares))  # the others together are below rounding
        shares, means = shares[learning], means[learning]
    residuals = (x - means).double()
    covariance.addmm_((shares[:, None] * residuals).T, residuals)


def shrunk_covariance(moments: Tensor, *, enough: float = math.inf) -> Tensor:
    """Λ⁻¹ = [(n−1)Σ + tr(Σ)·I]/d, whose ridge is the wider the fewer items; of more items than `enough`, Σ itself.

    Σ is centred, with the divisor n − 1; exactly zero if there is no spread, but I as long as n ≤ 1 ≤ enough.
    """
    n, total = moments[-1, -1], moments[:-1, -1]
    scatter = torch.addr(moments[:-1, :-1], total, total / n.clamp_min(1.0), alpha=-1)
    scatter.mul_((scatter.trace() > _NO_SPREAD * n) & (n > 1))
    d, plenty = len(scatter), n > enough
    ridge = torch.where(n > 1, scatter.trace() / (n - 1), d)
    scatter.diagonal().add_(torch.where(plenty, 0.0, ridge))
    return scatter.div_(torch.where(plenty, (n - 1).clamp_min(1.0), d))


@dataclass(frozen=True)
class Gaussians:
    """C Gaussians of one precision Λ, in coordinates that whiten them."""

    whiten: Callable[[Tensor], Tensor]  # takes d×… vectors to coordinates whose squared length is xΛx
    origin: Tensor  # d, the mean of the means; only differences to it are whitened, which float32 resolves better
    means: Tensor  # d×C, whitened
    offsets: Tensor  # C, −½ of the squared length of each whitened mean

    @classmethod
    def of(
        cls, covariance: Tensor, means: Tensor, *, cutoff: Tensor | None = None, centred: bool = True
    ) -> "Gaussians":
        """Gaussians around C×d means with Λ = covariance⁻¹ (d×d, float64); Λ = 0 of a zero or infinite covariance.

        With a cutoff above zero, Λ is the pseudo-inverse to which eigenvalues below that share of the largest are zero.
        Computed in the precision of the means if the covariance is regular enough for it, else in float64. Unless
        centred, the origin is zero and scores have no constant of their own.
        """
        if not is_host_readable(covariance):
            return cls._around(means.double(), partial(torch.matmul, _unseen_root(covariance, cutoff)), centred)
        if cutoff is None or not cutoff:
            for dtype in (means.dtype, torch.float64):
                lower, failed = torch.linalg.cholesky_ex(covariance.to(dtype))
                pivots = lower.diagonal().square()
                negligible = len(covariance) * torch.finfo(dtype).eps * pivots.max()
                if bool((failed == 0) & (pivots.min() > negligible)):  # not singular to rounding
                    whiten = partial(torch.linalg.solve_triangular, lower, upper=False)
                    return cls._around(means.to(dtype), whiten, centred)
            cutoff = covariance.new_tensor(len(covariance) * torch.finfo(torch.float64).eps)
        if not covariance.isfinite().all():  # squares of huge features overflow, and eigh would raise
            covariance = torch.zeros_like(covariance)
        values, vectors = torch.linalg.eigh(covariance)
        kept = values > cutoff * values[-1].clamp_min(0)
        root = (torch.where(kept, values, 1).rsqrt() * kept)[:, None] * vectors.T
        return cls._around(means.double(), partial(torch.matmul, root), centred)

    @classmethod
    def of_moments(
        cls,
        moments: Tensor,
        means: Tensor,
        *,
        ready: Tensor | None = None,
        enough: float = math.inf,
        capacity: float = math.inf,
        cutoff: float = 0.0,
    ) -> "Gaussians":
        """Gaussians around C×d means with the shrunk covariance of n items, given by their moments.

        Until `ready` (0-d) is true, Λ = d·I. With more items than `enough`, Λ is the pseudo-inverse of the covariance
        without shrinkage, to which eigenvalues below the share `cutoff` of the largest are zero. It is never prepared
        if the largest possible n, the `capacity`, is not more than `enough`.
        """
        covariance, plenty = shrunk_covariance(moments, enough=enough), moments[-1, -1] > enough
        if ready is not None:
            covariance.mul_(ready).diagonal().add_((~ready).double() / len(covariance))
            plenty = plenty & ready
        return cls.of(covariance, means, cutoff=cutoff * plenty.double() if enough < capacity else None)

    @classmethod
    def _around(cls, means: Tensor, whiten: Callable[[Tensor], Tensor], centred: bool) -> "Gaussians":
        origin = means.mean(dim=0) if centred else means.new_zeros(means.shape[1])
        whitened = whiten((means - origin).T)
        return cls(whiten, origin, whitened, -0.5 * whitened.square().sum(dim=0))

    def scores(self, features: Tensor) -> Tensor:
        """fΛμ − ½μΛμ of B×d features and every class, B×C, up to a constant of each sample."""
        whitened = self.whiten((features.to(self.origin.dtype) - self.origin).T)
        return (whitened.T @ self.means + self.offsets).to(features.dtype)


def _unseen_root(covariance: Tensor, cutoff: Tensor | None) -> Tensor:
    """R with Rᵀ·R = Λ of a covariance that is regular, zero or has a cutoff; no number is read on the host."""
    kept = identity = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    if cutoff is not None:
        kept = eigenspace_above(covariance, cutoff)
        covariance = kept @ covariance @ kept
    largest = covariance.diagonal().max()
    kept = kept * (largest > 0)
    lower, _ = torch.linalg.cholesky_ex(covariance + (identity - kept) * torch.where(largest > 0, largest, 1.0))
    return torch.linalg.solve_triangular(lower, kept, upper=False)


def eigenspace_above(covariance: Tensor, cutoff: Tensor) -> Tensor:
    """The projector on the eigenvectors whose eigenvalues are above a share (0-d) of the largest, d×d.

    It is (I + sign(Σ − cut·I))/2, with the limit of X ← X·(3I − X²)/2 for the sign and that of Σ's scaled squares for
    the projector on the eigenvectors of the largest eigenvalue. Of Σ = 0 it is I/2.
    """
    scaled = covariance / _length(covariance)
    top = scaled
    for _ in range(_SQUARINGS):
        top = top @ top
        top = top / _length(top)
    largest = (top * scaled).sum() / top.trace().clamp_min(torch.finfo(top.dtype).tiny)
    X = scaled.clone()
    X.diagonal().sub_(cutoff * largest)
    for _ in range(_SIGN_STEPS):
        X = torch.addmm(X, X @ X, X, beta=1.5, alpha=-0.5)
    X.diagonal().add_(1.0)
    return X / 2


def _length(matrix: Tensor) -> Tensor:
    return matrix.square().sum().sqrt().clamp_min(torch.finfo(matrix.dtype).tiny)
