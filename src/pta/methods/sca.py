"""SCA: statistics caching test-time adaptation (NeurIPS 2025).

https://openreview.net/forum?id=iqsjzVqmWF (program: https://github.com/Yuqin-G/SCA, which could not be had)

Keeps the least-squares classifier of all features onto their soft pseudo-labels, as two statistics of fixed size: the
inverse A = (G + γI)⁻¹ of the Gram matrix G = Σ f·fᵀ, and the classifier W = A·Σ f·ŷᵀ itself.

For each sample with feature f:
1. Zero-shot logits and probabilities: z, p = softmax(z).
2. Pseudo-label: Ω, the fewest most probable classes whose probabilities add up to τ·(1 − max p) (at least one);
   ŷ = p scaled to sum 1 within Ω, 0 outside. A confident sample has one label, an uncertain one several.
3. G ← G + f·fᵀ and Σ f·ŷᵀ grows, that is k = A·f/(1 + fᵀ·A·f), W ← W + k·(ŷ − Wᵀ·f)ᵀ, A ← A − k·fᵀ·A.
4. Cache logits: u_c = scale·cos(f, W_c); 0 for a class that was never a label.
5. Answer: a₁·u + a₂·z with (a₁, a₂) = softmax(−β_f·[H(softmax u), H(p)]): the more certain branch counts more.

Everything that the state depends on is zero-shot, so a batch is exact: `pta.engines.gaussian.recursive_least_squares`.

Uncertain, because neither the program nor the full paper could be read: only a summary of the paper and a port to
another task. Each item is a parameter; published numbers could not be checked.
* γ: 10⁴ in the port; W is then nearly the class sums of the features.
* u: cosines without the scale in the port (`cache_scale=1`), but only with it are both entropies comparable.
  `cache="product"` scores by f·W itself.
* β_f: 0.5 in the summary, 5 in the port. The sign of the entropies: minus in the summary, plus in the port (`trust`).
* τ: 0.5 in the port. The threshold τ·(1 − max p) is the summary's; `threshold="fixed"` is τ alone.
* The paper is said to use one symbol for the threshold and for a temperature; `temperature` is that of ŷ within Ω.
* ŷ is said to be "re-softmaxed" within Ω, read here as p scaled to sum 1; it may mean a softmax of the p themselves.
* Views: unknown. Given some, p is the mean of their distributions and f the mean of their features.
"""

from typing import Literal

import torch
from torch import Tensor

from pta.core.parameters import Order, Prior, choice, learning_order, number, parameter, prior_in_front, require_number
from pta.core.samples import Samples
from pta.engines.gaussian.recursive_least_squares import Scores, learn_least_squares
from pta.engines.zero_shot import ZeroShot, entropy_of
from pta.methods.adapter import Adapter
from pta.methods.state import LARGEST_COUNT, covariances, full, identity, rows_at_most

Cache = Literal["cosine", "product"]
Threshold = Literal["uncertainty", "fixed"]
Trust = Literal["lower-entropy", "higher-entropy"]

_REACHED = 1e-12  # a sum of probabilities this close to the threshold reaches it; rounding must not decide


class SCA(Adapter):
    """Statistics caching: least squares onto soft pseudo-labels (details uncertain).

    The loop: `pta.reference.sca.sca_loop`.

    With `cache_scale=1`, as a port has it, the cache hardly changes any answer.
    A batch can differ from a loop after a sample whose two most probable classes, or the probability of its first
    labels and the threshold less 10⁻¹², are equal up to the rounding of float64.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> SCA(classifier).step([[0.8, 0.6], [0.1, 0.9]]).argmax(dim=1)
    tensor([0, 1])
    """

    name = "sca"
    may_fail = False
    loses_frozen = True
    fixed_classes = ""
    max_batch = 256  # the products within a batch grow with its square
    gamma: float = number(1e4, 1e-6, 1e12, "γ, the ridge (uncertain: from a port)")
    tau: float = number(0.5, 0.0, 1.0, "τ, probability that a sample's labels must cover (uncertain: from a port)")
    threshold: Threshold = choice(
        "uncertainty",
        Threshold,
        "probability that the labels must cover: τ·(1 − max p) (uncertainty; from a summary) or τ (fixed)",
    )
    temperature: float = number(1.0, 0.01, 100.0, "ŷ ∝ p^(1/temperature) within Ω (uncertain: there may be none)")
    beta_f: float = number(
        0.5, 0.0, 1e6, "β_f, influence of the entropies on the fusion (uncertain: 0.5 in a summary, 5 in a port)"
    )
    trust: Trust = choice(
        "lower-entropy", Trust, "the branch that weighs more: lower-entropy (a summary) or higher-entropy (a port)"
    )
    cache: Cache = choice("cosine", Cache, "score by the cosine with the columns of W (a port) or by the product f·W")
    cache_scale: float | None = parameter(
        None,
        lambda name, value: None if value is None else require_number(name, value, 0.0, 1e9),
        "0 to 1e+09, or None",
        "factor of cosines or products; None: the classifier's scale and bias",
    )
    order: Order = learning_order("update-first")
    prior: Prior = prior_in_front()

    def _declare_state(self) -> None:
        start = identity(self.classifier.dim, 1 / self.gamma)
        self.inverse = self.add_state("inverse", start, covariances(1 / self.gamma), per_class=False)
        # With n targets from 0 to 1, no W_c is longer than √n/(2√γ).
        longest = rows_at_most((LARGEST_COUNT / self.gamma) ** 0.5)
        self.weights = self.add_state("weights", full(0.0, *self.classifier.anchors.shape), longest)

    def _step(self, samples: Samples) -> Tensor:
        zero_shot = self.zero_shot(samples)
        labels = self._pseudo_labels(zero_shot.probabilities)
        scores = learn_least_squares(self.inverse, self.weights, samples.features, labels, self.order)
        return self._fuse(zero_shot, scores)

    def _predict(self, samples: Samples) -> Tensor:
        return self._fuse(self.zero_shot(samples), Scores.of(self.weights, samples.features))

    def _pseudo_labels(self, p: Tensor) -> Tensor:
        """Step 2."""
        ranked, classes = p.sort(dim=1, descending=True, stable=True)
        enough = self.tau * (1 - ranked[:, :1]) if self.threshold == "uncertainty" else self.tau
        reached = ranked.cumsum(dim=1) - ranked  # by the classes before this one
        chosen = reached < enough - _REACHED
        chosen[:, 0] = True
        logarithms = torch.where(chosen, ranked, 0.0).log() / self.temperature
        return torch.zeros_like(p).scatter_(1, classes, logarithms.softmax(dim=1))

    def _fuse(self, zero_shot: ZeroShot, scores: Scores) -> Tensor:
        """Steps 4 and 5."""
        values = scores.cosines if self.cache == "cosine" else scores.products
        u = self.classifier.scores(values) if self.cache_scale is None else self.cache_scale * values
        entropies = torch.stack([entropy_of(u.softmax(dim=1)), zero_shot.entropy])
        sign = -1.0 if self.trust == "lower-entropy" else 1.0
        a = (sign * self.beta_f * entropies).softmax(dim=0)[:, :, None]
        dtype = zero_shot.samples.features.dtype
        z = zero_shot.exact_logits.to(dtype)
        return (a[0] * u + a[1] * z).to(dtype)
