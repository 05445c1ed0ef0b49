"""What PTA keeps: two prototypes per class and a few scalars."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Prototypes:
    """The state of the recurrence. Engines change the tensors in place.

    Attributes:
        knowledge: P, C×d, the decaying mean of what flowed into each class; zero until first touched.
        anchored: R, C×d unit rows, what samples are scored against; the text anchor at first.
        length: the length that belongs to R (C, float64): one where the rule renormalises, otherwise it
            shrinks with the un-normalised anchor, which the unit rows could not hold without underflow.
        touched: C flags: something has flowed into P.
        resting: C flags: refreshing R again would not move it (never touched, or arrived at P/‖P‖).
    """

    knowledge: Tensor
    anchored: Tensor
    length: Tensor
    touched: Tensor
    resting: Tensor

    @property
    def arrived_within(self) -> float:
        """How close to its limit P/‖P‖ an R counts as arrived: as close as rounding would bring it anyway."""
        return 1e-14 if self.anchored.dtype == torch.float64 else 1e-7

    @classmethod
    def fresh(cls, anchors: Tensor) -> "Prototypes":
        """Nothing learned yet."""
        classes = anchors.shape[0]
        return cls(
            knowledge=torch.zeros_like(anchors),
            anchored=anchors.clone(),
            length=torch.ones(classes, dtype=torch.float64, device=anchors.device),
            touched=torch.zeros(classes, dtype=torch.bool, device=anchors.device),
            resting=torch.ones(classes, dtype=torch.bool, device=anchors.device),
        )
