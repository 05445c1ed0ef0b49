"""OGA: Online Gaussian Test-Time Adaptation of Vision-Language Models (CVPR Workshops 2025).

https://arxiv.org/abs/2501.04352

Keeps a memory of the M most confident samples of every class, and a mean μ_c per class (the text anchor at first).
Classes are Gaussians around their means with one covariance, estimated from the memory. The zero-shot probabilities are
their prior.

For each sample with feature x, zero-shot probabilities s of entropy e, and class ŷ = argmax s:
1. x takes the slot of the largest entropy in ŷ's memory if e is smaller; an empty slot has the entropy ln C.
2. A class with two items or more: μ_c = (sum of its items)/M.
3. As soon as a class has more than two items: S is the covariance (divisor n−1) of the residuals x_i − μ_{y_i} of all
   n items, and Λ = d·[(n−1)S + tr(S)·I]⁻¹ if n ≤ 4d, else Λ = S⁺. Until then Λ = d·I.
4. Likelihood: ℓ_c = xΛμ_c − ½μ_cΛμ_c − ½xΛx.
5. Posterior: s ⊙ softmax(τℓ), normalised. Given as log s + log softmax(τℓ), the same up to a constant per sample.

* Released: step 2 divides by the capacity M, however few items there are, so that means of young classes are short;
  the mean itself is `mean="count"`. Scaling them to unit length is an option there, too, and off.
* Released: a batch of 32 is learned, then scored. Here samples are learned and scored one by one;
  `pta eval --lookahead --batch 32` is the batch protocol.
* Released: memory and entropies in half precision, and 10⁻⁶ inside the logarithm of the entropy; here neither.
* Released: S⁺ is a pseudo-inverse in float32, to which eigenvalues below d·1.2·10⁻⁷ of the largest are zero. That is
  kept in any precision: two coordinates of CLIP's features are nearly equal, and S has no more to say about the rest.
* Released: one view per sample. Our reading for a mean of views: s is the mean of the views' probabilities. The order
  "predict-first" is ours.
"""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.core.parameters import choice, count, number, switch
from pta.engines.caches.entropy_bank import BankEntry
from pta.engines.gaussian.gaussians import Gaussians
from pta.engines.zero_shot import ZeroShot
from pta.methods.adapt import BankMethod
from pta.methods.state import entropies

Mean = Literal["capacity", "count"]

_ITEMS_FOR_A_MEAN = 2
_ITEMS_FOR_A_COVARIANCE = 3  # in one class
_ENOUGH_PER_DIMENSION = 4  # items; with more, the covariance needs no ridge
_FLOAT32 = torch.finfo(torch.float32).eps


class OGA(BankMethod):
    """Class Gaussians from a memory of confident samples, with the zero-shot probabilities as prior.

    The loop: `pta.reference.oga.oga_loop`.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> adapter = OGA(classifier)
    >>> adapter.step([[0.8, 0.6], [0.9, 0.1], [0.4, 0.7]]).argmax(dim=1)
    tensor([0, 0, 1])
    """

    name = "oga"
    fixed_classes = "it marks a free slot by the entropy of all classes"
    slots: int = count(8, 1, 10_000, "M, number of items that the memory keeps per class")
    tau: float = number(0.05, 0.0, 1e3, "τ, weight of the likelihood against the prior")
    mean: Mean = choice(
        "capacity", Mean, "divisor of the sum of a class's items: M (capacity, released) or their count"
    )
    renormalise: bool = switch(False, "scale the means of items to unit length")

    def _declare_state(self) -> None:
        C = self.classifier.classes
        self._declare_bank(math.log(C), entropies(C))

    @property
    def logit_factor(self) -> float:
        """At first text is in the prior and, as τ·d·cosines, in the likelihoods of Gaussians around the anchors."""
        return 1 / (1 + self.tau * self.classifier.dim / self.classifier.scale)

    def _learn_class(self, entry: BankEntry, f: Tensor, share: Tensor) -> None:
        """Steps 1 and 2."""
        count = self.filled[entry.own].sum(dim=1)
        mean = self.items[entry.own].sum(dim=1) / (self.slots if self.mean == "capacity" else count)
        if self.renormalise:
            mean = normalize(mean)
        entry.put_class(self.means, mean, only_if=count >= _ITEMS_FOR_A_MEAN)

    def _estimate(self) -> Gaussians:
        """Step 3."""
        d, filled = self.classifier.dim, self.filled
        return Gaussians.of_moments(
            self.moments,
            self.means,
            ready=filled.sum(dim=1).max() >= _ITEMS_FOR_A_COVARIANCE,
            enough=_ENOUGH_PER_DIMENSION * d,
            capacity=filled.numel(),
            cutoff=d * _FLOAT32,
        )

    def _scores(self, f: Tensor) -> Tensor:
        """Step 4, but for the last term, which is the same for all classes."""
        return self._gaussians().scores(f)

    def _fused(self, zero_shot: ZeroShot, scores: Tensor) -> Tensor:
        """Step 5."""
        s = zero_shot.probabilities
        prior = s.clamp_min(torch.finfo(s.dtype).tiny).log().to(scores.dtype)
        return prior + (self.tau * scores).log_softmax(dim=1)
