"""DOTA: distributional test-time adaptation of vision-language models (NeurIPS 2025).

https://arxiv.org/abs/2409.19375 (program: https://github.com/skylineeeeen/DOTA)

Keeps a Gaussian per class, estimated from all samples by their zero-shot probabilities: count n_c, mean μ_c and
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

All that is learned is zero-shot, so a batch is exact: `pta.engines.gaussian.class_covariances`. Nearly every class has
a share in nearly every sample, so samples that come one at a time cost passes over all C·d² numbers each.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.parameters import Order, Prior, choice, learning_order, number, prior_in_front
from pta.core.samples import Samples
from pta.engines.gaussian.class_covariances import learn_per_class, learn_shared, mean_covariance
from pta.engines.gaussian.gaussians import Gaussians
from pta.engines.zero_shot import ZeroShot
from pta.errors import InvalidParameter
from pta.methods.adapter import Adapter
from pta.methods.declaration import Origin
from pta.methods.state import LARGEST_COUNT, between, covariances, doubles, full, rows_at_most

Covariance = Literal["per-class", "shared"]
Growth = Literal["mean-count", "samples"]
Scoring = Literal["full", "float16"]

_STRETCH = 32  # rows learned between two writes of n_c·Σ_c
_LARGEST_HALF = 65504.0


class DOTA(Adapter):
    """Distributional adaptation: a Gaussian per class, learned from zero-shot probabilities.

    The loop: `pta.reference.dota.dota_loop`.

    `covariance="shared"` keeps d² numbers instead of C·d², and is not in the paper. Its classes weigh as much as they
    were seen, not all the same, and what a class has put into it stays there when `reset` makes the class forget.

    The covariances may take `max_gib` of memory. The peak is higher: `reset` builds the start beside what it replaces,
    and a batch of several parts is learned beside a copy, twice as much each; a stretch of samples takes some 3·32·C·d
    numbers.

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> DOTA(classifier).step([[0.8, 0.6], [0.1, 0.9]]).argmax(dim=1)
    tensor([0, 1])
    """

    name = "dota"
    may_fail = False
    prototypes_in, counts_in = "mu", "counts"
    fixed_classes = ""
    max_batch = 256
    # with a smaller epsilon than 1e-5, float32 covariances may have no inverse
    epsilon: float = number(1e-4, 1e-5, 1.0, "ε, share of the identity in the covariance before inversion")
    eta: float = number(0.3, 0.0, 1e6, "η, the largest weight λ of the Gaussian classifier")
    rho: float = number(0.02, 0.0, 1e6, "ρ, how fast λ grows")
    sigma: float = number(0.002, 1e-6, 1e3, "σ; every covariance starts as σ·I")
    omega: float = number(0.001, -1e3, 1e3, "ω; every mean starts with ω in each dimension")
    initial_count: float = number(1.0, 0.0, 1e6, "weight of these initial values, in samples (released 1, paper 0)")
    growth: Growth = choice(
        "mean-count", Growth, "λ grows with the mean count per class (released) or the number of samples (paper)"
    )
    covariance: Covariance = choice(
        "per-class", Covariance, "one covariance per class, or only their mean weighted by the counts (shared)"
    )
    scoring: Scoring = choice("full", Scoring, "score with Λ and μ in full precision or rounded to float16 (released)")
    order: Order = learning_order("predict-first")
    max_gib: float = number(2.0, 0.0, 1e6, "refuse covariances that take more memory than this")
    prior: Prior = prior_in_front()

    def _declare_state(self) -> None:
        C, d = self.classifier.anchors.shape
        longest = max(1.01, 1.01 * abs(self.omega) * d**0.5)  # means lie between the first one and views
        self.largest_variance = max(1.01 * self.sigma, (1.01 + longest) ** 2)
        self.mu = self.add_state("mu", full(self.omega, C, d), rows_at_most(longest))
        n, sigma = self.initial_count, self.sigma
        self.counts = self.add_state("counts", doubles(n, C), between(n, LARGEST_COUNT))
        if self.covariance == "per-class":
            largest = covariances(LARGEST_COUNT * self.largest_variance)
            self.scatters = self.add_state("scatters", lambda c: _identities(n * sigma, c, C), largest)  # n_c·Σ_c
        else:
            largest, start = covariances(self.largest_variance), partial(_identities, sigma)
            self.pooled = self.add_state("pooled", start, largest, per_class=False)  # Σ_c n_c·Σ_c / Σ_c n_c

    @classmethod
    def complete(cls, given: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
        """All parameters; covariances that take more memory than they may are refused."""
        known, anchors = super().complete(given, origin), origin.classifier.anchors
        kept = len(anchors) if known["covariance"] == "per-class" else 1
        gib = kept * anchors.shape[1] ** 2 * anchors.element_size() / 2**30
        if gib > (most := known["max_gib"]):
            hint = 'use covariance="shared" or a larger max_gib' if kept > 1 else "use a larger max_gib"
            raise InvalidParameter(f"dota would keep {gib:.3g} GiB of covariances, max_gib is {most:g}; {hint}")
        return known

    def _contradiction(self, state: Mapping[str, Tensor]) -> str | None:
        if "scatters" not in state:
            return None
        variances = state["scatters"].diagonal(dim1=1, dim2=2).double()
        most = state["counts"] * self.largest_variance + torch.finfo(self.mu.dtype).tiny
        return "scatters are too large for the counts" if bool((variances > most[:, None]).any()) else None

    def _step(self, samples: Samples) -> Tensor:
        views = _views_of(samples)
        zero_shot = self._zero_shot(views)
        z, y = zero_shot.logits, zero_shot.view_logits.softmax(dim=2)
        for start in range(0, len(views), size := max(1, _STRETCH // views.shape[1])):
            stretch = slice(start, start + size)
            z[stretch] += self._learn_and_score(views[stretch], y[stretch], self.seen + start)
        return z

    def _predict(self, samples: Samples) -> Tensor:
        views, per_class = _views_of(samples), self.covariance == "per-class"
        pooled = mean_covariance(self.scatters, self.mu, self.counts, self.sigma) if per_class else self.pooled
        return self._zero_shot(views).logits + self._gaussian(views, pooled, self.counts, self.seen)

    def _zero_shot(self, views: Tensor) -> ZeroShot:
        """Zero-shot quantities of the views and of their means."""
        return self.zero_shot(Samples.unchecked(views.mean(dim=1), views=views))

    def _learn_and_score(self, views: Tensor, y: Tensor, seen: Tensor) -> Tensor:
        """λ·g of a stretch of samples with their views, B×V×d, each at its turn."""
        counts = torch.cat([self.counts[None], y.sum(dim=1)]).cumsum(dim=0)
        late = int(self.order == "update-first")
        scores = views.new_empty(len(views), self.classifier.classes)
        if self.covariance == "per-class":  # steps 3 and 4
            steps = learn_per_class(self.scatters, self.mu, views, y, counts, self.sigma)
        else:
            steps = learn_shared(self.pooled, self.mu, views, y, counts)
        for learned, pooled in enumerate(steps):
            if 0 <= (own := learned - late) < len(views):
                scores[own] = self._gaussian(views[own, None], pooled, counts[learned], seen + learned)[0]
        self.counts.copy_(counts[-1])
        return scores

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


def _identities(value: float, classifier: ZeroShotClassifier, *shape: int) -> Tensor:
    start = classifier.anchors.new_zeros(*shape, classifier.dim, classifier.dim)
    start.diagonal(dim1=-2, dim2=-1).fill_(value)
    return start


def _views_of(samples: Samples) -> Tensor:
    return samples.features[:, None] if samples.most_confident is None else samples.most_confident
