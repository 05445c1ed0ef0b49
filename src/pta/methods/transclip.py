"""TransCLIP: Boosting Vision-Language Models with Transduction (NeurIPS 2024), https://arxiv.org/abs/2406.01837

The zero-shot variant. It answers a whole set of N samples at once and keeps nothing: a Gaussian per class, with one
diagonal covariance for all of them, is fitted to soft labels z, which are held to the text and to the labels of
neighbours.

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

import torch
from torch import Tensor

from pta.core.parameters import count, number
from pta.core.samples import Samples
from pta.engines.gaussian.transduction import (
    SMALLEST_PROBABILITY,
    Moments,
    Ties,
    as_logits,
    direction,
    log_likelihood,
    settle,
)
from pta.methods.adapter import Adapter


class TransCLIP(Adapter):
    """Transductive Gaussian mixture over the whole set of samples, regularised by text and nearest neighbours.

    The loop: `pta.reference.transclip.transclip_loop`.

    The answers are log z. A class whose labels add up to nothing, or to no direction, keeps its mean.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> TransCLIP(classifier).step([[0.8, 0.6], [0.9, 0.1], [0.1, 0.9]]).argmax(dim=1)
    tensor([0, 0, 1])
    """

    name = "transclip"
    scope = "stream"
    may_fail = False
    neighbours: int = count(3, 1, 1000, "number of nearest neighbours in the affinity graph")
    iterations: int = count(10, 0, 10_000, "number of fits of the Gaussians")
    sweeps: int = count(5, 1, 10_000, "number of label updates per fit")
    text_weight: float = number(1.0, 0.0, 1000.0, "λ, weight of the zero-shot labels ŷ")
    temperature: float = number(50.0, 1e-3, 1e6, "divisor of the log-likelihoods")
    seeds: int = count(8, 1, 1000, "number of samples in the first mean of a class")

    def _step(self, samples: Samples) -> Tensor:
        f = samples.features
        exact = self.zero_shot(samples).exact_logits.log_softmax(dim=1)
        log_prior = log_z = exact.to(f.dtype)
        mu = self._first_means(f, exact)
        sigma = f.new_full((f.shape[1],), 1 / f.shape[1])
        ties = Ties.of(f, self.neighbours, 1 / (2 * self.neighbours))
        for iteration in range(self.iterations + 1):
            fixed = self.text_weight * log_prior + log_likelihood(f, mu, sigma[None]) / self.temperature
            log_z = settle(log_z, fixed, ties, self.sweeps)
            if iteration < self.iterations:
                moments = Moments.of(f, log_z)
                believed = log_z.logsumexp(dim=0) > math.log(SMALLEST_PROBABILITY)  # others keep their mean
                mu = torch.where(believed[:, None], direction(moments.mean, otherwise=mu), mu)
                sigma = log_z.exp().mean(dim=0) @ moments.around(mu)
        return as_logits(log_z)

    _predict = _step

    def _first_means(self, f: Tensor, log_z: Tensor) -> Tensor:
        """Step 2."""
        top = log_z.topk(min(self.seeds, len(f)), dim=0)
        weights = top.values.softmax(dim=0).to(f.dtype)
        seeds = f[top.indices]  # seeds×C×d
        return direction(torch.einsum("sc,scd->cd", weights, seeds), otherwise=self.classifier.anchors)
