"""The order statistic of the local prior (`engines/local_prior.py`), from parts of a block.

The running mean e_f is only scaled at the end of a block: within it, sample i counts with (8/7)ⁱ⁺¹/8, and what follows
from the sum is multiplied by (7/8)ⁱ. The mean over the stream follows from the sum of all probabilities.
"""

import numpy as np
from numpy.typing import NDArray

from pta.engines.local_prior import FAST, FORGET, START, WEIGHT
from pta.monitor.memory import Memory
from pta.monitor.scores import BLOCK

_TURNS = np.arange(BLOCK)
_AGED = (1 - FAST) ** _TURNS
_GROWN = FAST / (1 - FAST) ** (_TURNS + 1)
_INTO = np.stack([np.ones(BLOCK), _GROWN])  # the parts of samples in the two sums
_KEPT = (1 - FORGET) ** _TURNS[::-1]
_BEFORE = np.tril(np.ones((BLOCK, BLOCK), np.bool_), -1)


def agreements(memory: Memory, s: NDArray[np.floating], start: int) -> NDArray[np.floating]:
    """Of the next samples of a block, B×C: with the sum of those before, and with e_f, B×2; then count them."""
    count, sums = len(s), memory.pending_sums[1:]
    into = _INTO[:, start : start + count].astype(s.dtype)
    before = (memory.totals[1:] + sums).astype(s.dtype)
    products = s @ np.concatenate([s, before]).T  # s @ s.T alone takes three times as long
    sums += into @ s
    return products[:, count:] + (products[:, :count] * _BEFORE[:count, :count]) @ into.T


def count_order(memory: Memory, agreed: NDArray[np.float64]) -> None:
    """Count the agreements of a full block in A and B, and its samples in e_f and in the other totals."""
    classes, age = len(memory.answered), int(memory.counts[0]) - BLOCK + _TURNS
    with_total, with_fast = agreed.T
    new = (1 - FAST) ** age
    found = _AGED * with_fast - new / classes
    by_chance = (1 - new) * (START / classes + with_total) / (START + age)
    memory.prior_sums *= (1 - FORGET) ** BLOCK
    memory.prior_sums += WEIGHT * (np.stack([found, by_chance]) @ _KEPT)
    memory.totals += memory.pending_sums
    memory.totals[2] *= (1 - FAST) ** BLOCK
