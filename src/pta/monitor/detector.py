"""Tests whether a share has risen above that of a reference, after every sample and for ever, with a stated error.

The share of scores like the reference's below its k-th smallest of n is unknown. With probability 1 − α it is at most
p̄, the 1 − α quantile of Beta(k, n + 1 − k). Given that, and samples that are independent in time, each

    M ← L·(M + 1),  L = p₁/p̄ where a score is below and (1 − p₁)/(1 − p̄) elsewhere,  p₁ = p̄ + l·(1 − p̄)

has an expectation of at most t after t samples, for every lift l, and so has the mean of several. An alarm at 10⁶,
after which all M are 0, is therefore raised in t samples at most t/10⁶ times in expectation, however often it clears:
an e-detector (Shin, Ramdas and Rinaldo, 2024).
"""

from functools import lru_cache
from math import exp, lgamma, log, log1p

import numpy as np
from numpy.typing import NDArray

LIFTS = np.array([0.03, 0.1, 0.25, 0.5])
ALARM_AT = 1e6
UNLUCKY = 0.005  # the probability that a reference is too low by chance for any share that is tested


@lru_cache(maxsize=1024)
def share_bound(k: int, n: int, level: float) -> float:
    """p̄: the `level` quantile of Beta(k, n + 1 − k), by bisection of P(Bin(n, x) ≥ k).

    >>> round(share_bound(50, 500, 0.99), 4)
    0.1332
    >>> share_bound(0, 500, 0.99), share_bound(501, 500, 0.99)
    (0.0, 1.0)
    """
    if not 0 < k <= n:
        return float(k > n)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _at_least(k, n, middle) >= level else (middle, high)
    return high


def _at_least(k: int, n: int, x: float) -> float:
    """P(Bin(n, x) ≥ k), from the smaller of the two tails."""
    if not 0 < x < 1:
        return x
    counts = range(k, n + 1) if k > n * x else range(k)
    tail = sum(
        exp(lgamma(n + 1) - lgamma(i + 1) - lgamma(n - i + 1) + i * log(x) + (n - i) * log1p(-x)) for i in counts
    )
    return tail if k > n * x else 1 - tail


def advance(sums: NDArray[np.float64], below: NDArray[np.bool_], bounds: NDArray[np.float64]) -> NDArray[np.float64]:
    """M of S shares and all lifts (S×4) after B samples, B×S, in their place; returns the means of M on the way, B×S.

    With P_t the product of all L up to t, M_t = P_t·(M_0 + Σ 1/P_j over j < t).
    """
    p = bounds[:, None]
    risen = p + LIFTS * (1 - p)
    factors = np.where(below[:, :, None], risen / p, (1 - risen) / (1 - p))
    products = np.cumprod(factors, axis=0)
    before = np.concatenate([np.ones_like(products[:1]), products[:-1]])
    path = products * (sums + np.cumsum(1 / before, axis=0))
    sums[:] = path[-1]
    return path.mean(axis=2)
