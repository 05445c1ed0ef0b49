"""The numbers and switches of PTA's recurrence, apart from any implementation of it."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pta.core.parameters import Order, choice, learning_order, number, switch

Anchor = Literal["recursive", "fixed"]
Weight = Literal["saturating", "raw"]

# Less than float64 can tell from zero beside one. Below it a class counts as untouched even without a mask,
# so that float32, whose squares end at 1e-38, and float64 agree on which classes have ever been touched.
SMALLEST_PROBABILITY = 1e-15
# Full replacement (raw weight of a sure sample) keeps this much of the past: nothing a float64 sum can see,
# but its logarithm is finite.
SMALLEST_DECAY = 1e-30
# A segment replays as many samples as the recursive anchor needs to forget all but this share of where it started.
FORGOTTEN = 1e-7
_LONGEST_TAIL = 1024


PARAMETERS: dict[str, Any] = {
    "h": number(
        20.0, 1e-3, 1e9, "larger h learns more slowly: a sample of probability 1 has weight 1 − e^(−1/h), Eq. 3"
    ),
    "w": number(0.01, 0.0, 1.0, "weight of the previous anchored prototype at each refresh, Eq. 5"),
    "min_probability": number(0.1, 0.0, 1.0, "classes with a lower probability learn nothing from a sample (paper: 0)"),
    "anchor": choice("recursive", Anchor, "mix P with the previous R (recursive) or the text anchor (fixed)"),
    "order": learning_order("update-first"),
    "weight": choice("saturating", Weight, "β = 1 − e^(−s/h), or β = s (raw, an ablation of the paper)"),
    "renormalise": switch(True, "scale R to unit length at every refresh (paper: False, only its direction is used)"),
}


@dataclass(frozen=True)
class Rule:
    """How a sample with class probabilities s moves the prototypes.

    For every class c with s_c ≥ min_probability, the knowledge prototype takes a share β_c of the feature:
    P_c ← (1−β_c)·P_c + β_c·f, where β_c = 1−e^(−s_c/h) ("saturating") or s_c ("raw").
    Then every class refreshes its anchored prototype: R_c ← w·A_c + (1−w)·P_c, where A_c is the previous
    R_c ("recursive") or the text anchor ("fixed"), scaled to unit length if `renormalise`.
    The sample is scored by R after ("update-first") or before ("predict-first") it is learned.
    """

    h: float
    w: float
    min_probability: float
    anchor: Anchor
    order: Order
    weight: Weight
    renormalise: bool

    def __post_init__(self) -> None:
        for name, parameter in PARAMETERS.items():
            object.__setattr__(self, name, parameter.check(name, getattr(self, name)))

    @property
    def threshold(self) -> float:
        """The smallest probability that lets a class learn, as float32 holds it."""
        return float(np.float32(max(self.min_probability, SMALLEST_PROBABILITY)))

    @property
    def fades_linearly(self) -> bool:
        """Whether the un-normalised R is a linear function of R and P before."""
        return self.anchor == "recursive" and not self.renormalise

    @property
    def tail(self) -> int:
        """How many samples a segment keeps to replay: after so many, R does not depend on what it was before.

        A refresh keeps w/‖w·R+(1−w)·P‖ of the previous R, and a touched P is at least as long as its smallest step.
        Only a renormalised recursive anchor needs this; the others are exact without.

        >>> Rule(20.0, 0.01, 0.1, "recursive", "update-first", "saturating", renormalise=True).tail
        41
        """
        if self.w == 0 or self.anchor == "fixed" or not self.renormalise:
            return 1
        smallest_step = -math.expm1(float(self.log_decay(np.array(self.threshold))))
        rate = math.log1p((1 - self.w) * smallest_step / self.w)
        needed = -math.log(FORGOTTEN)
        return _LONGEST_TAIL if rate * _LONGEST_TAIL <= needed else max(1, math.ceil(needed / rate))

    def log_decay(self, probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        """log(1−β): what a touched prototype keeps of its past, as a logarithm."""
        if self.weight == "saturating":
            return probabilities / -self.h
        with np.errstate(divide="ignore"):
            return np.maximum(np.log1p(-np.minimum(probabilities, 1.0)), np.log(SMALLEST_DECAY))
