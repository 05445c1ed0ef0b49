"""StatA: Realistic Test-Time Adaptation of Vision-Language Models (CVPR 2025), https://arxiv.org/abs/2501.03729

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

from typing import Literal

import torch
from torch import Tensor

from pta.core.parameters import choice, count, number, switch
from pta.core.samples import Samples
from pta.engines.gaussian.transduction import (
    SMALLEST_VARIANCE,
    Moments,
    Ties,
    as_logits,
    direction,
    log_likelihood,
    settle,
)
from pta.methods.adapter import Adapter

Counts = Literal["hard", "soft"]

_CHUNK = 2500  # of the released program's initial covariance


class StatA(Adapter):
    """Transductive Gaussian mixture over a batch, regularised by a statistical anchor from the text.

    The loop: `pta.reference.stata.stata_loop`.

    The answers are log z. A class that no sample is counted for is its anchor.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> StatA(classifier).step([[0.8, 0.6], [0.9, 0.1], [0.1, 0.9]]).argmax(dim=1)
    tensor([0, 0, 1])
    """

    name = "stata"
    scope = "batch"
    may_fail = False
    alpha: float = number(1.0, 0.0, 1e9, "weight of the anchor, in samples")
    counts: Counts = choice("hard", Counts, "n_c: samples whose largest label is c (hard), or the sum Σ_i z_ic (soft)")
    neighbours: int = count(3, 1, 1000, "number of nearest neighbours in the affinity graph")
    iterations: int = count(10, 0, 10_000, "number of fits of the Gaussians")
    sweeps: int = count(5, 1, 10_000, "number of label updates per fit")
    text_weight: float = number(1.0, 0.0, 1000.0, "λ_ŷ, weight of the zero-shot labels ŷ")
    neighbour_weight: float = number(1.0, 0.0, 1000.0, "weight of the labels of neighbours")
    temperature: float = number(50.0, 1e-3, 1e6, "divisor of the log-likelihoods")
    chunked_covariance: bool = switch(True, "divide Σ0 by N after every 2500 samples (released) instead of once")

    def _step(self, samples: Samples) -> Tensor:
        f, T = samples.features, self.classifier.anchors
        log_prior = log_z = self.zero_shot(samples).exact_logits.log_softmax(dim=1).to(f.dtype)
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
        """Σ0 of step 2."""
        T, size = self.classifier.anchors, _CHUNK if self.chunked_covariance else len(f)
        variance = f.new_zeros(f.shape[1])
        for start in range(0, len(f), size):
            prior = log_prior[start : start + size]
            squares = prior.exp().sum(dim=0) @ Moments.of(f[start : start + size], prior).around(T)
            variance = (variance + squares) / len(f)
        return variance.clamp(min=SMALLEST_VARIANCE)

    def _gaussians(self, f: Tensor, log_z: Tensor, sigma0: Tensor) -> tuple[Tensor, Tensor]:
        """Step 6."""
        T, moments = self.classifier.anchors, Moments.of(f, log_z)
        beta = self._trust(log_z)[:, None]
        mu = direction(beta * direction(moments.mean, otherwise=T) + (1 - beta) * T, otherwise=T)
        sigma = beta * moments.around(mu) + (1 - beta) * (sigma0 + (T - mu).square())
        return mu, sigma.clamp(min=SMALLEST_VARIANCE)

    def _trust(self, log_z: Tensor) -> Tensor:
        """β of step 5."""
        if self.counts == "hard":
            n = torch.bincount(log_z.argmax(dim=1), minlength=log_z.shape[1]).to(log_z.dtype)
        else:
            n = log_z.exp().sum(dim=0)
        return torch.where(n > 0, n / (self.alpha + n), 0.0)
