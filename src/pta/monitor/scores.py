"""What the frozen zero-shot model says of samples: numbers that learning cannot move."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.engines.zero_shot import exact_logits

BLOCK = 64
"""Samples between two looks at the alarms."""
PART = 8
"""Samples that are measured together: always the same ones, so that batches of any size give the same bits."""


class ZeroShotScores(NamedTuple):
    """Of B samples."""

    probabilities: NDArray[np.floating]  # B×C
    labels: NDArray[np.int64]
    ranked: NDArray[np.float64]  # B×2: log-odds of the top class, which order samples by confidence; top cosine
    confidence: NDArray[np.float64]

    @property
    def shown(self) -> NDArray[np.float64]:
        """Confidence and top cosine, B×2."""
        return np.stack([self.confidence, self.ranked[:, 1]], axis=1)


def scored(classifier: ZeroShotClassifier, logits: NDArray[np.floating]) -> ZeroShotScores:
    """The scores of zero-shot logits, B×C."""
    labels = logits.argmax(axis=1)
    tops = labels + np.arange(0, logits.size, logits.shape[1])  # their places
    top = logits.ravel()[tops]
    odds = logits - top[:, None]
    np.exp(odds, out=odds)
    odds.ravel()[tops] = 0  # so that the sum of the others keeps its digits
    others = odds.sum(axis=1).astype(np.float64)
    confidence, ranked = 1 / (1 + others), np.empty((len(logits), 2))
    odds.ravel()[tops] = 1
    odds *= confidence.astype(odds.dtype)[:, None]
    ranked[:, 0] = -np.log(np.maximum(others, 1e-30))
    ranked[:, 1] = (top.astype(np.float64) - classifier.bias) / classifier.scale
    return ZeroShotScores(odds, labels, ranked, confidence)


def exactly_scored(classifier: ZeroShotClassifier, features: Tensor) -> ZeroShotScores:
    """The scores of B×d unit features in float64; ranked ones are rounded, so that they are the same in every batch."""
    found = scored(classifier, exact_logits(classifier, features).cpu().numpy())
    return found._replace(ranked=found.ranked.round(6))


def rounding(classifier: ZeroShotClassifier, eps: float) -> NDArray[np.float64]:
    """How far the two ranked scores of logits in a precision can be from exact ones."""
    of_cosine = 16 * eps
    return np.array([2 * classifier.scale * of_cosine, of_cosine])
