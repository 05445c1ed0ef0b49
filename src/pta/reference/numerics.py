"""What several loops need: probabilities of logits, their entropy, unit vectors."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]  # float64 in the tests


def softmax(z: Array) -> Array:
    """Probabilities of logits, over the last axis."""
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def log_softmax(z: Array) -> Array:
    """Logarithms of the probabilities of logits."""
    shifted = z - z.max()
    return shifted - np.log(np.exp(shifted).sum())


def entropy(p: Array) -> float:
    """−Σ p ln p, in nats."""
    positive = p[p > 0].astype(np.float64)
    return float(-np.sum(positive * np.log(positive)))


def lowest_entropy(logits: Array, count: int) -> Array:
    """The numbers of the rows of lowest entropy."""
    return np.argsort([entropy(softmax(z)) for z in logits], kind="stable")[:count]


def shifts_of(log_prior: Array | None, features: Array, anchors: Array) -> Array:
    """What a prior adds to the zero-shot logits of every sample, N×C: nothing, if there is none."""
    return np.zeros((len(features), len(anchors)), anchors.dtype) if log_prior is None else log_prior


def mean_probabilities(anchors: Array, views: Array, scale: float, shift: Array | float = 0.0) -> Array:
    """The mean of the zero-shot probabilities of views, for a sample whose feature is their mean."""
    return softmax(scale * (views @ anchors.T) + shift).mean(axis=0)


def unit(v: Array) -> Array:
    """The direction of v."""
    return v / np.linalg.norm(v)
