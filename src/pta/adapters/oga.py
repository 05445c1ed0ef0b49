"""OGA: Online Gaussian Test-Time Adaptation of Vision-Language Models (CVPR Workshops 2025).

https://arxiv.org/abs/2501.04352
The loop: `pta.reference.oga`.

Keeps a memory of the M most confident samples of every class and a mean μ_c of each (the text anchor at first). Classes are
Gaussians around their means with one covariance, estimated from the memory; the zero-shot probabilities are their
prior.

For each sample with feature x, zero-shot probabilities s of entropy e, and class ŷ = argmax s:
1. x takes the slot of the largest entropy in ŷ's memory if e is smaller; an empty slot has the entropy ln C.
2. A class with two items or more: μ_c = (sum of its items)/M.
3. As soon as a class has more than two items: S is the covariance (divisor n−1) of the residuals x_i − μ_{y_i} of all
   n items, and Λ = d·[(n−1)S + tr(S)·I]⁻¹ if n ≤ 4d, else Λ = S⁺. Until then Λ = d·I.
4. Likelihood: ℓ_c = xΛμ_c − ½μ_cΛμ_c − ½xΛx.
5. Posterior: s ⊙ softmax(τℓ), normalised. Given as log s + log softmax(τℓ), the same up to a constant a sample.

* Released: step 2 divides by the capacity M, however few items there are, so that means of young classes are short;
  the mean itself is `mean="count"`. Scaling them to unit length is an option there, too, and off.
* Released: a batch of 32 is learnt, then scored. Here samples are learnt and scored one by one;
  `pta eval --lookahead --batch 32` is the batch protocol.
* Released: memory and entropies in half precision, and 10⁻⁶ inside the logarithm of the entropy; here neither.
* Released: S⁺ is a pseudo-inverse in float32, to which eigenvalues below d·1.2·10⁻⁷ of the largest are zero. That is
  kept in any precision: two coordinates of CLIP's features are nearly equal, and S has no more to say about the rest.
* Released: one view a sample. Our reading for a mean of views: s is the mean of the views' probabilities. The order
  "predict-first" is ours.
"""

import math
from collections.abc import Iterable
from functools import partial
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.adapters.adapter import Adapter, register
from pta.classifier import ZeroShotClassifier
from pta.engines.gaussian import Entry, Gaussians, add_moments, pass_by, shrunk_covariance
from pta.engines.host_readable import is_host_readable
from pta.engines.rule import Order
from pta.engines.zero_shot import ZeroShot
from pta.parameters import require_choice, require_count, require_number, require_switch
from pta.samples import Samples

Mean = Literal["capacity", "count"]

_ITEMS_FOR_A_MEAN = 2
_ITEMS_FOR_A_COVARIANCE = 3  # in one class
_ENOUGH_A_DIMENSION = 4  # items; with more, the covariance needs no ridge
_FLOAT32 = torch.finfo(torch.float32).eps


