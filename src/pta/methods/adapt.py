"""ADAPT: Backpropagation-Free Test-Time Adaptation via Probabilistic Gaussian Alignment (NeurIPS 2025).

https://arxiv.org/abs/2508.15568

Keeps a bank of the L most confident samples of every class, and a mean μ_c per class (the text anchor T_c at first).
Classes are Gaussians around their means with one covariance, estimated from the bank. Their densities weigh the
zero-shot logits.

For each sample with feature f, zero-shot logits z, probabilities s of entropy e, and class ŷ = argmax z:
1. (f, s_ŷ, e) enters the bank of ŷ: a free slot, or that of the largest entropy if e is smaller. If it does not, only
   steps 4 and 5 follow.
2. Mean: μ_ŷ ← α·μ̂ + (1−α)·T_ŷ with μ̂ = (Σ_i q_i·x_i + s_ŷ·f) / (Σ_i q_i + s_ŷ) over the items (x_i, q_i) of ŷ.
3. Precision: Λ = d·[(n−1)Σ + tr(Σ)·I]⁻¹ with Σ the covariance of the residuals x_i − μ_{y_i} of all n items.
4. Evidence: u_c = ln softmax(fΛμ − ½μΛμ)_c + temperature/(2n)·Σ_{i: y_i=c} q_i·⟨f, x_i⟩.
5. Score: z ⊙ exp((u − max u)/temperature).

The whole set at once (`adapt-transductive`): the bank has the L most confident samples of each class. The mean μ̂_c of
each class that has any is that of them and of all samples j, weighted by q_i and by s_jc. Steps 3 to 5 follow once.

* Released: step 1 has put the sample in the bank that step 2 sums up, so it counts twice; the authors' description has
  it once (`count_current`).
* Released: a sample that does not enter is given the similarities ⟨f, x_i⟩ of the last one that did (`similarity`).
* Released: step 5 weighs raw logits, not probabilities. That reverses the order of negative logits, which CLIP does not
  give. A bias (SigLIP) is left out of the product and added again.
* Released: temperature is a number of each dataset, from 10 to 100.
* Mean of views (the authors' are crops and flips, without AugMix, of ImageNet's variants alone): online, s is the mean
  of the views' probabilities; the whole set at once, it is the softmax of z.
* Our reading: before the first item Σ = I, as the released program has it for n = 1. If no two residuals differ, Σ = 0
  and so is its pseudo-inverse Λ. The order "predict-first" is ours.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from torch import Tensor

from pta.core.parameters import Order, Prior, choice, count, learning_order, number, prior_in_front
from pta.core.plain import is_host_readable
from pta.core.samples import Samples
from pta.engines.caches.admission import EMPTY
from pta.engines.caches.entropy_bank import BankEntry, admissions
from pta.engines.gaussian.gaussians import Gaussians, add_moments, are_moments_of
from pta.engines.zero_shot import ZeroShot, entropy_of
from pta.methods.adapter import Adapter
from pta.methods.state import SHARES, UNIT_BALL, Bound, doubles, entropies, full, or_empty, rows_at_most, text_anchors

CountCurrent = Literal["twice", "once"]
Similarity = Literal["stale", "fresh"]

_TEMPERATURE = number(
    100.0, 1e-3, 1e6, "divisor of the evidence; a smaller value gives it more weight against the zero-shot logits"
)


class BankMethod(Adapter):
    """A method with class Gaussians from a bank of confident samples, whose scores it joins with zero-shot's."""

    may_fail = False
    loses_frozen = True
    prototypes_in = "means"
    max_batch = 1024
    slots: int
    order: Order = learning_order("update-first")
    prior: Prior = prior_in_front()

    def _declare_bank(self, empty: float, within: Bound) -> None:
        """Declare the bank, given the entropy that stands in empty slots and the bound of entropies."""
        (C, d), L, self.empty = self.classifier.anchors.shape, self.slots, empty
        self.items = self.add_state("items", full(0.0, C, L, d), UNIT_BALL)  # x
        self.entropies = self.add_state("entropies", doubles(empty, C, L), within)
        self.means = self.add_state("means", text_anchors, UNIT_BALL)  # μ
        self.moments = self.add_state("moments", doubles(0.0, d + 1, d + 1), per_class=False)
        self._kept: Gaussians | None = None

    @property
    def filled(self) -> Tensor:
        """Which slots hold an item, C×L."""
        return self.entropies < self.empty

    def _gaussians(self) -> Gaussians:
        """The Gaussians of the state. They are kept until it changes, unless it can change without a call.

        That is where numbers are not host-readable: a recorded step is replayed there.
        """
        if self._kept is None or not is_host_readable(self._kept.origin):
            self._kept = self._estimate()
        return self._kept

    @abstractmethod
    def _estimate(self) -> Gaussians:
        """The Gaussians of the state."""

    @abstractmethod
    def _learn_class(self, entry: BankEntry, f: Tensor, share: Tensor) -> None:
        """Learn about a class whose bank a sample has entered, given its feature and its probability of the class."""

    @abstractmethod
    def _scores(self, f: Tensor) -> Tensor:
        """Score samples that meet the same state, B×C."""

    @abstractmethod
    def _fused(self, zero_shot: ZeroShot, scores: Tensor) -> Tensor:
        """The logits of samples with these scores."""

    def _step(self, samples: Samples) -> Tensor:
        zero_shot, f = self.zero_shot(samples), samples.features
        learning: Iterable[int] = range(len(f))
        if is_host_readable(self.entropies):
            learning = admissions(self.entropies, zero_shot.labels, zero_shot.entropy)
        scores, scored = [], 0
        for sample in learning:
            until = sample if self.order == "update-first" else sample + 1
            if until > scored:  # what comes between two updates is scored together
                scores.append(self._scores(f[scored:until]))
            self._learn(f, zero_shot, sample)
            scored = until
        if scored < len(f):
            scores.append(self._scores(f[scored:]))
        return self._fused(zero_shot, torch.cat(scores))

    def _predict(self, samples: Samples) -> Tensor:
        return self._fused(self.zero_shot(samples), self._scores(samples.features))

    def _learn(self, features: Tensor, zero_shot: ZeroShot, sample: int) -> None:
        entry = BankEntry.of(self.entropies, zero_shot, sample)
        self._add_moments(entry, sign=-1)
        entry.put(self.items, features[sample])
        entry.put(self.entropies, zero_shot.entropy[sample])
        self._learn_class(entry, features[sample], zero_shot.probabilities[sample, entry.own])
        self._add_moments(entry, sign=1)
        self._kept = None

    def _add_moments(self, entry: BankEntry, *, sign: int) -> None:
        """Add (sign = 1) or take away (−1) the moments of the class whose bank a sample enters."""
        filled = (self.entropies[entry.own] < self.empty) & entry.enters
        add_moments(self.moments, self.items[entry.own], self.means[entry.own, None], filled, sign=sign)

    def _contradiction(self, state: Mapping[str, Tensor]) -> str | None:
        filled = state["entropies"] < self.empty
        agree = are_moments_of(state["moments"], state["items"], state["means"][:, None], filled)
        return None if agree else "moments are not those of the items"

    def _state_replaced(self) -> None:
        self._kept = None
        if self.moments[-1, -1] != self.filled.sum():
            add_moments(self.moments.zero_(), self.items, self.means[:, None], self.filled)


