"""What a stretch of stream does to the prototypes of the classes it touches, as an affine map per class.

P ← decay·P + offset, whatever P was before. Without renormalising, the un-normalised R = length·direction is affine as
well: R ← wⁿ·R + from_knowledge·P + offset. Maps of consecutive stretches compose.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.engines.rule import Rule
from pta.engines.touches import Touches

Matrix = NDArray[np.float64]


class AnchoredMap(NamedTuple):
    """What goes into the un-normalised R of K classes, beside wⁿ times the one before."""

    from_knowledge: Tensor  # K, the share of the P before
    offset: Tensor  # K×d, what the samples themselves add


@dataclass(frozen=True)
class AffineMap:
    """The map of `count` consecutive samples, for the K classes that they touch; all of it in main memory."""

    count: int
    classes: Tensor  # K class numbers, ascending
    log_decay: Tensor  # K, logarithm of what is kept of the P before
    offset: Tensor  # K×d, what the samples themselves leave in P
    spread: Tensor  # K, an upper bound of the angle between the offset and any feature that went into it
    anchored: AnchoredMap | None = None  # the map of the un-normalised R, for rules that fade linearly

    @classmethod
    def of(cls, features: Tensor, touches: Touches, rule: Rule) -> "AffineMap":
        """The map of a batch."""
        classes, column = np.unique(touches.classes, return_inverse=True)
        log_keep = np.zeros((len(features), len(classes)))
        log_keep[touches.samples, column] = rule.log_decay(touches.probabilities)
        learned = -np.expm1(log_keep)
        since = np.cumsum(log_keep[::-1], axis=0)[::-1]
        kept_until_end = np.exp(np.minimum(since - log_keep, 0.0))

        def total(weights: Matrix) -> Tensor:
            return (torch.from_numpy(weights.T.copy()).to(features) @ features).cpu()

        offset = total(learned * kept_until_end)
        cosines = unit(features).cpu() @ unit(offset).T
        smallest = np.where(log_keep < 0, cosines.double().numpy(), 1.0).min(axis=0, initial=1.0)
        spread = torch.from_numpy(np.arccos(np.clip(smallest, -1.0, 1.0)))
        anchored = None
        if rule.fades_linearly:
            shares, before = _shares_of_anchored(log_keep, rule)
            anchored = AnchoredMap(torch.from_numpy(before), total(learned * shares))
        log_decay = torch.from_numpy(log_keep.sum(axis=0))
        return cls(len(features), torch.from_numpy(classes), log_decay, offset, spread, anchored)

    def followed_by(self, then: "AffineMap", rule: Rule) -> "AffineMap":
        """The map of both stretches."""
        classes = torch.from_numpy(np.union1d(self.classes.numpy(), then.classes.numpy()))
        a, b = self.for_classes(classes, rule), then.for_classes(classes, rule)
        dtype = a.offset.dtype
        offset = (b.log_decay.exp()[:, None] * a.offset + b.offset).to(dtype)
        anchored = None
        if a.anchored and b.anchored:
            fading, share = rule.w**b.count, b.anchored.from_knowledge
            added = fading * a.anchored.offset.double() + share[:, None] * a.offset + b.anchored.offset
            anchored = AnchoredMap(fading * a.anchored.from_knowledge + share * a.log_decay.exp(), added.to(dtype))
        turned = [torch.where(part.log_decay < 0, angle(part.offset, offset) + part.spread, 0.0) for part in (a, b)]
        spread = torch.maximum(*turned).clamp(max=np.pi)
        return AffineMap(a.count + b.count, classes, a.log_decay + b.log_decay, offset, spread, anchored)

    def for_classes(self, classes: Tensor, rule: Rule) -> "AffineMap":
        """The same map with a row for each of the classes, which contain its own; the others keep their P."""
        row = torch.searchsorted(classes, self.classes)

        def spread_out(rows: Tensor, otherwise: float = 0.0) -> Tensor:
            return rows.new_full((len(classes), *rows.shape[1:]), otherwise).index_copy_(0, row, rows)

        anchored = None
        if self.anchored:
            share = spread_out(self.anchored.from_knowledge, 1 - rule.w**self.count)
            anchored = AnchoredMap(share, spread_out(self.anchored.offset))
        log_decay, offset, spread = map(spread_out, (self.log_decay, self.offset, self.spread))
        return AffineMap(self.count, classes, log_decay, offset, spread, anchored)


def angle(a: Tensor, b: Tensor) -> Tensor:
    """The angle between rows in float64; π where a row has no direction."""
    a, b = unit(a.double()), unit(b.double())
    between = 2 * torch.atan2(torch.linalg.vector_norm(a - b, dim=1), torch.linalg.vector_norm(a + b, dim=1))
    return torch.where(a.any(dim=1) & b.any(dim=1), between, np.pi)


def unit(rows: Tensor, otherwise: Tensor | float = 0.0) -> Tensor:
    """Rows scaled to unit length; those of length zero are replaced."""
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return torch.where(norms > 0, rows / norms, otherwise)


def _shares_of_anchored(log_keep: Matrix, rule: Rule) -> tuple[Matrix, Matrix]:
    """How much of P after each sample, and of P before the first, is in the un-normalised R after the last."""
    keep, shares = np.exp(log_keep), np.empty_like(log_keep)
    share, fading = np.zeros(log_keep.shape[1]), 1 - rule.w
    for sample in reversed(range(len(log_keep))):
        share = share + fading
        shares[sample] = share
        share = share * keep[sample]
        fading *= rule.w
    return shares, share
