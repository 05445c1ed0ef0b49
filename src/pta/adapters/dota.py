"""DOTA: distributional test-time adaptation of vision-language models (NeurIPS 2025).

https://arxiv.org/abs/2409.19375 (program: https://github.com/skylineeeeen/DOTA)
The loop: `pta.reference.dota`.

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
  precision shows in which batches the samples came, and that must not matter. Entries of Λ beyond ±65504, the largest
  half, are cut to it here, and the products of the rounded numbers are wide; both are ours.
* ε, η and ρ differ from one released configuration to the next (`pta.presets`). The defaults are those of the worked
  example, the most common ones: ε = 10⁻⁴, η = 0.3, ρ = 0.02. ImageNet has η = 0.2, ρ = 0.005.

All that is learnt is zero-shot, so a batch is exact. What is kept is n_c·Σ_c, sums that only grow, written once a
stretch of samples; within it mean_c Σ_c is a weighted sum of those before it and of the residuals since. Nearly every
class has a share in nearly every sample, so samples that come one at a time cost passes over all C·d² numbers each.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from pta.adapters.adapter import Adapter, register
from pta.classifier import ZeroShotClassifier
from pta.engines.gaussian import Gaussians
from pta.engines.rule import Order
from pta.engines.zero_shot import exact_logits
from pta.errors import InvalidParameter
from pta.parameters import require_choice, require_number
from pta.samples import Samples

Covariance = Literal["per-class", "shared"]
Growth = Literal["mean-count", "samples"]
Scoring = Literal["full", "float16"]

_STRETCH = 32  # rows learnt between two writes of n_c·Σ_c
_LARGEST_HALF = 65504.0


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
            numbers). The latter is not in the paper: its classes weigh as much as they were seen, not all the same,
            and what a class has put into it stays there when `reset` makes the class forget.
        scoring: score with Λ and μ in "full" precision or rounded to "float16", as the released program does.
        order: score a sample before learning it ("predict-first") or after ("update-first").
        max_gib: refuse covariances that take more memory than this. At its peak it is more: `reset` builds the start
            beside what it replaces, twice as much, and a stretch of samples takes some 3·32·C·d numbers.

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> DOTA(classifier).step([[0.8, 0.6], [0.1, 0.9]]).argmax(dim=1)
    tensor([0, 1])
    """

    name: ClassVar[str] = "dota"
    recordable = True
    at_once = 256
    mu: Tensor
    counts: Tensor
    seen: Tensor
    scatters: Tensor
    pooled: Tensor

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
        anchors = self.classifier.anchors
        classes, dim = anchors.shape
        kept = classes if self.covariance == "per-class" else 1
        gib = kept * dim * dim * anchors.element_size() / 2**30
        if gib > self.max_gib:
            hint = 'use covariance="shared" or a larger max_gib' if kept > 1 else "use a larger max_gib"
            raise InvalidParameter(f"dota would keep {gib:.3g} GiB of covariances, max_gib is {self.max_gib:g}; {hint}")

        def full(value: float, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
            return self.classifier.anchors.new_full(shape, value, dtype=dtype)

        def identities(value: float, *shape: int) -> Tensor:
            start = full(0.0, *shape, dim, dim)
            start.diagonal(dim1=-2, dim2=-1).fill_(value)
            return start

        self.add_state("mu", lambda: full(self.omega, classes, dim))
        self.add_state("counts", lambda: full(self.initial_count, classes, dtype=torch.float64))
        self.add_state("seen", lambda: full(0, dtype=torch.int64), per_class=False)
        if self.covariance == "per-class":
            self.add_state("scatters", lambda: identities(self.initial_count * self.sigma, classes))  # n_c·Σ_c
        else:
            self.add_state("pooled", lambda: identities(self.sigma), per_class=False)  # Σ_c n_c·Σ_c / Σ_c n_c

    def _step(self, samples: Samples) -> Tensor:
        views = _views_of(samples)
        z = self.classifier.logits(views.mean(dim=1))
        y = exact_logits(self.classifier, views).softmax(dim=2)
        for start in range(0, len(views), size := max(1, _STRETCH // views.shape[1])):
            stretch = slice(start, start + size)
            z[stretch] += self._learn_and_score(views[stretch], y[stretch])
        return z

    def _predict(self, samples: Samples) -> Tensor:
        views = _views_of(samples)
        per_class = self.covariance == "per-class"
        pooled = self._mean_covariance(self._mean_weights(self.counts[None]))[0] if per_class else self.pooled
        return self.classifier.logits(views.mean(dim=1)) + self._gaussian(views, pooled, self.counts, self.seen)

    def _learn_and_score(self, views: Tensor, y: Tensor) -> Tensor:
        """λ·g of a stretch of samples with their views, B×V×d, each at its turn."""
        counts = torch.cat([self.counts[None], y.sum(dim=1)]).cumsum(dim=0)
        late = int(self.order == "update-first")
        learn = self._learn_per_class if self.covariance == "per-class" else self._learn_shared
        scores = views.new_empty(len(views), self.classifier.classes)
        for learnt, pooled in enumerate(learn(views, y, counts)):
            if 0 <= (own := learnt - late) < len(views):
                scores[own] = self._gaussian(views[own, None], pooled, counts[learnt], self.seen + learnt)[0]
        self.counts.copy_(counts[-1])
        self.seen += len(views)
        return scores

    def _learn_shared(self, views: Tensor, y: Tensor, counts: Tensor) -> Iterator[Tensor]:
        """Learn a stretch; gives the covariance before the first and after every sample, while the means are theirs.

        Args:
            views: B×V×d.
            y: B×V×C.
            counts: (B+1)×C, before the first and after every sample.
        """
        totals = counts.sum(dim=1)
        yield self.pooled
        for t, x in enumerate(views):
            residuals = self._move_means(x, y[t] / counts[t + 1].clamp_min(self._nothing)).flatten(0, 1)
            weighted = (y[t] / totals[t + 1]).to(x.dtype).flatten()[:, None] * residuals
            self.pooled.mul_(totals[t] / totals[t + 1]).addmm_(weighted.T, residuals)
            yield self.pooled

    def _learn_per_class(self, views: Tensor, y: Tensor, counts: Tensor) -> Iterator[Tensor]:
        """The same for mean_c Σ_c.

        With the means u_c from before the stretch and its rows x_s, every residual is Σ_j a_cs,j·x_j + a_cs,0·u_c.
        So Σ_s y_cs·r_cs·r_csᵀ needs no more than G_c = Σ_s y_cs·a_cs·a_csᵀ, and its mean C·d² operations a sample,
        however many residuals there are.
        """
        u, x, own = self.mu.clone(), views.flatten(0, 1), views.shape[1]
        a = self._residual_coefficients(y, counts).to(x.dtype)
        G = a.new_zeros(len(u), len(x) + 1, len(x) + 1)
        y_rows = y.flatten(0, 1).T.to(x.dtype)  # C×R
        weights = self._mean_weights(counts)
        earlier = self._mean_covariance(weights)
        yield earlier[0]
        for t, sample in enumerate(views):
            self._move_means(sample, y[t] / counts[t + 1].clamp_min(self._nothing))
            rows = slice(t * own, (t + 1) * own)
            G.baddbmm_((y_rows[:, rows, None] * a[:, rows]).mT, a[:, rows])
            Q = (weights[t + 1] @ G.flatten(1)).view(G.shape[1:])[1:, 1:]
            of_u = weights[t + 1][:, None] * G[:, 0]
            half = u.T @ (of_u[:, 1:] @ x + of_u[:, :1] * u / 2) + x.T @ (Q @ x) / 2
            yield earlier[t + 1] + half + half.T
        residuals = a[:, :, 1:] @ x + a[:, :, :1] * u[:, None]
        self.scatters.baddbmm_((y_rows[:, :, None] * residuals).mT, residuals)

    def _residual_coefficients(self, y: Tensor, counts: Tensor) -> Tensor:
        """a, C×R×(1+R): what of u_c and of each row of the stretch is in x_s − μ_c, with μ_c from before its sample."""
        samples, own, _ = y.shape
        earlier = y.new_ones(samples, samples).tril(-1).kron(y.new_ones(own, own))
        n = counts[:-1].clamp_min(self._nothing).repeat_interleave(own, dim=0).T
        learnt = y.flatten(0, 1).T[:, None] / n[:, :, None] * earlier
        of_u = learnt.sum(dim=2, keepdim=True) - 1
        learnt.diagonal(dim1=1, dim2=2).sub_(1.0)
        return torch.cat([of_u, -learnt], dim=2)

    def _move_means(self, x: Tensor, shares: Tensor) -> Tensor:
        """Learn the means from views V×d with shares V×C; gives x_v − μ_c from before, V×C×d."""
        residuals = x[:, None] - self.mu
        self.mu += torch.einsum("vc,vcd->cd", shares.to(x.dtype), residuals)
        return residuals

    def _mean_weights(self, counts: Tensor) -> Tensor:
        """What n_c·Σ_c weighs in mean_c Σ_c with counts T×C; nothing if the class is as at the start."""
        weights = torch.where(counts < self._nothing, 0.0, 1 / (self.classifier.classes * counts))
        return weights.to(self.mu.dtype)

    def _mean_covariance(self, weights: Tensor) -> Tensor:
        """mean_c Σ_c of the sums as they are with weights T×C: T×d×d."""
        mean = (weights @ self.scatters.flatten(1)).view(-1, *self.scatters.shape[1:])
        new = (weights == 0).to(mean.dtype).mean(dim=1, keepdim=True)
        mean.diagonal(dim1=1, dim2=2).add_(self.sigma * new)
        return mean

    @property
    def _nothing(self) -> float:
        """A class with a smaller count is as at the start: smaller sums would lose digits."""
        numbers = torch.finfo(self.mu.dtype)
        return numbers.tiny / numbers.eps

    def _gaussian(self, views: Tensor, pooled: Tensor, counts: Tensor, seen: Tensor) -> Tensor:
        """λ·g of samples with their views, B×V×d."""
        grown = counts.mean() / views.shape[1] if self.growth == "mean-count" else seen.double()
        x, weight = views.mean(dim=1), (self.rho * grown).clamp_max(self.eta)
        epsilon = self.epsilon * (seen > 0).double()
        covariance = pooled.double() * (1 - epsilon)
        covariance.diagonal().add_(epsilon)
        if self.scoring == "full":
            return weight * Gaussians.of(covariance, self.mu, centred=False).scores(x)
        lower, _ = torch.linalg.cholesky_ex(covariance)
        identity = torch.eye(len(lower), dtype=lower.dtype, device=lower.device)
        precision = torch.cholesky_solve(identity, lower)
        mu = self.mu.half().double()
        through = mu @ precision.clamp_(-_LARGEST_HALF, _LARGEST_HALF).half().double()
        g: Tensor = x.double() @ through.T - (through * mu).sum(dim=1) / 2
        return (weight * g).to(x.dtype)


def _views_of(samples: Samples) -> Tensor:
    return samples.features[:, None] if samples.most_confident is None else samples.most_confident
