"""What a layer of prototypes in a metric has learned, and what it is given."""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier


@dataclass(frozen=True)
class TextPrototypes:
    """What the anchors of a classifier give to the prototypes."""

    classifier: ZeroShotClassifier
    mean: Tensor  # t̄, d, float64
    part: Tensor  # what the text of each class counts, C×d

    @classmethod
    @lru_cache(maxsize=8)
    def of(cls, classifier: ZeroShotClassifier, weight: float, dtype: torch.dtype) -> "TextPrototypes":
        """Those of texts that count as so many samples, for products in a precision; adapters share them."""
        anchors = classifier.anchors.double()
        mean = anchors.mean(dim=0)
        return cls(classifier, mean, (weight * (anchors - mean)).to(dtype))


class AllSamples(NamedTuple):
    """What is summed up over all samples so far."""

    seen: Tensor  # t, their number
    total: Tensor  # Σx, d, float64
    gram: Tensor  # Σxxᵀ, d×d, float64


class Shrinkage(NamedTuple):
    """How a covariance becomes a metric."""

    ridge: float
    early_ridge: float
    first_metric: int
    least_spread: float


@dataclass(frozen=True)
class LayerState:
    """What is learned about the classes, and the metric that they are scored in."""

    sums: Tensor  # M, C×d, float64: weighted sums of features
    weights: Tensor  # n, C, float64: sums of the weights
    metric: Tensor  # P, d×d
    squares: Tensor  # C, float64: ‖E_c‖² in the metric
    of_all: AllSamples
    counts: bool  # whether it is with this layer that samples are counted in them
    centre: Tensor  # m, d, float64
    texts: Tensor  # what the text of each class counts, C×d
    least_weight: float  # what is not above it counts as zero
    factor: float  # of a cosine beside zero-shot logits
