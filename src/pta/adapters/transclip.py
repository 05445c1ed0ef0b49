"""TransCLIP: Boosting Vision-Language Models with Transduction (NeurIPS 2024), https://arxiv.org/abs/2406.01837

The loop: `pta.reference.transclip`.

The zero-shot variant. It answers a whole set of N samples at once and keeps nothing: a Gaussian per class, with one
diagonal covariance for all of them, is fitted to soft labels z, which the text and the neighbours of a sample hold on
to.

1. Soft labels at first: ŷ = softmax(scale·F·Tᵀ), z = ŷ.
2. Means at first: μ_c = Σ z_ic f_i over the `seeds` samples of largest z_ic, scaled to unit length; variances σ = 1/d.
3. W_ij = ⟨f_i, f_j⟩ if j is one of the `neighbours` samples most similar to i, else 0.
4. Labels, `sweeps` times, all samples at once: ℓ_ic = −½ Σ_j (f_ij − μ_cj)²/σ_j,
   z_i ∝ ŷ_i^text_weight · exp(ℓ_i/temperature + (Wz + Wᵀz)_i / (2·neighbours)).
5. Gaussians: μ_c = Σ_i z_ic f_i scaled to unit length, σ_j = (1/N) Σ_ic z_ic (f_ij − μ_cj)².
6. Steps 4 and 5 are repeated `iterations` times; step 4 once more; answer log z.

The released program finds a sample's neighbours by dropping the most similar one, which among exact copies need not
be the sample itself; here it always is. It fails on fewer than 8 samples; here a small set has fewer seeds and
neighbours. It takes the number of classes from the labels that occur in the set; here all classes of the classifier
exist.
Of several templates it uses the first; here the classifier's anchors are whatever was made of them.
Given another method's predictions for ŷ, it overwrites them with z; here ŷ is always the classifier's, and stays.
"""

import math
from typing import ClassVar

import torch
from torch import Tensor

from pta.adapters.adapter import Adapter, Scope, register
from pta.classifier import ZeroShotClassifier
from pta.engines.transduction import (
    SMALLEST_PROBABILITY,
    Moments,
    Ties,
    as_logits,
    direction,
    log_likelihood,
    settle,
)
from pta.engines.zero_shot import exact_logits
from pta.parameters import require_count, require_number
from pta.samples import Samples


@register
class TransCLIP(Adapter):
    """Transductive Gaussian mixture over the whole set of samples, held to the text and to nearest neighbours.

    The answers are log z. A class whose labels add up to nothing, or to no direction, keeps its mean.

    Args:
        classifier: gives the first soft labels.
        neighbours: how many samples a sample is tied to.
        iterations: how often the Gaussians are fitted.
        sweeps: how often labels are renewed for each fit.
        text_weight: λ, how strongly labels are held to ŷ.
        temperature: what log-likelihoods are divided by.
        seeds: how many samples a class's first mean is made of.

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> TransCLIP(classifier).step([[0.8, 0.6], [0.9, 0.1], [0.1, 0.9]]).argmax(dim=1)
    tensor([0, 0, 1])
    """

    name: ClassVar[str] = "transclip"
    scope: ClassVar[Scope] = "stream"

    def __init__(
        self,
        classifier: ZeroShotClassifier,
        *,
        neighbours: int = 3,
        iterations: int = 10,
        sweeps: int = 5,
        text_weight: float = 1.0,
        temperature: float = 50.0,
        seeds: int = 8,
    ) -> None:
        self.neighbours = require_count("neighbours", neighbours, 1, 1000)
        self.iterations = require_count("iterations", iterations, 0, 10_000)
        self.sweeps = require_count("sweeps", sweeps, 1, 10_000)
        self.text_weight = require_number("text_weight", text_weight, 0.0, 1000.0)
        self.temperature = require_number("temperature", temperature, 1e-3, 1e6)
        self.seeds = require_count("seeds", seeds, 1, 1000)
        super().__init__(
            classifier,
            neighbours=self.neighbours,
            iterations=self.iterations,
            sweeps=self.sweeps,
            text_weight=self.text_weight,
            temperature=self.temperature,
            seeds=self.seeds,
        )

    def _step(self, samples: Samples) -> Tensor:
        f = samples.features
        exact = exact_logits(self.classifier, f).log_softmax(dim=1)
        log_prior = log_z = exact.to(f.dtype)
        mu = self._first_means(f, exact)
        sigma = f.new_full((f.shape[1],), 1 / f.shape[1])
        ties = Ties.of(f, self.neighbours, 1 / (2 * self.neighbours))
        for iteration in range(self.iterations + 1):
            fixed = self.text_weight * log_prior + log_likelihood(f, mu, sigma[None]) / self.temperature
            log_z = settle(log_z, fixed, ties, self.sweeps)
            if iteration < self.iterations:
                moments = Moments.of(f, log_z)
                mu = self._means(moments, log_z, mu)
                sigma = log_z.exp().mean(dim=0) @ moments.around(mu)
        return as_logits(log_z)

    _predict = _step

    def _first_means(self, f: Tensor, log_z: Tensor) -> Tensor:
        top = log_z.topk(min(self.seeds, len(f)), dim=0)
        weights = top.values.softmax(dim=0).to(f.dtype)
        seeds = f[top.indices]  # seeds×C×d
        return direction(torch.einsum("sc,scd->cd", weights, seeds), otherwise=self.classifier.anchors)

    def _means(self, moments: Moments, log_z: Tensor, before: Tensor) -> Tensor:
        believed = log_z.logsumexp(dim=0) > math.log(SMALLEST_PROBABILITY)
        return torch.where(believed[:, None], direction(moments.mean, otherwise=before), before)
