"""PTA's recurrence apart from any implementation: its numbers and switches, and the state that it changes."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.core.parameters import Order, choice, learning_order, number, switch

Anchor = Literal["recursive", "fixed"]
Weight = Literal["saturating", "raw"]

# Less than float64 can tell from zero beside one. Below it a class counts as untouched even without a mask,
# so that float32, whose squares end at 1e-38, and float64 agree on which classes have ever been touched.
SMALLEST_PROBABILITY = 1e-15
# Full replacement (raw weight of a sure sample) keeps this much of the past: nothing a float64 sum can see,
# but its logarithm is finite.
SMALLEST_DECAY = 1e-30
# float32 logits of size 100 are off by up to 5e-5, and so, relatively, are their probabilities. Closer to
# the threshold than this, a sample is scored again in float64, so that the order of additions in a matrix
# product (which differs between a batch and a single sample) never decides whether a class learns.
DOUBT = 2e-4
# A segment replays as many samples as the recursive anchor needs to forget all but this share of where it started.
FORGOTTEN = 1e-7
_LONGEST_TAIL = 1024


LABEL_WEIGHTS = 1e-3, 100.0  # from, to

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


@dataclass
class Prototypes:
    """The state of the recurrence. Engines change the tensors in place."""

    knowledge: Tensor  # P, C×d, the decaying mean of what flowed into each class; zero until first touched
    anchored: Tensor  # R, C×d unit rows, what samples are scored against; the text anchor at first
    # The length that belongs to R (C, float64): one where the rule renormalises, otherwise it shrinks with the
    # un-normalised anchor, which the unit rows could not hold without underflow.
    length: Tensor
    touched: Tensor  # C flags: something has flowed into P
    resting: Tensor  # C flags: refreshing R again would not move it (never touched, or arrived at P/‖P‖)

    def clone(self) -> "Prototypes":
        """An independent copy."""
        return Prototypes(*(tensor.clone() for tensor in vars(self).values()))

    @property
    def arrived_within(self) -> float:
        """How close to its limit P/‖P‖ an R counts as arrived: as close as rounding would bring it anyway."""
        return 1e-14 if self.anchored.dtype == torch.float64 else 1e-7

    @classmethod
    def fresh(cls, anchors: Tensor) -> "Prototypes":
        """Nothing learned yet."""
        untouched = anchors.new_zeros(len(anchors), dtype=torch.bool)
        length = anchors.new_ones(len(anchors), dtype=torch.float64)
        return cls(torch.zeros_like(anchors), anchors.clone(), length, untouched, ~untouched)
