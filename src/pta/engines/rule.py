"""The numbers and switches of PTA's recurrence, apart from any implementation of it."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pta.parameters import Order, choice, learning_order, number, switch

Anchor = Literal["recursive", "fixed"]
Weight = Literal["saturating", "raw"]

# Less than float64 can tell from zero beside one. Below it a class counts as untouched even without a mask,
# so that float32, whose squares end at 1e-38, and float64 agree on which classes have ever been touched.
SMALLEST_PROBABILITY = 1e-15
# Full replacement (raw weight of a sure sample) keeps this much of the past: nothing a float64 sum can see,
# but its logarithm is finite.
SMALLEST_DECAY = 1e-30


PARAMETERS: dict[str, Any] = {
    "h": number(20.0, 1e-3, 1e9, "how slowly prototypes move: a certain sample moves its class by 1 − e^(−1/h), Eq. 3"),
    "w": number(0.01, 0.0, 1.0, "share of the previous anchored prototype that stays at each refresh, Eq. 5"),
    "min_probability": number(0.1, 0.0, 1.0, "less probable classes learn nothing from a sample (paper: 0)"),
    "anchor": choice("recursive", Anchor, "what a refresh mixes P with: the previous R, or the text anchor (fixed)"),
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

    def log_decay(self, probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        """log(1−β): what a touched prototype keeps of its past, as a logarithm."""
        if self.weight == "saturating":
            return probabilities / -self.h
        with np.errstate(divide="ignore"):
            return np.maximum(np.log1p(-np.minimum(probabilities, 1.0)), np.log(SMALLEST_DECAY))
