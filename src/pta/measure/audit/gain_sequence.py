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

    What the total leaves for the other draws is limited to what they can be; see `is_possible`.
    """
    left = changed - np.arange(draws.shape[-1])
    mean = np.clip((total - (np.cumsum(draws, axis=-1) - draws)) / left, -1, 1)
    bets = sign * BETS.reshape(-1, *[1] * draws.ndim)
    logs = np.cumsum(np.log1p(bets * (draws - mean)), axis=-1)
    return np.logaddexp.reduce(logs, axis=0) - np.log(len(BETS))


def is_possible(draws: Numbers, total: int, changed: int) -> NDArray[np.bool_]:
    """Whether the draws that are left can still lead to a total, after each draw."""
    left = changed - 1 - np.arange(draws.shape[-1])
    return np.abs(total - np.cumsum(draws, axis=-1)) <= left


class GainSequence:
    """The interval of the total S of `changed` answers, narrowed by each draw.

    >>> sequence = GainSequence(changed=50)
    >>> for _ in range(12):
    ...     sequence.draw(1)
    >>> sequence.side, sequence.low, sequence.high
    ('helps', 3, 50)
    """

    def __init__(self, changed: int) -> None:
        self._changed = changed
        self.draws: list[int] = []
        self.low, self.high = -changed, changed  # of the totals that are still in; none are if low > high

    def draw(self, x: int) -> None:
        """Learn whether the next answer's adapted (1), zero-shot (−1) or neither or both (0) is right."""
        self.draws.append(x)
        total, left = sum(self.draws), self._changed - len(self.draws)
        if not left:
            self.low = self.high = total  # all are known
            return
        self.low, self.high = max(self.low, total - left), min(self.high, total + left)
        self.low += bisect_left(self._inside, True, key=lambda total: not self._is_out(total, 1))
        self.high = self.low - 1 + bisect_left(self._inside, True, key=lambda total: self._is_out(total, -1))

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

    @property
    def _inside(self) -> range:
        return range(self.low, self.high + 1)

    def _is_out(self, total: int, sign: int) -> bool:
        return bool(log_capital(np.array(self.draws, float), total, self._changed, sign)[-1] >= LARGEST)


def sequence_of(draws: Sequence[int], changed: int) -> GainSequence:
    """The sequence after draws, which end with the first that decides it."""
    sequence = GainSequence(changed)
    for x in draws:
        if sequence.side == "undecided":
            sequence.draw(x)
    return sequence
