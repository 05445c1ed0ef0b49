"""DOTA: distributional test-time adaptation of vision-language models (NeurIPS 2025).

https://arxiv.org/abs/2409.19375 (program: https://github.com/skylineeeeen/DOTA)

Keeps a Gaussian for every class, estimated from all samples by their zero-shot probabilities: count n_c, mean μ_c and
covariance Σ_c. The Gaussians share the mean of the covariances as theirs when they classify.

For each sample with kept views x_v (V of them; the feature alone without views), y_v = softmax(z_v):
1. x̄ = mean of x_v; g = μ·Λ·x̄ − ½·diag(μ·Λ·μᵀ) with Λ = [(1−ε)·mean_c Σ_c + ε·I]⁻¹ (ε = 0 before the first sample).
2. Answer: mean of z_v + λ·g with λ = min(ρ·mean_c(n_c)/V, η).
3. Σ_c ← (n_c·Σ_c + Σ_v y_vc·(x_v−μ_c)·(x_v−μ_c)ᵀ)/(n_c + Σ_v y_vc), with the mean from before.
4. μ_c ← (n_c·μ_c + Σ_v y_vc·x_v)/(n_c + Σ_v y_vc), n_c ← n_c + Σ_v y_vc.

The steps are those of the released program. Where it and the paper differ:
* Counts start at 1, the paper's at 0 (`initial_count`), where the first sample replaces every mean and covariance.
* λ grows with the mean count of a class, the paper's with the number of samples (`growth`).
* The program rounds Λ and μ to half precision to score with them (`scoring="float16"`). That is not the default: half
  precision shows in which batches the samples came, and that must not matter.

All that is learnt is zero-shot, so a batch is exact: within a stretch of samples mean_c Σ_c is a weighted sum of the
covariances before it plus residuals, and each covariance is written once a stretch. A residual whose share in a
covariance is below rounding is left out of mean_c Σ_c until then. Nearly every class has a share in nearly every
sample, so samples that come one at a time cost passes over all C·d² numbers each.
"""

from typing import ClassVar, Literal, Protocol, get_args

import torch
from torch import Tensor

from pta.adapters.base import Adapter, register
from pta.classifier import ZeroShotClassifier
from pta.engines.rule import Order
from pta.engines.zero_shot import exact_logits
from pta.errors import InvalidParameter
from pta.parameters import require_choice, require_number
from pta.samples import Samples

Covariance = Literal["per-class", "shared"]
Growth = Literal["mean-count", "samples"]
Scoring = Literal["full", "float16"]

_STRETCH = 32  # rows learnt between two writes of the covariances: their residuals take 32·C·d numbers
_LARGEST_HALF = 65504.0
_SMALLEST_COUNT = 1e-300  # in the place of 0, where it divides


