"""FreeTTA, an interpretation of: Free on the Fly, flexible test-time adaptation with online EM (CVPR 2025).

https://arxiv.org/abs/2507.06973 (no program was released)

Keeps a Gaussian mixture that online expectation maximisation fits to the stream: counts N_y (1/C at first), means μ_y
(the text anchors at first) and one covariance Σ (the identity at first).

For each sample with feature x, zero-shot logits z and entropy H:
1. Gaussian scores: g_y = μ_yᵀ·Σ⁻¹·x − ½·μ_yᵀ·Σ⁻¹·μ_y + ln π_y with π_y = N_y/n, n = Σ N_y; posterior γ = softmax(g).
2. Answer: z + α·g.
3. Weight of the sample: w = e^(−β·H); a_y = w·γ_y.
4. μ_y ← (N_y·μ_y + a_y·x)/(N_y + a_y), N_y ← N_y + a_y.
5. Σ ← (n·Σ + Σ_y a_y·(x−μ_y)·(x−μ_y)ᵀ)/(n + w), with the means after step 4 and n from before it.

The paper leaves six things open. This is what is done here, as one coherent reading; the published numbers were not
reached by anybody's reading that is known, and could not be checked.
(1) No temperature is printed. Cosines alone have entropy ln C and weight e^(−4.5·ln C) ≈ 0, so H is that of the scaled
    logits; the answer's text part is scaled too (`scaled_text=False`: the plain cosine). Σ starts as printed; the
    first posteriors are then nearly even and draw all means together, so that answers stay close to zero-shot.
    (From I/scale, with the zero-shot posterior at first, the classes that come first take all samples.)
(2) The printed recursion of Σ divides by the new n on both sides, so Σ grows without bound; here it averages, and the
    identity it starts from weighs as much as the counts at the start (`covariance="printed"`: Σ + Σ_y a_y·(…)/(n−1)).
(3) n starts at 1, as in ports, which is the sum of the N_y, and it stays that sum.
(4) Σ is inverted as it is: the identity in it keeps it well conditioned. A port cites a supplement for
    d·[(n−1)·Σ + tr(Σ)·I]⁻¹ (`inverse="shrunk"`), which falls towards zero as n grows.
(5) Posterior and answer come from before the sample is learned (`order="update-first"`: the answer from after).
(6) Means are not scaled to unit length (`renormalise=True`: after every step 4).

What is learned depends through γ on what was learned before, so samples are taken one after another, each with a
Cholesky factor of Σ and its triangular solve for all means: O(d³ + C·d²).
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.core.parameters import Order, Prior, choice, learning_order, number, prior_in_front, switch
from pta.core.samples import Samples
from pta.engines.gaussian.gaussians import Gaussians, add_scatter
from pta.engines.zero_shot import ZeroShot
from pta.methods.adapter import Adapter
from pta.methods.state import LARGEST_COUNT, UNIT_BALL, between, covariances, doubles, identity, text_anchors

# The sum of w/n that the printed recursion adds is at most 1 + ln n, with n from the smallest float64 on.
_LARGEST_VARIANCE = 4000.0

CovarianceRule = Literal["average", "printed"]
Inverse = Literal["plain", "shrunk"]


class FreeTTA(Adapter):
    """Online EM of a Gaussian mixture; an interpretation, because the paper leaves details open.

    The loop: `pta.reference.freetta.freetta_loop`.

    Nothing is decided by a threshold: a batch differs from a loop by the rounding of logits alone, which can change an
    answer between two classes that are as close as that.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> FreeTTA(classifier).step([[0.8, 0.6], [0.1, 0.9]]).argmax(dim=1)
    tensor([0, 1])
    """

    name = "freetta"
    may_fail = False
    prototypes_in, counts_in = "mu", "heard"
    fixed_classes = ""
    max_batch = 1024
    alpha: float = number(0.2, 0.0, 1e6, "α, the weight of the Gaussian scores in the answer")
    beta: float = number(4.5, 0.0, 1e6, "β, how strongly uncertainty lowers the weight of a sample")
    scaled_text: bool = switch(True, "answer with the scaled logits, not the unscaled cosines (ambiguity 1)")
    covariance: CovarianceRule = choice("average", CovarianceRule, "average Σ, or let it grow as printed (ambiguity 2)")
    inverse: Inverse = choice("plain", Inverse, "Σ⁻¹ itself, or the shrunk form of a port (ambiguity 4)")
    order: Order = learning_order("predict-first")
    renormalise: bool = switch(False, "scale the means to unit length after every update (ambiguity 6)")
    prior: Prior = prior_in_front()

    def _declare_state(self) -> None:
        self.mu = self.add_state("mu", text_anchors, UNIT_BALL)
        # N_y − 1/C, as n − 1 would round away at first
        self.heard = self.add_state("heard", doubles(0.0, self.classifier.classes), between(0.0, LARGEST_COUNT))
        # float64, as the identity's share falls to 1/n and float32 would soon round it away
        start = identity(self.classifier.dim)
        self.sigma = self.add_state("sigma", start, covariances(_LARGEST_VARIANCE), per_class=False)

    @property
    def counts(self) -> Tensor:
        """N_y, which add up to n."""
        return self.heard + 1 / self.classifier.classes

    @property
    def logit_factor(self) -> float:
        """Of a cosine with a text anchor, the answer has scale (or 1) from the text and at first α from the scores."""
        scale = self.classifier.scale
        return scale / ((scale if self.scaled_text else 1.0) + self.alpha)

    def _step(self, samples: Samples) -> Tensor:
        zero_shot = self.zero_shot(samples)
        weights = torch.exp(-self.beta * zero_shot.entropy)
        scores = samples.features.new_empty(len(samples), self.classifier.classes)
        gaussians = self._gaussians()
        for t, x in enumerate(samples.features):
            g = self._scores(gaussians, x[None])[0]
            self._learn(x, weights[t] * g.softmax(dim=0), weights[t])
            gaussians = self._gaussians()
            scores[t] = g if self.order == "predict-first" else self._scores(gaussians, x[None])[0]
        return self._text(zero_shot) + self.alpha * scores

    def _predict(self, samples: Samples) -> Tensor:
        g = self._scores(self._gaussians(), samples.features)
        return self._text(self.zero_shot(samples)) + self.alpha * g.to(samples.features.dtype)

    def _text(self, zero_shot: ZeroShot) -> Tensor:
        if self.scaled_text:
            return zero_shot.logits
        cosines, prior = zero_shot.samples.features @ self.classifier.anchors.T, zero_shot.log_prior
        return cosines if prior is None else cosines + (prior / self.classifier.scale).to(cosines.dtype)

    def _gaussians(self) -> Gaussians:
        """The mixture without its priors, with Σ or with what is inverted in its place."""
        sigma = self.sigma
        if self.inverse == "shrunk":
            sigma = sigma * (self.heard.sum() / len(sigma))
            sigma.diagonal().add_(self.sigma.trace() / len(sigma))
        return Gaussians.of(sigma, self.mu, centred=False)

    def _scores(self, gaussians: Gaussians, x: Tensor) -> Tensor:
        """Step 1: g of features B×d, in float64."""
        counts = self.counts
        return gaussians.scores(x) + (counts / counts.sum()).log()

    def _learn(self, x: Tensor, a: Tensor, weight: Tensor) -> None:
        """Steps 4 and 5: x counts a_y (float64, C) for class y, `weight` in all."""
        before = self.heard.sum()
        self.heard.add_(a)
        self.mu.add_((a / self.counts).to(x.dtype)[:, None] * (x - self.mu))
        if self.renormalise:
            self.mu.copy_(normalize(self.mu, dim=1))
        if self.covariance == "average":
            total = 1 + before + weight
            self.sigma.mul_((1 + before) / total)
        else:
            total = (before + weight).clamp_min(torch.finfo(torch.float64).tiny)
        add_scatter(self.sigma, x, self.mu, a / total)
