"""SCA: statistics caching test-time adaptation (NeurIPS 2025).

https://openreview.net/forum?id=iqsjzVqmWF (program: https://github.com/Yuqin-G/SCA, which could not be had)
The loop: `pta.reference.sca`.

Keeps the least-squares classifier of all features onto their soft pseudo-labels, as two statistics of fixed size: the
inverse A = (G + γI)⁻¹ of the Gram matrix G = Σ f·fᵀ, and the classifier W = A·Σ f·ŷᵀ itself.

For each sample with feature f:
1. Zero-shot logits and probabilities: z, p = softmax(z).
2. Pseudo-label: Ω, the fewest most probable classes whose probabilities add up to τ·(1 − max p) (at least one);
   ŷ = p scaled to sum 1 within Ω, 0 outside. A sure sample has one label, an unsure one several.
3. G ← G + f·fᵀ and Σ f·ŷᵀ grows, that is k = A·f/(1 + fᵀ·A·f), W ← W + k·(ŷ − Wᵀ·f)ᵀ, A ← A − k·fᵀ·A.
4. Cache logits: u_c = scale·cos(f, W_c); 0 for a class that was never a label.
5. Answer: a₁·u + a₂·z with (a₁, a₂) = softmax(−β_f·[H(softmax u), H(p)]): the surer branch counts more.

Everything that the state depends on is zero-shot, so a batch is exact: `pta.engines.recursive_least_squares`.

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

from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from pta.adapters.adapter import Adapter, register
from pta.classifier import ZeroShotClassifier
from pta.engines.recursive_least_squares import Scores, learn_least_squares
from pta.engines.rule import Order
from pta.engines.zero_shot import ZeroShot, entropy_of
from pta.parameters import require_choice, require_number
from pta.samples import Samples

Cache = Literal["cosine", "product"]
Threshold = Literal["unsureness", "fixed"]
Trust = Literal["surer", "less-sure"]

_REACHED = 1e-12  # a sum of probabilities this close to the threshold reaches it; rounding must not decide


@register
class SCA(Adapter):
    """Statistics caching: least squares onto soft pseudo-labels (details uncertain).

    Args:
        classifier: the zero-shot classifier that gives the pseudo-labels.
        gamma: γ, the ridge (uncertain: from a port).
        tau: τ, how much probability the labels of a sample must hold (uncertain: from a port).
        threshold: what must be reached: τ·(1 − max p) ("unsureness"; uncertain: from a summary) or τ itself ("fixed").
        temperature: ŷ ∝ p^(1/temperature) within Ω (uncertain: nothing is said but that there may be one).
        beta_f: β_f, how strongly entropies decide the fusion (uncertain: 0.5 in a summary, 5 in a port).
        trust: the branch that counts more: the "surer" (minus sign, a summary) or the "less-sure" (plus sign, a port).
        cache: score by the "cosine" with the columns of W (uncertain: from a port) or by the "product" f·W.
        cache_scale: the factor on cosines or products; None takes the classifier's scale and bias (uncertain: a port
            has 1, with which the cache has nearly no say).
        order: learn a sample before scoring it ("update-first") or after ("predict-first").

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> SCA(classifier).step([[0.8, 0.6], [0.1, 0.9]]).argmax(dim=1)
    tensor([0, 1])
    """

    name: ClassVar[str] = "sca"
    recordable = True
    at_once = 256  # the products within a batch grow with its square
    inverse: Tensor
    weights: Tensor

    def __init__(
        self,
        classifier: ZeroShotClassifier,
        *,
        gamma: float = 1e4,
        tau: float = 0.5,
        threshold: Threshold = "unsureness",
        temperature: float = 1.0,
        beta_f: float = 0.5,
        trust: Trust = "surer",
        cache: Cache = "cosine",
        cache_scale: float | None = None,
        order: Order = "update-first",
    ) -> None:
        self.gamma = require_number("gamma", gamma, 1e-6, 1e12)
        self.tau = require_number("tau", tau, 0.0, 1.0)
        self.temperature = require_number("temperature", temperature, 0.01, 100.0)
        self.beta_f = require_number("beta_f", beta_f, 0.0, 1e6)
        if cache_scale is not None:
            cache_scale = require_number("cache_scale", cache_scale, 0.0, 1e9)
        require_choice("threshold", threshold, get_args(Threshold))
        require_choice("trust", trust, get_args(Trust))
        require_choice("cache", cache, get_args(Cache))
        require_choice("order", order, get_args(Order))
        self.threshold, self.trust, self.cache, self.order = threshold, trust, cache, order
        self.cache_scale = cache_scale
        super().__init__(
            classifier,
            gamma=self.gamma,
            tau=self.tau,
            threshold=threshold,
            temperature=self.temperature,
            beta_f=self.beta_f,
            trust=trust,
            cache=cache,
            cache_scale=cache_scale,
            order=order,
        )
        self.add_state("inverse", self._initial_inverse, per_class=False)
        self.add_state("weights", lambda: torch.zeros_like(self.classifier.anchors))

    def _initial_inverse(self) -> Tensor:
        anchors = self.classifier.anchors
        return torch.eye(self.classifier.dim, dtype=torch.float64, device=anchors.device) / self.gamma

    def _step(self, samples: Samples) -> Tensor:
        zero_shot = ZeroShot.of(self.classifier, samples)
        labels = self._pseudo_labels(zero_shot.probabilities)
        scores = learn_least_squares(self.inverse, self.weights, samples.features, labels, self.order)
        return self._fuse(zero_shot, scores)

    def _predict(self, samples: Samples) -> Tensor:
        f, w = samples.features.double(), self.weights.double()
        scores = Scores(f @ w.T, torch.linalg.vector_norm(w, dim=1).expand(len(f), -1))
        return self._fuse(ZeroShot.of(self.classifier, samples), scores)

    def _pseudo_labels(self, p: Tensor) -> Tensor:
        ranked, classes = p.sort(dim=1, descending=True, stable=True)
        enough = self.tau * (1 - ranked[:, :1]) if self.threshold == "unsureness" else self.tau
        reached = ranked.cumsum(dim=1) - ranked  # by the classes before this one
        chosen = reached < enough - _REACHED
        chosen[:, 0] = True
        logarithms = torch.where(chosen, ranked, 0.0).log() / self.temperature
        return torch.zeros_like(p).scatter_(1, classes, logarithms.softmax(dim=1))

    def _fuse(self, zero_shot: ZeroShot, scores: Scores) -> Tensor:
        u = self._cache_logits(scores)
        entropies = torch.stack([entropy_of(u.softmax(dim=1)), zero_shot.entropy])
        sign = -1.0 if self.trust == "surer" else 1.0
        a = (sign * self.beta_f * entropies).softmax(dim=0)[:, :, None]
        return (a[0] * u + a[1] * zero_shot.logits).to(zero_shot.logits.dtype)

    def _cache_logits(self, scores: Scores) -> Tensor:
        values = scores.products
        if self.cache == "cosine":
            values = torch.where(scores.lengths > 0, values / scores.lengths.clamp_min(1e-300), 0.0)
        return self.classifier.scores(values) if self.cache_scale is None else self.cache_scale * values
