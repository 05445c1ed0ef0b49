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

from pta.engines.pta.rule import Rule
from pta.engines.pta.touches import Touches

Matrix = NDArray[np.float64]
Scalars = NDArray[np.float64]

_TOUCHES_AT_ONCE = 256  # what the caches hold
_DENSE = 1 / 16  # the share of touched pairs of sample and class from which a product of matrices is faster


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
        classes, begin, column = np.unique(touches.classes, return_index=True, return_inverse=True)
        log_keep = rule.log_decay(touches.probabilities)
        log_decay = np.bincount(column, log_keep, minlength=len(classes)).astype(np.float64)  # integers if empty
        # Touches are ordered by class, then by time: what is kept of one until the end is what all later ones keep.
        so_far, learned = np.cumsum(log_keep), -np.expm1(log_keep)
        later = (so_far[begin] - log_keep[begin] + log_decay)[column] - so_far
        touched = _Touched(features, touches.samples, column, begin)
        offset = touched.total(learned * np.exp(np.minimum(later, 0.0)))
        spread = torch.from_numpy(np.arccos(np.clip(touched.smallest_cosine(offset), -1.0, 1.0)))
        anchored = None
        if rule.fades_linearly:
            shares, before = _shares_of_anchored(touched.dense(log_keep), rule)
            anchored = AnchoredMap(torch.from_numpy(before), touched.total(learned * shares[touches.samples, column]))
        return cls(len(features), torch.from_numpy(classes), torch.from_numpy(log_decay), offset, spread, anchored)

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


@dataclass(frozen=True)
class _Touched:
    """B features, and the E pairs of a sample and one of K classes, ordered by class."""

    features: Tensor
    samples: NDArray[np.int64]
    column: NDArray[np.int64]
    begin: NDArray[np.int64]  # K, where the pairs of a class begin

    def dense(self, values: Scalars) -> Matrix:
        """Values of the pairs as B×K, zero elsewhere."""
        matrix = np.zeros((len(self.features), len(self.begin)))
        matrix[self.samples, self.column] = values
        return matrix

    def total(self, weights: Scalars) -> Tensor:
        """The sum of weight·feature for each class, K×d, in main memory."""
        F = self.features
        if self._is_dense:
            return (torch.from_numpy(self.dense(weights).T.copy()).to(F) @ F).cpu()
        sums = F.new_zeros(len(self.begin), F.shape[1], dtype=torch.float64)
        for part in self._parts():
            share = torch.from_numpy(weights[part, None]).to(F.device)
            sums.index_add_(0, torch.from_numpy(self.column[part]).to(F.device), share * F[self.samples[part]])
        return sums.to(F.dtype).cpu()

    def smallest_cosine(self, directions: Tensor) -> Scalars:
        """The smallest cosine between the direction of a class and the features that touch it, K."""
        F, unit_rows = self.features.cpu(), unit(directions)
        if self._is_dense:
            products = (F @ unit_rows.T).numpy()[self.samples, self.column]
        else:
            parts = [(F[self.samples[part]] * unit_rows[self.column[part]]).sum(dim=1) for part in self._parts()]
            products = torch.cat([*parts, F.new_zeros(0)]).numpy()
        cosines = products.astype(np.float64) / torch.linalg.vector_norm(F, dim=1).numpy()[self.samples]
        return np.minimum.reduceat(cosines, self.begin) if len(self.begin) else np.zeros(0)

    @property
    def _is_dense(self) -> bool:
        return len(self.samples) > _DENSE * len(self.features) * len(self.begin)

    def _parts(self) -> list[slice]:
        return [slice(at, at + _TOUCHES_AT_ONCE) for at in range(0, len(self.samples), _TOUCHES_AT_ONCE)]


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
