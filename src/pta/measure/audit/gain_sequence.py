"""The gain of adaptation, from labels drawn without replacement: an interval that holds at all times at once.

M answers were changed. x is +1 where the adapted answer is right, −1 where zero-shot's is, else 0. S is the sum of all
M. Before draw t, with s the sum of the draws so far, the mean of what is left would be m = (S − s) / (M − t + 1).

1. For the true S, K⁺(S) = mean over λ of Π (1 + λ(x − m)) is a martingale that begins at 1, and so is K⁻(S), with −λ.
   Each exceeds 40 at any time with a chance of at most 1/40 (Ville's inequality).
2. The interval is all S with K⁺(S) < 40 and K⁻(S) < 40 at every draw, that the draws left can still reach.
3. K⁺ falls in S and K⁻ rises. So the interval has no gaps, and bisection finds its ends.

Waudby-Smith and Ramdas, Confidence sequences for sampling without replacement, https://arxiv.org/abs/2006.04347.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Side = Literal["helps", "hurts", "undecided"]

LEVEL = 0.95
BETS = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.49])  # λ; all factors stay above 0
LARGEST = np.log(40.0)  # 2 / (1 − LEVEL)


def log_capital(draws: Numbers, total: int, changed: int, sign: int) -> Numbers:
    """The logarithm of K⁺ (`sign` 1) or K⁻ (−1) of a total after each draw, along the last axis.

    Where the draws rule the total out, the mean of what is left counts as −1 or 1.
    """
    left = changed - np.arange(draws.shape[-1])
    mean = np.clip((total - (np.cumsum(draws, axis=-1) - draws)) / left, -1, 1)
    bets = sign * BETS.reshape(-1, *[1] * draws.ndim)
    logs = np.cumsum(np.log1p(bets * (draws - mean)), axis=-1)
    return np.logaddexp.reduce(logs, axis=0) - np.log(len(BETS))


@dataclass(frozen=True)
class GainSequence:
    """The interval of the total S of `changed` answers, narrowed by each draw; empty if low > high.

    >>> sequence = sequence_of([1] * 12, changed=50)
    >>> sequence.side, sequence.low, sequence.high
    ('helps', 3, 50)
    """

    changed: int
    draws: tuple[int, ...]
    low: int
    high: int

    def after(self, x: int) -> "GainSequence":
        """The interval after a draw: 1 if the adapted answer is right, −1 if zero-shot's is, 0 if neither or both."""
        draws = (*self.draws, x)
        total, left = sum(draws), self.changed - len(draws)
        if not left:
            return GainSequence(self.changed, draws, total, total)  # all are known
        values = np.array(draws, float)

        def is_out(one: int, sign: int) -> bool:
            return bool(log_capital(values, one, self.changed, sign)[-1] >= LARGEST)

        low, high = max(self.low, total - left), min(self.high, total + left)
        if is_out(low, 1):  # which is seldom so after the first draws
            low += bisect_left(range(low, high + 1), True, key=lambda one: not is_out(one, 1))
        if low <= high and is_out(high, -1):
            high = low - 1 + bisect_left(range(low, high + 1), True, key=lambda one: is_out(one, -1))
        return GainSequence(self.changed, draws, low, high)

    @property
    def side(self) -> Side:
        """Whether all totals that are left are gains, or losses."""
        if self.low > 0:
            return "helps"
        return "hurts" if self.high < 0 else "undecided"

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest total that is left; the side's own end for both if none is."""
        if self.low <= self.high:
            return self.low, self.high
        return (self.low, self.low) if self.side == "helps" else (self.high, self.high)


def sequence_of(draws: Sequence[int], changed: int) -> GainSequence:
    """The sequence after draws, which end with the first that decides it."""
    sequence = GainSequence(changed, (), -changed, changed)
    for x in draws:
        if sequence.side == "undecided":
            sequence = sequence.after(x)
    return sequence
