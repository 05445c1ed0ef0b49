"""Metrics of a run: accuracy along the stream and per class, calibration, changes against zero-shot."""

import numpy as np
from numpy.typing import NDArray

Right = NDArray[np.bool_]

COLD_START = 100
"""Samples before online accuracy is looked at: of fewer it is mostly noise (paper, Figure 2)."""

_BINS = 15  # the usual number for calibration errors


def accuracy(right: Right) -> float:
    """Percentage of correct predictions.

    >>> accuracy(np.array([True, False, True, True]))
    75.0
    """
    return 100 * int(right.sum()) / len(right)


def online_accuracy(right: Right) -> NDArray[np.float64]:
    """Percentage of correct predictions up to and including each position of the stream.

    >>> online_accuracy(np.array([True, False, True, True])).round(1).tolist()
    [100.0, 50.0, 66.7, 75.0]
    """
    return 100 * np.cumsum(right) / np.arange(1, len(right) + 1)


def class_accuracies(right: Right, labels: NDArray[np.int64], classes: int) -> list[float | None]:
    """Percentage of correct predictions per class, None for classes that do not occur.

    >>> class_accuracies(np.array([True, False, True]), np.array([2, 2, 0]), 3)
    [100.0, None, 50.0]
    """
    occurring, good = np.bincount(labels, minlength=classes), np.bincount(labels[right], minlength=classes)
    return [100 * int(g) / int(n) if n else None for g, n in zip(good, occurring, strict=True)]


def calibration_error(confidences: NDArray[np.floating], right: Right) -> float:
    """The expected calibration error in points: how far confidence is from accuracy, on average over 15 equal bins.

    >>> calibration_error(np.array([0.9, 0.9, 0.9, 0.9]), np.array([True, True, True, False])).__round__(6)
    15.0
    """
    edges = (np.arange(1, _BINS) / _BINS).astype(confidences.dtype)  # as the confidences would be rounded
    bins = np.searchsorted(edges, confidences)  # an edge belongs to the bin below it
    gaps = np.bincount(bins, weights=np.asarray(confidences, np.float64) - right, minlength=_BINS)
    return 100 * float(np.abs(gaps).sum()) / len(right)


def changes(right: Right, before: Right) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many wrong predictions were fixed and how many correct ones broken, up to and including each position.

    >>> fixed, broken = changes(np.array([True, True, False]), np.array([False, True, True]))
    >>> fixed.tolist(), broken.tolist()
    ([1, 1, 1], [0, 0, 1])
    """
    return np.cumsum(right & ~before), np.cumsum(before & ~right)
