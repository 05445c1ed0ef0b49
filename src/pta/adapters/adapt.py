"""ADAPT: Backpropagation-Free Test-Time Adaptation via Probabilistic Gaussian Alignment (NeurIPS 2025).

https://arxiv.org/abs/2508.15568
The loop: `pta.reference.adapt`.

Keeps a bank of the L most confident samples of every class and a mean μ_c of each (the text anchor T_c at first). Classes are
Gaussians around their means with one covariance, estimated from the bank; their densities weigh the zero-shot logits.

For each sample with feature f, zero-shot logits z, probabilities s of entropy e, and class ŷ = argmax z:
1. (f, s_ŷ, e) enters the bank of ŷ: a free slot, or that of the largest entropy if e is smaller. If it does not, only
   steps 4 and 5 follow.
2. Mean: μ_ŷ ← α·μ̂ + (1−α)·T_ŷ with μ̂ = (Σ_i q_i·x_i + s_ŷ·f) / (Σ_i q_i + s_ŷ) over the items (x_i, q_i) of ŷ.
3. Precision: Λ = d·[(n−1)Σ + tr(Σ)·I]⁻¹ with Σ the covariance of the residuals x_i − μ_{y_i} of all n items.
4. Evidence: u_c = ln softmax(fΛμ − ½μΛμ)_c + temperature/(2n)·Σ_{i: y_i=c} q_i·⟨f, x_i⟩.
5. Score: z ⊙ exp((u − max u)/temperature).

The whole set at once (`adapt-transductive`): the bank has the L most confident samples of each class, μ̂_c of each class that
has any is the mean of them and of all samples j, weighted by q_i and by s_jc, and steps 3 to 5 follow once.

* Released: step 1 has put the sample in the bank that step 2 sums up, so it counts twice; the authors' description has
  it once (`count_current`).
* Released: a sample that does not enter is given the similarities ⟨f, x_i⟩ of the last one that did (`similarity`).
* Released: step 5 weighs raw logits, not probabilities, and so turns the order of negative ones around, which CLIP
  does not give; a bias (SigLIP) is left out of the product and added again.
* Released: temperature is a number of each dataset, from 10 to 100.
* Mean of views (the authors' are crops and flips, without AugMix, of ImageNet's variants alone): online, s is the mean
  of the views' probabilities; the whole set at once, it is the softmax of z.
* Our reading: before the first item Σ = I, as the released program has it for n = 1. If no two residuals differ, Σ = 0
  and so is its pseudo-inverse Λ. The order "predict-first" is ours.
"""

from collections.abc import Iterable
from functools import partial
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from pta.adapters.adapter import Adapter, Scope, register
from pta.classifier import ZeroShotClassifier
from pta.engines.admission import EMPTY
from pta.engines.gaussian import Entry, Gaussians, add_moments, pass_by, shrunk_covariance
from pta.engines.host_readable import is_host_readable
from pta.engines.rule import Order
from pta.engines.zero_shot import ZeroShot, entropy_of, exact_logits
from pta.parameters import require_choice, require_count, require_number
from pta.samples import Samples

CountCurrent = Literal["twice", "once"]
Similarity = Literal["stale", "fresh"]