class ADAPT(BankMethod):
    """Class Gaussians from a bank of confident samples, which weight the zero-shot logits.

    The loop: `pta.reference.adapt.adapt_loop`.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> adapter = ADAPT(classifier)
    >>> adapter.step([[0.8, 0.6], [0.9, 0.1], [0.4, 0.7]]).argmax(dim=1)
    tensor([0, 0, 1])
    """

    name = "adapt"
    fixed_classes = ""
    slots: int = count(16, 1, 10_000, "L, number of items that the bank keeps per class")
    alpha: float = number(0.9, 0.0, 1.0, "α, share of the items in a class mean; the rest is the text anchor")
    temperature: float = _TEMPERATURE
    count_current: CountCurrent = choice(
        "twice", CountCurrent, "weight of an entering sample in its class mean: twice (released) or once"
    )
    similarity: Similarity = choice(
        "stale", Similarity, "f of step 4 if the sample does not enter: the last entered (stale, released) or its own"
    )

    def _declare_state(self) -> None:
        (C, d), L = self.classifier.anchors.shape, self.slots
        self._declare_bank(EMPTY, or_empty(entropies(C)))
        self.shares = self.add_state("shares", doubles(0.0, C, L), SHARES)  # q, or 0
        self.sums = self.add_state("sums", full(0.0, C, d), rows_at_most(1.01 * L))  # Σ q·x
        self.last = self.add_state("last", full(0.0, d), UNIT_BALL, per_class=False)

    def _state_replaced(self) -> None:
        if self.moments[-1, -1] != self.filled.sum():
            self.last.zero_()  # it may be of a class that is forgotten
        super()._state_replaced()

    def _learn_class(self, entry: BankEntry, f: Tensor, share: Tensor) -> None:
        """Steps 1 and 2."""
        own = entry.own
        entry.put(self.shares, share)
        total, mass = (self.shares[own, None] @ self.items[own].double())[:, 0], self.shares[own].sum()
        entry.put_class(self.sums, total)
        if self.count_current == "twice":
            total, mass = total + share * f, mass + share
        mean = total / mass.clamp_min(torch.finfo(mass.dtype).tiny)
        entry.put_class(self.means, self.alpha * mean + (1 - self.alpha) * self.classifier.anchors[own])
        self.last.copy_(torch.where(entry.enters, f, self.last))

    def _estimate(self) -> Gaussians:
        """Step 3."""
        return Gaussians.of_moments(self.moments, self.means)

    def _scores(self, f: Tensor) -> Tensor:
        """Step 4."""
        similar = (self.last if self.similarity == "stale" else f) @ self.sums.T
        return _evidence(self._gaussians().scores(f), similar, self.moments, self.temperature)

    def _fused(self, zero_shot: ZeroShot, scores: Tensor) -> Tensor:
        """Step 5."""
        return _weighed(zero_shot, scores)


