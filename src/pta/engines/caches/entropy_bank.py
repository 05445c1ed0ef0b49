"""A bank of the L samples of least entropy per class, which ADAPT and OGA keep.

A sample takes the slot of the largest entropy of its class if its own is smaller (`BankEntry`). That reads no number on
the host, so that a GPU can record it. Where numbers are host-readable, the samples that enter are known beforehand
(`admissions`), and those that come between two of them can be scored together.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pta.engines.zero_shot import ZeroShot

# Entropies closer than this are equal: the same sample's differ by some 1e-13 between one batch and another, which must
# not decide whether it enters again.
_SAME_ENTROPY = 1e-12


@dataclass(frozen=True)
class BankEntry:
    """A sample that is offered to a bank. If it does not enter, no method of it writes anything."""

    own: Tensor  # 1, its class
    slot: Tensor  # 1, the first of the largest entropy
    enters: Tensor  # 1, whether its own entropy is smaller

    @classmethod
    def of(cls, entropies: Tensor, zero_shot: ZeroShot, sample: int) -> "BankEntry":
        """The entry of a sample to C×L slots; the entropy that stands in an empty slot bounds what may enter it."""
        own, entropy = zero_shot.labels[sample, None], zero_shot.entropy[sample, None]
        largest, slot = entropies[own].max(dim=1)
        return cls(own, slot, entropy < largest - _SAME_ENTROPY)

    def put(self, slots: Tensor, new: Tensor) -> None:
        """Write to the slot taken, of C×L×…."""
        slots[self.own, self.slot] = torch.where(self.enters, new.to(slots.dtype), slots[self.own, self.slot])

    def put_class(self, rows: Tensor, new: Tensor, *, only_if: Tensor | bool = True) -> None:
        """Write to the row of the class, of C×…, if a further condition holds, too."""
        rows[self.own] = torch.where(self.enters & only_if, new.to(rows.dtype), rows[self.own])


def admissions(entropies: Tensor, labels: Tensor, new: Tensor) -> list[int]:
    """Which of B samples, with labels and new entropies, will enter a bank with entropies C×L; changes nothing."""
    rows = entropies.numpy().copy()
    entered = []
    for sample, (own, entropy) in enumerate(zip(labels.tolist(), new.tolist(), strict=True)):
        slot = rows[own].argmax()
        if entropy < rows[own, slot] - _SAME_ENTROPY:
            rows[own, slot] = entropy
            entered.append(sample)
    return entered
