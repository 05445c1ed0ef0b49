"""Which samples touch which classes: the only thing about a stream that moves the prototypes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pta.core.labels import UNKNOWN, Labels
from pta.engines.pta.rule import DOUBT, Rule
from pta.engines.zero_shot import ZeroShot


@dataclass(frozen=True)
class Touches:
    """E pairs of a sample and a class it touches, ordered by class, then by time."""

    samples: NDArray[np.int64]  # E row numbers in the batch
    classes: NDArray[np.int64]  # E class numbers
    probabilities: NDArray[np.float64]  # E zero-shot probabilities; where the sample has a label, its weight
    count: int  # the number of samples B, touching or not

    @classmethod
    def of(cls, probabilities: Tensor, rule: Rule, margin: float = 0.0) -> "Touches":
        """The touches of given B×C probabilities, as they are; with a margin, also those that fall short by less."""
        threshold = rule.threshold * (1 - margin)
        values = probabilities.cpu().numpy()
        high = np.flatnonzero(values.astype(np.float32, copy=False) >= np.float32(threshold))
        samples, classes = np.divmod(high, values.shape[1])
        order = np.argsort(classes, kind="stable")
        return cls(samples[order], classes[order], values.reshape(-1)[high[order]].astype(np.float64), len(values))

    @classmethod
    def of_labels(cls, labels: Labels, weight: float) -> "Touches":
        """The touches of the samples that have a label: each its class alone, as if it had that probability."""
        samples = np.flatnonzero(labels != UNKNOWN)
        samples = samples[np.argsort(labels[samples], kind="stable")]
        return cls(samples, labels[samples], np.full(len(samples), weight), len(labels))

    def with_labels(self, labels: Labels, weight: float) -> "Touches":
        """The same where samples with a label touch its class alone."""
        rest, known = self.only(labels[self.samples] == UNKNOWN), Touches.of_labels(labels, weight)
        samples, classes, probabilities = (
            np.concatenate([getattr(one, name) for one in (rest, known)])
            for name in ("samples", "classes", "probabilities")
        )
        order = np.lexsort((samples, classes))
        return Touches(samples[order], classes[order], probabilities[order], self.count)

    def only(self, chosen: NDArray[np.bool_]) -> "Touches":
        """The chosen ones of the same batch."""
        return Touches(self.samples[chosen], self.classes[chosen], self.probabilities[chosen], self.count)

    def between(self, start: int, end: int) -> "Touches":
        """The touches of samples start…end−1, counted from start."""
        inside = self.only((self.samples >= start) & (self.samples < end))
        return Touches(inside.samples - start, inside.classes, inside.probabilities, end - start)

    @classmethod
    def joined(cls, batches: "Sequence[Touches]") -> "Touches":
        """The touches of consecutive batches, as of one batch."""
        counts = [one.count for one in batches]
        begin = np.cumsum(counts) - counts
        samples = np.concatenate([one.samples + first for one, first in zip(batches, begin, strict=True)])
        classes = np.concatenate([one.classes for one in batches])
        probabilities = np.concatenate([one.probabilities for one in batches])
        order = np.argsort(classes, kind="stable")
        return cls(samples[order], classes[order], probabilities[order], sum(counts))


def find_touches(zero_shot: ZeroShot, logits: Tensor, rule: Rule) -> Touches:
    """The touches of a batch with these logits (`ZeroShot.logits`), decided as float64 would decide."""
    found = Touches.of(logits.softmax(dim=1), rule, margin=DOUBT)
    doubt = found.probabilities <= rule.threshold * (1 + DOUBT)
    if doubt.any():
        doubtful = np.unique(found.samples[doubt])
        exact = zero_shot.exact_logits_of(doubtful).softmax(dim=1)
        again = np.isin(found.samples, doubtful)
        row = np.searchsorted(doubtful, found.samples[again])
        found.probabilities[again] = exact.cpu().numpy()[row, found.classes[again]]
    return found.only(found.probabilities.astype(np.float32) >= np.float32(rule.threshold))