class TransductiveADAPT(Adapter):
    """ADAPT for a whole set of samples at once; keeps nothing.

    The loop: `pta.reference.adapt.adapt_transductive_loop`.

    >>> from pta import ZeroShotClassifier
    >>> classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> TransductiveADAPT(classifier).step([[0.8, 0.6], [0.9, 0.1], [0.4, 0.7]]).argmax(dim=1)
    tensor([0, 0, 1])
    """

    name = "adapt-transductive"
    scope = "stream"
    may_fail = False
    slots: int = count(6, 1, 10_000, "L, number of items that the bank keeps per class")
    alpha: float = number(0.9, 0.0, 1.0, "α, share of the samples in a class mean; the rest is the text anchor")
    temperature: float = _TEMPERATURE

    def _step(self, samples: Samples) -> Tensor:
        T, f, zero_shot = self.classifier.anchors, samples.features, self.zero_shot(samples)
        s = zero_shot.exact_logits.softmax(dim=1)
        items, shares = self._bank(f, s, zero_shot.labels)
        sums, mass = (shares[:, None] @ items.double())[:, 0], shares.sum(dim=1)
        mean = (sums + s.T @ f.double()) / (mass + s.sum(dim=0))[:, None]
        means = torch.where(mass[:, None] > 0, self.alpha * mean + (1 - self.alpha) * T, T).to(T.dtype)
        moments = s.new_zeros(f.shape[1] + 1, f.shape[1] + 1)
        add_moments(moments, items, means[:, None], shares > 0)
        gaussians = Gaussians.of_moments(moments, means)
        return _weighed(zero_shot, _evidence(gaussians.scores(f), f @ sums.to(f.dtype).T, moments, self.temperature))

    _predict = _step

    def _bank(self, f: Tensor, s: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The most confident samples per class, C×L×d, and their probabilities of it, C×L, zero where empty."""
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


def _weighed(zero_shot: ZeroShot, u: Tensor) -> Tensor:
    """Step 5, given u/temperature."""
    z, bias = zero_shot.exact_logits.to(u.dtype), zero_shot.classifier.bias
    return (z - bias) * (u - u.amax(dim=1, keepdim=True)).exp() + bias
