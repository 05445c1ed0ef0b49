"""Methods that keep a bank of the most confident samples per class, and Gaussians of one covariance around their means.

The bank is `pta.engines.caches.entropy_bank`: what enters it depends on zero-shot quantities alone.
"""

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial

from torch import Tensor

from pta.core.parameters import Order, Prior, learning_order, prior_in_front
from pta.core.samples import Samples
from pta.engines.caches.entropy_bank import BankEntry, renew_moments, score_between_updates
from pta.engines.gaussian.gaussians import Estimate, Gaussians, are_moments_of
from pta.engines.zero_shot import ZeroShot
from pta.methods.adapter import Adapter
from pta.methods.state import UNIT_BALL, Bound, doubles, full, text_anchors


class BankMethod(Adapter):
    """A method that scores by Gaussians from a bank, and brings its scores together with zero-shot's."""

    may_fail = False
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
        self.gaussians = Estimate(self._estimate)

    @property
    def filled(self) -> Tensor:
        """Which slots hold an item, C×L."""
        return self.entropies < self.empty

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
        learn = partial(self._learn, f, zero_shot)
        scores = score_between_updates(self.entropies, zero_shot, f, self.order, learn, self._scores)
        return self._fused(zero_shot, scores)

    def _predict(self, samples: Samples) -> Tensor:
        return self._fused(self.zero_shot(samples), self._scores(samples.features))

    def _learn(self, features: Tensor, zero_shot: ZeroShot, sample: int) -> None:
        entry = BankEntry.of(self.entropies, zero_shot, sample)
        with entry.exchanging(self.moments, self.items, self.means, self.entropies, self.empty):
            entry.put(self.items, features[sample])
            entry.put(self.entropies, zero_shot.entropy[sample])
            self._learn_class(entry, features[sample], zero_shot.probabilities[sample, entry.own])
        self.gaussians.state_changed()

    def _contradiction(self, state: Mapping[str, Tensor]) -> str | None:
        filled = state["entropies"] < self.empty
        agree = are_moments_of(state["moments"], state["items"], state["means"][:, None], filled)
        return None if agree else "moments are not those of the items"

    def _state_replaced(self) -> None:
        self.gaussians.state_changed()
        renew_moments(self.moments, self.items, self.means, self.filled)
