"""The alarm `foreign-input` of `pta.monitor`, sample by sample.

Shin, Ramdas and Rinaldo, "E-detectors: a nonparametric framework for sequential change detection", 2024.
"""

import numpy as np
from numpy.typing import NDArray

QUANTILES = (0.02, 0.05, 0.10, 0.20, 0.35, 0.50)
LIFTS = (0.03, 0.10, 0.25, 0.50)


def foreign_input_evidence(
    reference: NDArray[np.float64], bounds: NDArray[np.float64], scores: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The mean of the 48 sums after each of t samples, without an alarm between them.

    Args:
        reference: n×2 scores.
        bounds: p̄ of each quantile and score, 6×2.
        scores: t×2, of the samples in order.
    """
    ordered = np.sort(reference, axis=0)
    sums = np.zeros((len(QUANTILES), 2, len(LIFTS)))
    evidence = []
    for sample in scores:
        for i, quantile in enumerate(QUANTILES):
            k = max(1, int(quantile * len(reference)))
            for j in range(2):
                is_below = sample[j] < ordered[k - 1, j]
                p = bounds[i, j]
                for m, lift in enumerate(LIFTS):
                    risen = p + lift * (1 - p)
                    likelihood = risen / p if is_below else (1 - risen) / (1 - p)
                    sums[i, j, m] = likelihood * (sums[i, j, m] + 1)
        evidence.append(sums.mean())
    return np.array(evidence)
