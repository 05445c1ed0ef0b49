"""Gaussians of one covariance around every class's mean, estimated from a bank of a few items a class.

ADAPT and OGA share it. A bank has C×L slots; items enter by entropy (`Entry`). All that the covariance needs of the
items is their moments, Σ (r, 1)(r, 1)ᵀ over the residuals r = x − μ of their classes: a (d+1)×(d+1) matrix in float64
with the second moments, the sums and the count n. An entering item changes the residuals of its own class alone, so the
moments are kept up to date by taking that class out and putting it in again (`Entry.exchanging`).

No number needs to be looked at, so that a GPU can record it all. Where numbers are at hand, looking saves work: samples
that come between two entering ones are scored together (`pass_by`), and in low precision if that will do
(`Gaussians.of`).
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from pta.engines.eigenspace import eigenspace_above
from pta.engines.host_readable import is_host_readable
from pta.engines.rule import Order
from pta.engines.zero_shot import ZeroShot

# Entropies closer than this are equal: the same sample's differ by some 1e-13 between one batch and another, which must
# not decide whether it enters again.
_SAME_ENTROPY = 1e-12
_NO_SPREAD = 1e-12  # squared residuals of unit features below this are rounding, not spread


@dataclass(frozen=True)
class Entry:
    """A sample that comes to a bank: it takes the slot of the largest entropy of its class if its own is smaller.

    Attributes:
        own: 1, its class.
        slot: 1, the first with the largest entropy.
        enters: 1, whether it gets in. If not, nothing is written.
    """

    own: Tensor
    slot: Tensor
    enters: Tensor

    @classmethod
    def of(cls, entropies: Tensor, zero_shot: ZeroShot, sample: int) -> "Entry":
        """The entry of a sample to C×L slots, where what stands in an empty one bounds what may enter it."""
        own, entropy = zero_shot.labels[sample, None], zero_shot.entropy[sample, None]
        largest, slot = entropies[own].max(dim=1)
        return cls(own, slot, entropy < largest - _SAME_ENTROPY)

    def put(self, slots: Tensor, new: Tensor) -> None:
        """Write to the slot taken, of C×L×…."""
        slots[self.own, self.slot] = torch.where(self.enters, new.to(slots.dtype), slots[self.own, self.slot])

    def put_class(self, rows: Tensor, new: Tensor) -> None:
        """Write to the row of the class, of C×…."""
        rows[self.own] = torch.where(self.enters, new.to(rows.dtype), rows[self.own])

    @contextmanager
    def exchanging(
        self, moments: Tensor, items: Tensor, means: Tensor, entropies: Tensor, empty: float
    ) -> Iterator[None]:
        """While the class's items, mean and entropies (`empty` in free slots) change, the moments follow."""

        def add(sign: int) -> None:
            counts = (entropies[self.own] < empty) & self.enters
            add_moments(moments, items[self.own], means[self.own, None], counts, sign=sign)

        add(-1)
        yield
        add(1)


def admissions(entropies: Tensor, labels: Tensor, new: Tensor) -> list[int]:
    """Which samples enter a bank as they come; changes nothing.

    Args:
        entropies: C×L, of the items.
        labels: B, the class of each sample.
        new: B, the entropy of each sample.
    """
    rows = entropies.numpy().copy()
    entered = []
    for sample, (own, entropy) in enumerate(zip(labels.tolist(), new.tolist(), strict=True)):
        slot = rows[own].argmax()
        if entropy < rows[own, slot] - _SAME_ENTROPY:
            rows[own, slot] = entropy
            entered.append(sample)
    return entered


def pass_by(
    entropies: Tensor,
    zero_shot: ZeroShot,
    features: Tensor,
    order: Order,
    learn: Callable[[int], None],
    score: Callable[[Tensor], Tensor],
) -> Tensor:
    """The scores of B samples, B×C, each by the bank that it meets: together, until one enters.

    Samples that enter, or may do so, are learnt before they are scored or after, as the order says.
    """
    entering: Iterable[int] = range(len(features))
    if is_host_readable(entropies):
        entering = admissions(entropies, zero_shot.labels, zero_shot.entropy)
    scores, scored = [], 0
    for sample in entering:
        until = sample if order == "update-first" else sample + 1
        if until > scored:
            scores.append(score(features[scored:until]))
        learn(sample)
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


def shrunk_covariance(moments: Tensor, *, enough: float = math.inf) -> Tensor:
    """Λ⁻¹ = [(n−1)Σ + tr(Σ)·I]/d, the ridge that the fewer items widen the more; of more items than `enough`, Σ itself.

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
    def of(
        cls, covariance: Tensor, means: Tensor, *, cutoff: Tensor | None = None, centred: bool = True
    ) -> "Gaussians":
        """Gaussians around C×d means with Λ = covariance⁻¹ (d×d, float64), or Λ = 0 if the covariance is zero.

        With a cutoff above zero, Λ is the pseudo-inverse to which eigenvalues below that share of the largest are zero.
        Computed in the precision of the means if the covariance is regular enough for it, else in float64. Unless
        centred, the origin is zero and scores have no constant of their own.
        """
        if not is_host_readable(covariance):
            root = _unseen_root(covariance, cutoff)
            return cls._around(means.double(), partial(torch.matmul, root), centred=centred)
        if cutoff is None or not cutoff:
            for dtype in (means.dtype, torch.float64):
                lower = _cholesky(covariance.to(dtype))
                if lower is not None:
                    whiten = partial(torch.linalg.solve_triangular, lower, upper=False)
                    return cls._around(means.to(dtype), whiten, centred=centred)
            cutoff = covariance.new_tensor(len(covariance) * torch.finfo(torch.float64).eps)
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


def _unseen_root(covariance: Tensor, cutoff: Tensor | None) -> Tensor:
    """R with Rᵀ·R = Λ of a covariance that is regular, zero or has a cutoff; no number is looked at."""
    kept = identity = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    if cutoff is not None:
        kept = eigenspace_above(covariance, cutoff)
        covariance = kept @ covariance @ kept
    largest = covariance.diagonal().max()
    kept = kept * (largest > 0)
    lower, _ = torch.linalg.cholesky_ex(covariance + (identity - kept) * torch.where(largest > 0, largest, 1.0))
    root: Tensor = torch.linalg.solve_triangular(lower, kept, upper=False)
    return root
