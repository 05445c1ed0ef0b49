"""What PTA keeps: two prototypes per class and a few scalars."""

from dataclasses import dataclass

import torch
from torch import Tensor


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