@register
class DOTA(Adapter):
    """Distributional adaptation: a Gaussian for every class, learnt from zero-shot probabilities.

    Args:
        classifier: the zero-shot classifier that says how much of a sample each class learns.
        epsilon: ε, the share of the identity in the covariance that is inverted.
        eta: η, the largest weight λ of the Gaussian classifier.
        rho: ρ, how fast λ grows.
        sigma: every covariance starts as σ·I.
        omega: every mean starts with ω in each dimension.
        initial_count: the weight of that start in counts (released 1, paper 0).
        growth: what λ grows with: the mean count of the classes ("mean-count", released) or the number of "samples"
            (paper).
        covariance: keep one "per-class" (C·d² numbers), or only their mean, weighted by the counts ("shared", d²
            numbers). The latter is not in the paper: its classes weigh as much as they were seen, not all the same.
        scoring: score with Λ and μ in "full" precision or rounded to "float16", as the released program does.
        order: score a sample before learning it ("predict-first") or after ("update-first").
        max_gib: refuse covariances that take more memory than this.

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> DOTA(classifier).step([[0.8, 0.6], [0.1, 0.9]]).argmax(dim=1)
    tensor([0, 1])
    """

    name: ClassVar[str] = "dota"
    at_once = 256
    mu: Tensor
    counts: Tensor
    covariances: Tensor
    seen: Tensor

    def __init__(
        self,
        classifier: ZeroShotClassifier,
        *,
        epsilon: float = 1e-4,
        eta: float = 0.3,
        rho: float = 0.02,
        sigma: float = 0.002,
        omega: float = 0.001,
        initial_count: float = 1.0,
        growth: Growth = "mean-count",
        covariance: Covariance = "per-class",
        scoring: Scoring = "full",
        order: Order = "predict-first",
        max_gib: float = 2.0,
    ) -> None:
        self.epsilon = require_number("epsilon", epsilon, 1e-5, 1.0)  # below, float32 covariances may have no inverse
        self.eta = require_number("eta", eta, 0.0, 1e6)
        self.rho = require_number("rho", rho, 0.0, 1e6)
        self.sigma = require_number("sigma", sigma, 1e-6, 1e3)
        self.omega = require_number("omega", omega, -1e3, 1e3)
        self.initial_count = require_number("initial_count", initial_count, 0.0, 1e6)
        self.max_gib = require_number("max_gib", max_gib, 0.0, 1e6)
        require_choice("growth", growth, get_args(Growth))
        require_choice("covariance", covariance, get_args(Covariance))
        require_choice("scoring", scoring, get_args(Scoring))
        require_choice("order", order, get_args(Order))
        self.growth, self.covariance, self.scoring, self.order = growth, covariance, scoring, order
        super().__init__(
            classifier,
            epsilon=self.epsilon,
            eta=self.eta,
            rho=self.rho,
            sigma=self.sigma,
            omega=self.omega,
            initial_count=self.initial_count,
            growth=growth,
            covariance=covariance,
            scoring=scoring,
            order=order,
            max_gib=self.max_gib,
        )
        self._declare()

    def _declare(self) -> None:
        classes, dim = self.classifier.classes, self.classifier.dim
        kept = classes if self.covariance == "per-class" else 1
        gib = kept * dim * dim * self.classifier.anchors.element_size() / 2**30
        if gib > self.max_gib:
            hint = 'use covariance="shared" or a larger max_gib' if kept > 1 else "use a larger max_gib"
            raise InvalidParameter(f"dota would keep {gib:.3g} GiB of covariances, max_gib is {self.max_gib:g}; {hint}")

        def start(kind: torch.dtype, value: float, *shape: int) -> Tensor:
            return self.classifier.anchors.new_full(shape, value, dtype=kind)

        def covariances() -> Tensor:
            anchors = self.classifier.anchors
            return (torch.eye(dim, dtype=anchors.dtype, device=anchors.device) * self.sigma).repeat(kept, 1, 1)

        dtype = self.classifier.anchors.dtype
        self.add_state("mu", lambda: start(dtype, self.omega, classes, dim))
        self.add_state("counts", lambda: start(torch.float64, self.initial_count, classes))
        self.add_state("covariances", covariances, per_class=self.covariance == "per-class")
        self.add_state("seen", lambda: start(torch.int64, 0), per_class=False)

    def _step(self, samples: Samples) -> Tensor:
        views = _views_of(samples)
        z = self.classifier.logits(views.mean(dim=1))
        for start in range(0, len(views), size := max(1, _STRETCH // views.shape[1])):
            stretch = slice(start, start + size)
            z[stretch] += self._learn_and_score(views[stretch])
        return z

    def _predict(self, samples: Samples) -> Tensor:
        views = _views_of(samples)
        mean = views.mean(dim=1)
        pooled = self.covariances.mean(dim=0)
        weight = self._weight(self.counts, int(self.seen), views.shape[1])
        return self.classifier.logits(mean) + weight * self._gaussian(pooled, mean, int(self.seen)).to(mean.dtype)

    def _learn_and_score(self, views: Tensor) -> Tensor:
        """λ·g of a stretch of samples with their views, B×V×d, each at its turn."""
        y = exact_logits(self.classifier, views).softmax(dim=2)
        counts = torch.cat([self.counts[None], y.sum(dim=1)]).cumsum(dim=0)
        pooled: _Pooled = (_PerClass if self.covariance == "per-class" else _Shared)(self.covariances, counts, y)
        seen = int(self.seen)
        scores = views.new_empty(len(views), self.classifier.classes)

        def score(sample: int, learnt: int) -> None:
            weight = self._weight(counts[learnt], seen + learnt, views.shape[1])
            mean = views[sample].mean(dim=0, keepdim=True)
            scores[sample] = weight * self._gaussian(pooled.covariance(), mean, seen + learnt)[0]

        for t, x in enumerate(views):
            if self.order == "predict-first":
                score(t, learnt=t)
            residuals = x[:, None] - self.mu
            shares = y[t] / counts[t + 1].clamp_min(_SMALLEST_COUNT)
            self.mu += torch.einsum("vc,vcd->cd", shares.to(x.dtype), residuals)
            pooled.learn(residuals)
            if self.order == "update-first":
                score(t, learnt=t + 1)
        pooled.write()
        self.counts.copy_(counts[-1])
        self.seen += len(views)
        return scores

    def _weight(self, counts: Tensor, seen: int, views: int) -> float:
        grown = float(counts.mean()) / views if self.growth == "mean-count" else seen
        return min(self.rho * grown, self.eta)

    def _gaussian(self, covariance: Tensor, x: Tensor, seen: int) -> Tensor:
        """g = μ·Λ·x − ½·diag(μ·Λ·μᵀ) of features B×d, in float64."""
        epsilon = self.epsilon if seen else 0.0
        identity = torch.eye(len(covariance), dtype=torch.float64, device=covariance.device)
        lower = torch.linalg.cholesky((1 - epsilon) * covariance.double() + epsilon * identity)
        if self.scoring == "float16":
            mu = self.mu.half().double()
            precision = torch.cholesky_inverse(lower).clamp(-_LARGEST_HALF, _LARGEST_HALF).half().double()
            through = mu @ precision
            return x.double() @ through.T - (through * mu).sum(dim=1) / 2
        white_mu = torch.linalg.solve_triangular(lower, self.mu.double().T, upper=False)
        white_x = torch.linalg.solve_triangular(lower, x.double().T, upper=False)
        g: Tensor = white_x.T @ white_mu - white_mu.square().sum(dim=0) / 2
        return g


def _views_of(samples: Samples) -> Tensor:
    return samples.features[:, None] if samples.surest is None else samples.surest


class _Pooled(Protocol):
    """The covariance that the classes share, at each turn of a stretch of samples."""

    def learn(self, residuals: Tensor) -> None:
        """Take the next sample's x_v − μ_c, V×C×d."""

    def covariance(self) -> Tensor:
        """The pooled covariance now, d×d."""

    def write(self) -> None:
        """Bring the state up to date, in place, at the end of the stretch."""


class _PerClass:
    """mean_c Σ_c. With counts n(t), a covariance before the stretch keeps n(0)/n(t) of itself, and every residual that
    was met since has the share y/n(t).
    """

    def __init__(self, covariances: Tensor, counts: Tensor, y: Tensor) -> None:
        self.state, self.counts, self.y = covariances, counts.clamp_min(_SMALLEST_COUNT), y
        self.kept = self.counts[0] / self.counts
        classes, dim = len(covariances), covariances.shape[-1]
        weights = (self.kept / classes).to(covariances.dtype)
        self.earlier = (weights @ covariances.view(classes, -1)).view(-1, dim, dim)
        self.since = covariances.new_zeros(dim, dim)
        self.residuals = covariances.new_empty(*y.shape, dim)
        self.shares = torch.zeros_like(y)
        self.negligible = torch.finfo(covariances.dtype).eps / 8
        self.turn = 0

    def learn(self, residuals: Tensor) -> None:
        self.residuals[self.turn] = residuals
        self.turn += 1
        met = slice(0, self.turn)
        shares = self.y[met] / self.counts[self.turn]
        change = shares - self.shares[met]
        change = torch.where(change.abs() > self.negligible, change, 0.0)
        self.shares[met] += change
        rows = change.nonzero(as_tuple=True)
        changed = self.residuals[rows]
        weights = (change[rows] / len(self.state)).to(changed.dtype)
        self.since.addmm_((weights[:, None] * changed).T, changed)

    def covariance(self) -> Tensor:
        return self.earlier[self.turn] + self.since

    def write(self) -> None:
        residuals = self.residuals.flatten(0, 1).transpose(0, 1)
        shares = (self.y / self.counts[-1]).flatten(0, 1).T.to(residuals.dtype)
        self.state *= self.kept[-1, :, None, None].to(residuals.dtype)
        self.state.baddbmm_((shares[:, :, None] * residuals).mT, residuals)


class _Shared:
    """Σ_c n_c·Σ_c / Σ_c n_c, which needs no covariance of any single class."""

    def __init__(self, covariances: Tensor, counts: Tensor, y: Tensor) -> None:
        self.state, self.y = covariances[0], y
        self.totals = counts.sum(dim=1).clamp_min(_SMALLEST_COUNT)
        self.negligible = torch.finfo(covariances.dtype).eps / 8
        self.turn = 0

    def learn(self, residuals: Tensor) -> None:
        before, after = self.totals[self.turn], self.totals[self.turn + 1]
        shares = self.y[self.turn] / after
        rows = (shares > self.negligible / len(self.y[0, 0])).nonzero(as_tuple=True)
        changed = residuals[rows]
        self.state *= (before / after).to(changed.dtype)
        self.state.addmm_((shares[rows].to(changed.dtype)[:, None] * changed).T, changed)
        self.turn += 1

    def covariance(self) -> Tensor:
        return self.state

    def write(self) -> None:
        """The state is up to date at every turn."""