@register
class ADAPT(Adapter):
    """Class Gaussians from a bank of sure samples, weighing the zero-shot logits.

    Args:
        classifier: the zero-shot classifier whose logits are weighed.
        slots: L, the items that the bank keeps of each class.
        alpha: how much of a class's mean comes from its items, the rest being its text anchor.
        temperature: what the evidence is divided by; the smaller, the more it overrules the zero-shot logits.
        count_current: how often an entering sample counts in its class's mean: "twice" (released) or "once".
        similarity: a sample that does not enter is compared with the bank in the place of the last one that did
            ("stale", released) or for itself ("fresh").
        order: learn a sample before scoring it ("update-first") or after ("predict-first").

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> adapter = ADAPT(classifier)
    >>> adapter.step([[0.8, 0.6], [0.9, 0.1], [0.4, 0.7]]).argmax(dim=1)
    tensor([0, 0, 1])
    """

    name: ClassVar[str] = "adapt"
    recordable = True
    items: Tensor
    shares: Tensor
    entropies: Tensor
    sums: Tensor
    means: Tensor
    moments: Tensor
    last: Tensor

    def __init__(
        self,
        classifier: ZeroShotClassifier,
        *,
        slots: int = 16,
        alpha: float = 0.9,
        temperature: float = 100.0,
        count_current: CountCurrent = "twice",
        similarity: Similarity = "stale",
        order: Order = "update-first",
    ) -> None:
        require_choice("count_current", count_current, get_args(CountCurrent))
        require_choice("similarity", similarity, get_args(Similarity))
        require_choice("order", order, get_args(Order))
        self.slots = require_count("slots", slots, 1, 10_000)
        self.alpha = require_number("alpha", alpha, 0.0, 1.0)
        self.temperature = require_number("temperature", temperature, 1e-3, 1e6)
        self.count_current, self.similarity, self.order = count_current, similarity, order
        super().__init__(
            classifier,
            slots=self.slots,
            alpha=self.alpha,
            temperature=self.temperature,
            count_current=count_current,
            similarity=similarity,
            order=order,
        )
        self._declare(classifier.classes, classifier.dim)

    def _declare(self, C: int, d: int) -> None:
        L, wide = self.slots, torch.float64
        self.add_state("items", lambda: self.classifier.anchors.new_zeros(C, L, d))  # x
        self.add_state("shares", lambda: self.classifier.anchors.new_zeros(C, L, dtype=wide))  # q, 0 where empty
        self.add_state("entropies", lambda: self.classifier.anchors.new_full((C, L), EMPTY, dtype=wide))
        self.add_state("sums", lambda: self.classifier.anchors.new_zeros(C, d))  # Σ q·x
        self.add_state("means", lambda: self.classifier.anchors.clone())  # μ
        self.add_state("moments", lambda: self.classifier.anchors.new_zeros(d + 1, d + 1, dtype=wide), per_class=False)
        self.add_state("last", lambda: self.classifier.anchors.new_zeros(d), per_class=False)
        self._gaussians: Gaussians | None = None

    def reset(self, classes: Iterable[int] | None = None) -> None:
        """Forget everything, or only what was learnt about some classes."""
        super().reset(classes)
        if classes is not None:  # the covariance is everybody's: take it from the items that are left
            self.last.zero_()  # may be of a class that is forgotten
            add_moments(self.moments.zero_(), self.items, self.means[:, None], self.entropies < EMPTY)

    def _state_replaced(self) -> None:
        self._gaussians = None

    def _step(self, samples: Samples) -> Tensor:
        zero_shot, f = ZeroShot.of(self.classifier, samples), samples.features
        u = pass_by(self.entropies, zero_shot, f, self.order, partial(self._learn, f, zero_shot), self._evidence)
        return _weighed(self.classifier, zero_shot.logits, u)

    def _predict(self, samples: Samples) -> Tensor:
        z = exact_logits(self.classifier, samples.features).to(samples.features.dtype)
        return _weighed(self.classifier, z, self._evidence(samples.features))

    def _learn(self, features: Tensor, zero_shot: ZeroShot, sample: int) -> None:
        """Steps 1 to 3."""
        entry = Entry.of(self.entropies, zero_shot, sample)
        own, f, share = entry.own, features[sample], zero_shot.probabilities[sample, entry.own]
        with entry.exchanging(self.moments, self.items, self.means, self.entropies, EMPTY):
            entry.put(self.items, f)
            entry.put(self.shares, share)
            entry.put(self.entropies, zero_shot.entropy[sample])
            total, mass = (self.shares[own, None] @ self.items[own].double())[:, 0], self.shares[own].sum()
            entry.put_class(self.sums, total)
            if self.count_current == "twice":
                total, mass = total + share * f, mass + share
            mean = total / mass.clamp_min(torch.finfo(mass.dtype).tiny)
            entry.put_class(self.means, self.alpha * mean + (1 - self.alpha) * self.classifier.anchors[own])
        self.last.copy_(torch.where(entry.enters, f, self.last))
        self._gaussians = None

    def _evidence(self, f: Tensor) -> Tensor:
        """Step 4, of samples that meet the same state."""
        if self._gaussians is None or not is_host_readable(
            self.moments
        ):  # a step that is replayed does not forget the old ones
            self._gaussians = Gaussians.of(shrunk_covariance(self.moments), self.means)
        similar = (self.last if self.similarity == "stale" else f) @ self.sums.T
        return _evidence(self._gaussians.scores(f), similar, self.moments, self.temperature)


