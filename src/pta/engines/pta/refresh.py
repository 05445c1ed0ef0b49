"""Refreshing R towards a P that stands still, in scalars alone.

Between two touches of a class, R stays in the plane of R and P. There it is two numbers: its part along
P/‖P‖, and the share that is left of the R it started from.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pta.engines.pta.rule import Rule

Scalars = NDArray[np.float64]


@dataclass(frozen=True)
class Refreshed:
    """R after j = 0, 1, … refreshes is from_r[j]·R + from_p[j]·P, and its length is length[j], for every class.

    The last row holds for every later j, too: all classes have arrived at P there, or no more rows were asked for.
    """

    from_r: Scalars
    from_p: Scalars
    length: Scalars
    arrived: NDArray[np.bool_]

    @property
    def steps(self) -> int:
        """The largest j that has a row of its own."""
        return len(self.from_r) - 1


def refresh(
    overlap: Scalars, square: Scalars, length: Scalars, steps: int, rule: Rule, arrived_within: float
) -> Refreshed:
    """Refresh up to `steps` times, given ⟨R,P⟩, ‖P‖² and the length that belongs to the unit vectors R.

    Where P = 0, R stays as it is (and fades: `Refreshed.length` has no row for that); so does an R whose
    mixture with P is exactly zero.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        norm = np.sqrt(square)
        cosine = np.where(norm > 0, np.clip(overlap / norm, -1, 1), 1.0)
        sine = np.sqrt(1 - cosine * cosine)
        push = norm * (1 - rule.w)
        goal = 1.0 if rule.renormalise else norm
        along, share = [cosine * length], [length]
        for step in range(1, steps + 1):
            along.append(along[-1] * rule.w + push)
            share.append(share[-1] * rule.w)
            if rule.renormalise:
                size = np.hypot(along[-1], share[-1] * sine)
                along[-1] /= size
                share[-1] /= size
            if step % 3 == 0 and np.all(_arrived(along[-1], share[-1], goal, arrived_within) | (norm == 0)):
                break
        alongs, shares = np.stack(along), np.stack(share)
        size = np.hypot(alongs, shares * sine)
        moved = (size > 0) & (norm > 0)
        from_r = np.where(moved, shares / size, 1.0)
        from_p = np.where(moved, (alongs / size - from_r * cosine) / norm, 0.0)
        arrived = _arrived(alongs, shares, goal, arrived_within)
    return Refreshed(from_r, from_p, np.ones_like(size) if rule.renormalise else size, arrived)


def _arrived(along: Scalars, share: Scalars, goal: Scalars | float, within: float) -> NDArray[np.bool_]:
    return (share <= within * along) & (np.abs(along - goal) <= within * goal)