@register
class OGA(Adapter):
    """Class Gaussians from a memory of sure samples, with the zero-shot probabilities as prior.

    Args:
        classifier: the zero-shot classifier that gives the prior.
        slots: M, the items that the memory keeps of each class.
        tau: how much the likelihood counts against the prior.
        mean: a class's items are summed and divided by the "capacity" M (released) or by their "count".
        renormalise: scale the means of items to unit length.
        order: learn a sample before scoring it ("update-first") or after ("predict-first").

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> adapter = OGA(classifier)
    >>> adapter.step([[0.8, 0.6], [0.9, 0.1], [0.4, 0.7]]).argmax(dim=1)
    tensor([0, 0, 1])
    """

    name: ClassVar[str] = "oga"
    recordable = True
    items: Tensor
    entropies: Tensor
    means: Tensor
    moments: Tensor

    def __init__(
        self,
        classifier: ZeroShotClassifier,
        *,
        slots: int = 8,
        tau: float = 0.05,
        mean: Mean = "capacity",
        renormalise: bool = False,
        order: Order = "update-first",
    ) -> None:
        require_choice("mean", mean, get_args(Mean))
        require_switch("renormalise", renormalise)
        require_choice("order", order, get_args(Order))
        self.slots = require_count("slots", slots, 1, 10_000)
        self.tau = require_number("tau", tau, 0.0, 1e3)
        self.mean, self.renormalise, self.order = mean, renormalise, order
        super().__init__(classifier, slots=self.slots, tau=self.tau, mean=mean, renormalise=renormalise, order=order)
        self._declare(classifier.classes, classifier.dim)

    def _declare(self, C: int, d: int) -> None:
        M, wide = self.slots, torch.float64
        self.empty = math.log(C)
        self.add_state("items", lambda: self.classifier.anchors.new_zeros(C, M, d))
        self.add_state("entropies", lambda: self.classifier.anchors.new_full((C, M), self.empty, dtype=wide))
        self.add_state("means", lambda: self.classifier.anchors.clone())  # μ
        self.add_state("moments", lambda: self.classifier.anchors.new_zeros(d + 1, d + 1, dtype=wide), per_class=False)
        self._gaussians: Gaussians | None = None

    @property
    def filled(self) -> Tensor:
        """Which slots hold an item, C×M."""
        return self.entropies < self.empty

    def reset(self, classes: Iterable[int] | None = None) -> None:
        """Forget everything, or only what was learnt about some classes."""
        super().reset(classes)
        if classes is not None:  # the covariance is everybody's: take it from the items that are left
            add_moments(self.moments.zero_(), self.items, self.means[:, None], self.filled)

    def _state_replaced(self) -> None:
        self._gaussians = None

    def _step(self, samples: Samples) -> Tensor:
        zero_shot, x = ZeroShot.of(self.classifier, samples), samples.features
        learn = partial(self._learn, x, zero_shot)
        likelihoods = pass_by(self.entropies, zero_shot, x, self.order, learn, self._likelihoods)
        return self._posterior(zero_shot, likelihoods)

    def _predict(self, samples: Samples) -> Tensor:
        return self._posterior(ZeroShot.of(self.classifier, samples), self._likelihoods(samples.features))

    def _learn(self, x: Tensor, zero_shot: ZeroShot, sample: int) -> None:
        """Steps 1 to 3."""
        entry = Entry.of(self.entropies, zero_shot, sample)
        with entry.exchanging(self.moments, self.items, self.means, self.entropies, self.empty):
            entry.put(self.items, x[sample])
            entry.put(self.entropies, zero_shot.entropy[sample])
            count = self.filled[entry.own].sum(dim=1)
            mean = self.items[entry.own].sum(dim=1) / (self.slots if self.mean == "capacity" else count)
            if self.renormalise:
                mean = normalize(mean)
            entry.put_class(self.means, torch.where(count >= _ITEMS_FOR_A_MEAN, mean, self.means[entry.own]))
        self._gaussians = None

    def _likelihoods(self, x: Tensor) -> Tensor:
        """Step 4, but for the last term, which is the same for all classes."""
        if self._gaussians is None or not is_host_readable(
            self.moments
        ):  # a step that is replayed does not forget the old ones
            self._gaussians = self._estimate()
        return self._gaussians.scores(x)

    def _estimate(self) -> Gaussians:
        d, n = self.classifier.dim, self.moments[-1, -1]
        enough = _ENOUGH_A_DIMENSION * d
        young = self.filled.sum(dim=1).max() < _ITEMS_FOR_A_COVARIANCE
        covariance = shrunk_covariance(self.moments, enough=enough).mul_(~young)
        covariance.diagonal().add_(young.double() / d)
        cutoff = d * _FLOAT32 * (~young & (n > enough)).double() if self.filled.numel() > enough else None
        return Gaussians.of(covariance, self.means, cutoff=cutoff)

    def _posterior(self, zero_shot: ZeroShot, likelihoods: Tensor) -> Tensor:
        """Step 5."""
        s = zero_shot.probabilities
        prior = s.clamp_min(torch.finfo(s.dtype).tiny).log().to(likelihoods.dtype)
        return prior + (self.tau * likelihoods).log_softmax(dim=1)
