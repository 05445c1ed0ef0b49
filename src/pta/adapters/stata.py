"""StatA: Realistic Test-Time Adaptation of Vision-Language Models (CVPR 2025), https://arxiv.org/abs/2501.03729

The loop: `pta.reference.stata`.

Answers a batch of N samples at once and keeps nothing from it: a Gaussian per class is fitted to soft labels z, and
the fewer samples a class has, the more it is held to its anchor, a Gaussian that the text alone gives.

1. Soft labels at first: ŷ = softmax(scale·F·Tᵀ), z = ŷ.
2. Anchors: means T_c, and for all classes the variances Σ0 = (1/N) Σ_ic ŷ_ic (f_i − T_c)². Gaussians start as they are.
3. W_ij = ⟨f_i, f_j⟩ if j is one of the `neighbours` samples most similar to i, else 0.
4. Labels, `sweeps` times, all samples at once: ℓ_ic = −½ Σ_j (f_ij − μ_cj)²/Σ_cj − ½ Σ_j ln Σ_cj,
   z_i ∝ ŷ_i^text_weight · exp(ℓ_i/temperature + neighbour_weight·(Wz + Wᵀz)_i / (2·neighbours)).
5. Trust in the samples: β_c = n_c/(alpha + n_c), n_c the number of samples whose largest label is c.
6. Gaussians: μ_c = β_c·m_c + (1−β_c)·T_c scaled to unit length, m_c = Σ_i z_ic f_i scaled to unit length;
   Σ_c = β_c·Σ_i z_ic (f_i − μ_c)²/Σ_i z_ic + (1−β_c)·(Σ0 + (T_c − μ_c)²).
7. Steps 4 to 6 are repeated `iterations` times; step 4 once more; answer log z.

The released program computes Σ0 in chunks of 2500 samples and divides by N after each, so that of a larger batch all
but the last chunk is divided again and again; `chunked_covariance=False` divides once. Smaller batches do not differ.
It finds a sample's neighbours by dropping the most similar one, which among exact copies need not be the sample
itself; here it always is. It fails on fewer than 4 samples; here a small batch has fewer neighbours.
Its first published state left the determinant out of step 4; later ones have it.
"""

from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from pta.adapters.adapter import Adapter, Scope, register
from pta.classifier import ZeroShotClassifier
from pta.engines.transduction import (
    SMALLEST_VARIANCE,
    Moments,
    Ties,
    as_logits,
    direction,
    log_likelihood,
    settle,
)
from pta.engines.zero_shot import exact_logits
from pta.parameters import require_choice, require_count, require_number, require_switch
from pta.samples import Samples

Counts = Literal["hard", "soft"]

_CHUNK = 2500  # of the released program's initial covariance


@register
class StatA(Adapter):
    """Transductive Gaussian mixture over a batch, held to a statistical anchor that the text gives.

    The answers are log z. A class that no sample is counted for is its anchor.

    Args:
        classifier: gives the first soft labels, and its anchors the means that classes are held to.
        alpha: how many samples the anchor is worth.
        counts: n_c is the number of samples whose largest label is c ("hard") or the sum of labels Σ_i z_ic ("soft").
        neighbours: how many samples a sample is tied to.
        iterations: how often the Gaussians are fitted.
        sweeps: how often labels are renewed for each fit.
        text_weight: λ_ŷ, how strongly labels are held to ŷ.
        neighbour_weight: how strongly labels are held to those of neighbours.
        temperature: what log-likelihoods are divided by.
        chunked_covariance: divide Σ0 by N after every 2500 samples (released) instead of once.

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> StatA(classifier).step([[0.8, 0.6], [0.9, 0.1], [0.1, 0.9]]).argmax(dim=1)
    tensor([0, 0, 1])
    """

    name: ClassVar[str] = "stata"
    scope: ClassVar[Scope] = "batch"

    def __init__(
        self,
        classifier: ZeroShotClassifier,
        *,
        alpha: float = 1.0,
        counts: Counts = "hard",
        neighbours: int = 3,
        iterations: int = 10,
        sweeps: int = 5,
        text_weight: float = 1.0,
        neighbour_weight: float = 1.0,
        temperature: float = 50.0,
        chunked_covariance: bool = True,
    ) -> None:
        require_choice("counts", counts, get_args(Counts))
        require_switch("chunked_covariance", chunked_covariance)
        self.alpha = require_number("alpha", alpha, 0.0, 1e9)
        self.counts = counts
        self.neighbours = require_count("neighbours", neighbours, 1, 1000)
        self.iterations = require_count("iterations", iterations, 0, 10_000)
        self.sweeps = require_count("sweeps", sweeps, 1, 10_000)
        self.text_weight = require_number("text_weight", text_weight, 0.0, 1000.0)
        self.neighbour_weight = require_number("neighbour_weight", neighbour_weight, 0.0, 1000.0)
        self.temperature = require_number("temperature", temperature, 1e-3, 1e6)
        self.chunked_covariance = chunked_covariance
        super().__init__(
            classifier,
            alpha=self.alpha,
            counts=counts,
            neighbours=self.neighbours,
            iterations=self.iterations,
            sweeps=self.sweeps,
            text_weight=self.text_weight,
            neighbour_weight=self.neighbour_weight,
            temperature=self.temperature,
            chunked_covariance=chunked_covariance,
        )

    def _step(self, samples: Samples) -> Tensor:
        f, T = samples.features, self.classifier.anchors
        log_prior = log_z = exact_logits(self.classifier, f).log_softmax(dim=1).to(f.dtype)
        sigma0 = self._anchor_variance(f, log_prior)
        mu, sigma = T, sigma0.expand_as(T)
        ties = Ties.of(f, self.neighbours, self.neighbour_weight / (2 * self.neighbours))
        for iteration in range(self.iterations + 1):
            likelihood = log_likelihood(f, mu, sigma) - 0.5 * sigma.log().sum(dim=1)
            fixed = self.text_weight * log_prior + likelihood / self.temperature
            log_z = settle(log_z, fixed, ties, self.sweeps)
            if iteration < self.iterations:
                mu, sigma = self._gaussians(f, log_z, sigma0)
        return as_logits(log_z)

    _predict = _step

    def _anchor_variance(self, f: Tensor, log_prior: Tensor) -> Tensor:
        T, size = self.classifier.anchors, _CHUNK if self.chunked_covariance else len(f)
        variance = f.new_zeros(f.shape[1])
        for start in range(0, len(f), size):
            prior = log_prior[start : start + size]
            squares = prior.exp().sum(dim=0) @ Moments.of(f[start : start + size], prior).around(T)
            variance = (variance + squares) / len(f)
        return variance.clamp(min=SMALLEST_VARIANCE)

    def _gaussians(self, f: Tensor, log_z: Tensor, sigma0: Tensor) -> tuple[Tensor, Tensor]:
        T, moments = self.classifier.anchors, Moments.of(f, log_z)
        beta = self._trust(log_z)[:, None]
        mu = direction(beta * direction(moments.mean, otherwise=T) + (1 - beta) * T, otherwise=T)
        sigma = beta * moments.around(mu) + (1 - beta) * (sigma0 + (T - mu).square())
        return mu, sigma.clamp(min=SMALLEST_VARIANCE)

    def _trust(self, log_z: Tensor) -> Tensor:
        if self.counts == "hard":
            n = torch.bincount(log_z.argmax(dim=1), minlength=log_z.shape[1]).to(log_z.dtype)
        else:
            n = log_z.exp().sum(dim=0)
        return torch.where(n > 0, n / (self.alpha + n), 0.0)
