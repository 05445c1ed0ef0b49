"""Temperatures without labels as a loop over samples, written from their definition."""

import numpy as np

from pta.reference.numerics import Array, softmax

GRID = [1, 1.25, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8, 11, 15]


def temperatures_loop(scores: Array, zero_shot_logits: Array) -> Array:
    """τ of each sample of a stream, N, from a method's logits and the zero-shot logits without prior, N×C each."""
    D = dict.fromkeys(GRID, 0.0)
    found = []
    for t, (score, z) in enumerate(zip(scores, zero_shot_logits, strict=True)):
        smoothed = (20 * 4 + t * zero_of(D)) / (20 + t) if t else 4.0
        found.append(2 + smoothed / 2)
        rate = max(1 / 200, 1 / (t + 1))
        target = 1 - 0.8 * (1 - softmax(z).max())
        for theta in GRID:
            D[theta] += rate * (softmax(score / theta).max() - target - D[theta])
    return np.array(found)


def zero_of(D: dict[float, float]) -> float:
    """Where D is zero first, between the last θ at which it is positive and the next."""
    if D[1] <= 0:
        return 1.0
    if D[15] > 0:
        return 15.0
    last = max(i for i, theta in enumerate(GRID) if D[theta] > 0)
    low, high = GRID[last], GRID[last + 1]
    return low + (high - low) * D[low] / (D[low] - D[high])