@register
class TransductiveADAPT(Adapter):
    """ADAPT for a whole set of samples at once; keeps nothing.

    Args:
        classifier: the zero-shot classifier whose logits are weighed.
        slots: L, the items that the bank keeps of each class.
        alpha: how much of a class's mean comes from the samples, the rest being its text anchor.
        temperature: what the evidence is divided by; the smaller, the more it overrules the zero-shot logits.

    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> TransductiveADAPT(classifier).step([[0.8, 0.6], [0.9, 0.1], [0.4, 0.7]]).argmax(dim=1)
    tensor([0, 0, 1])
    """

    name: ClassVar[str] = "adapt-transductive"
    scope: ClassVar[Scope] = "stream"

    def __init__(
        self, classifier: ZeroShotClassifier, *, slots: int = 6, alpha: float = 0.9, temperature: float = 100.0
    ) -> None:
        self.slots = require_count("slots", slots, 1, 10_000)
        self.alpha = require_number("alpha", alpha, 0.0, 1.0)
        self.temperature = require_number("temperature", temperature, 1e-3, 1e6)
        super().__init__(classifier, slots=self.slots, alpha=self.alpha, temperature=self.temperature)

    def _step(self, samples: Samples) -> Tensor:
        T, f = self.classifier.anchors, samples.features
        z = exact_logits(self.classifier, f)
        s, labels = z.softmax(dim=1), z.argmax(dim=1)
        items, shares = self._bank(f, s, labels)
        sums, mass = (shares[:, None] @ items.double())[:, 0], shares.sum(dim=1)
        mean = (sums + s.T @ f.double()) / (mass + s.sum(dim=0))[:, None]
        means = torch.where(mass[:, None] > 0, self.alpha * mean + (1 - self.alpha) * T, T).to(T.dtype)
        moments = s.new_zeros(f.shape[1] + 1, f.shape[1] + 1)
        add_moments(moments, items, means[:, None], shares > 0)
        gaussians = Gaussians.of(shrunk_covariance(moments), means)
        u = _evidence(gaussians.scores(f), f @ sums.to(f.dtype).T, moments, self.temperature)
        return _weighed(self.classifier, z.to(f.dtype), u)

    _predict = _step

    def _bank(self, f: Tensor, s: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The most confident samples of each class, C×L×d, and their probabilities of that class, C×L, zero where empty."""
        by_entropy = entropy_of(s).argsort(stable=True)
        order = by_entropy[labels[by_entropy].argsort(stable=True)]
        own = labels[order]
        place = torch.arange(len(own), device=own.device) - torch.searchsorted(own, own)
        kept = place < self.slots
        items = f.new_zeros(self.classifier.classes, self.slots, f.shape[1])
        shares = s.new_zeros(items.shape[:2])
        items[own[kept], place[kept]] = f[order[kept]]
        shares[own[kept], place[kept]] = s[order[kept], own[kept]]
        return items, shares


def _evidence(scores: Tensor, similar: Tensor, moments: Tensor, temperature: float) -> Tensor:
    """u/temperature, but for the normaliser of step 4's softmax, which cancels in step 5."""
    return scores / temperature + similar / (2 * moments[-1, -1].clamp_min(1.0))


def _weighed(classifier: ZeroShotClassifier, z: Tensor, u: Tensor) -> Tensor:
    """Step 5, given u/temperature."""
    return (z - classifier.bias) * (u - u.amax(dim=1, keepdim=True)).exp() + classifier.bias
