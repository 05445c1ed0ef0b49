"""Gaussians of one covariance around every class's mean, estimated from a bank of a few items a class.

ADAPT and OGA share it. A bank has C×L slots; items enter by entropy (`admissions`), and samples that come between two
entering ones are scored together (`pass_by`). All that the covariance needs of the items is their moments,
Σ (r, 1)(r, 1)ᵀ over the residuals r = x − μ of their classes: a (d+1)×(d+1) matrix in float64 with the second moments,
the sums and the count n. An entering item changes the residuals of its own class alone, so the moments are kept up to
date by taking that class out and putting it in again (`exchanging`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from pta.engines.rule import Order
from pta.engines.zero_shot import ZeroShot

# Entropies closer than this are equal: the same sample's differ by some 1e-13 between one batch and another, which must
# not decide whether it enters again.
_SAME_ENTROPY = 1e-12
_NO_SPREAD = 1e-12  # squared residuals of unit features below this are rounding, not spread


def admissions(entropies: Tensor, labels: Tensor, new: Tensor) -> list[tuple[int, int, int]]:
    """Which samples enter a bank as they come, each with its class and slot; changes nothing.

    A sample enters its class if its entropy is below the largest there, whose slot it takes (the first of equals).

    Args:
        entropies: C×L, of the items; what stands in an empty slot bounds what may enter it.
        labels: B, the class of each sample.
        new: B, the entropy of each sample.
    """
    rows = entropies.to("cpu", copy=True).numpy()  # one small decision after the other: no work for a device
    entered = []
    for sample, (own, entropy) in enumerate(zip(labels.tolist(), new.tolist(), strict=True)):
        slot = int(rows[own].argmax())
        if entropy < rows[own, slot] - _SAME_ENTROPY:
            rows[own, slot] = entropy
            entered.append((sample, own, slot))
    return entered


def pass_by(
    entropies: Tensor,
    zero_shot: ZeroShot,
    features: Tensor,
    order: Order,
    learn: Callable[[int, int, int], None],
    score: Callable[[Tensor], Tensor],
) -> Tensor:
    """The scores of B samples, B×C, each by the bank that it meets: together, until one enters.

    Samples that enter are learnt, given their class and slot, before they are scored or after, as the order says.
    """
    scores, scored = [], 0
    for sample, own, slot in admissions(entropies, zero_shot.labels, zero_shot.entropy):
        until = sample if order == "update-first" else sample + 1
        if until > scored:
            scores.append(score(features[scored:until]))
        learn(sample, own, slot)
        scored = until
    if scored < len(features):
        scores.append(score(features[scored:]))
    return torch.cat(scores)


def add_moments(moments: Tensor, items: Tensor, means: Tensor, filled: Tensor, *, sign: int = 1) -> None:
    """Add (sign = 1) or take away (−1) the moments of …×d items around means that broadcast with them.

    Only the items that are filled (…) count.
    """
    residuals = items.double() - means.double()
    rows = torch.cat([residuals, torch.ones_like(residuals[..., :1])], dim=-1) * filled[..., None]
    rows = rows.flatten(0, -2)
    moments.addmm_(rows.T, rows, alpha=sign)


@contextmanager
def exchanging(moments: Tensor, items: Tensor, mean: Tensor, entropies: Tensor, empty: float) -> Iterator[None]:
    """While a class's L×d items, its mean and its L entropies (`empty` in free slots) change, the moments follow."""
    add_moments(moments, items, mean, entropies < empty, sign=-1)
    yield
    add_moments(moments, items, mean, entropies < empty)


def sample_covariance(moments: Tensor) -> Tensor:
    """Σ, centred, with the divisor n − 1; exactly zero if there is no spread."""
    scatter, n = _scatter(moments)
    return scatter.div_(max(n - 1.0, 1.0))


def shrunk_covariance(moments: Tensor) -> Tensor:
    """Λ⁻¹ = [(n−1)Σ + tr(Σ)·I]/d, the ridge that the fewer items widen the more; Σ = I as long as n ≤ 1."""
    scatter, n = _scatter(moments)
    d = len(scatter)
    if n <= 1:
        return torch.eye(d, dtype=scatter.dtype, device=scatter.device)
    scatter.diagonal().add_(scatter.trace() / (n - 1.0))
    return scatter.div_(d)


def _scatter(moments: Tensor) -> tuple[Tensor, float]:
    """(n−1)Σ, a new d×d matrix, and n."""
    n = float(moments[-1, -1])
    total = moments[:-1, -1]
    scatter = torch.addr(moments[:-1, :-1], total, total, alpha=-1 / max(n, 1.0))
    return (scatter if float(scatter.trace()) > _NO_SPREAD * n else scatter.zero_()), n


@dataclass(frozen=True)
class Gaussians:
    """C Gaussians of one precision Λ, in coordinates that whiten them.

    Attributes:
        whiten: takes d×… vectors to coordinates whose squared length is xΛx.
        origin: d, the mean of the means; only differences to it are whitened, which float32 resolves better.
        means: d×C, whitened.
        offsets: C, −½ of the squared length of each whitened mean.
    """

    whiten: Callable[[Tensor], Tensor]
    origin: Tensor
    means: Tensor
    offsets: Tensor

    @classmethod
    def of(cls, covariance: Tensor, means: Tensor, *, centred: bool = True) -> "Gaussians":
        """Gaussians around C×d means with Λ = covariance⁻¹ (d×d, float64), or Λ = 0 if the covariance is zero.

        Computed in the precision of the means if the covariance is regular enough for it, else in float64. Unless
        centred, the origin is zero and scores have no constant of their own.
        """
        for dtype in (means.dtype, torch.float64):
            lower = _cholesky(covariance.to(dtype))
            if lower is not None:
                whiten = partial(torch.linalg.solve_triangular, lower, upper=False)
                return cls._around(means.to(dtype), whiten, centred=centred)
        return cls.of_singular(covariance, means, len(covariance) * torch.finfo(torch.float64).eps, centred=centred)

    @classmethod
    def of_singular(cls, covariance: Tensor, means: Tensor, cutoff: float, *, centred: bool = True) -> "Gaussians":
        """Gaussians with the pseudo-inverse for Λ, to which eigenvalues below a share of the largest are zero.

        In float64, and several times slower.
        """
        values, vectors = torch.linalg.eigh(covariance)
        kept = values > cutoff * values[-1].clamp_min(0)
        root = (torch.where(kept, values, 1).rsqrt() * kept)[:, None] * vectors.T
        return cls._around(means.double(), partial(torch.matmul, root), centred=centred)

    @classmethod
    def _around(cls, means: Tensor, whiten: Callable[[Tensor], Tensor], *, centred: bool = True) -> "Gaussians":
        origin = means.mean(dim=0) if centred else means.new_zeros(means.shape[1])
        whitened = whiten((means - origin).T)
        return cls(whiten, origin, whitened, -0.5 * whitened.square().sum(dim=0))

    def scores(self, features: Tensor) -> Tensor:
        """fΛμ − ½μΛμ of B×d features and every class, B×C, up to a constant of each sample."""
        whitened = self.whiten((features.to(self.origin.dtype) - self.origin).T)
        return (whitened.T @ self.means + self.offsets).to(features.dtype)


def _cholesky(covariance: Tensor) -> Tensor | None:
    """L with L·Lᵀ = covariance, unless it is singular to rounding."""
    lower, failed = torch.linalg.cholesky_ex(covariance)
    pivots = lower.diagonal().square()
    negligible = len(covariance) * torch.finfo(covariance.dtype).eps * pivots.max()
    return lower if bool((failed == 0) & (pivots.min() > negligible)) else None
