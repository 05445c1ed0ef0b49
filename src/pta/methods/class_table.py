"""A state per class: whether it was updated, from how many samples, and how far its prototype is from the text."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.errors import StateMismatch
from pta.methods.adapter import Adapter


class ClassRow(NamedTuple):
    """One class of a state."""

    name: str
    learned: bool  # its count, or else its prototype or what is kept of it, is not that of a new adapter
    samples: float | None  # it has learned from, or the sum of their weights; None if the method keeps no count
    cosine: float | None  # of its prototype and its text anchor; None if it has no prototype


def class_table(adapter: Adapter) -> list[ClassRow]:
    """A row per class."""
    names = adapter.classifier.class_names
    return list(map(ClassRow, names, _learned(adapter), _counts(adapter), _cosines(adapter)))


def _learned(adapter: Adapter) -> list[bool]:
    decisive = adapter.counts_in or adapter.prototypes_in
    moved = torch.zeros_like(adapter.classifier.anchors[:, 0], dtype=torch.bool)
    for name, piece in adapter._pieces():
        if name == decisive or (not decisive and piece.per_class):
            moved |= (piece.tensor != piece.fresh()).reshape(len(moved), -1).any(dim=1)
    return moved.tolist()


def _counts(adapter: Adapter) -> list[float | None]:
    if not adapter.counts_in:
        return [None] * adapter.classifier.classes
    piece = dict(adapter._pieces())[adapter.counts_in]
    return (piece.tensor - piece.fresh()).double().tolist()


def _cosines(adapter: Adapter) -> list[float | None]:
    anchors = adapter.classifier.anchors.double()
    if not adapter.prototypes_in:
        return [None] * len(anchors)
    rows = normalize(adapter.state()[adapter.prototypes_in].double(), dim=1)
    found = zip((rows * anchors).sum(dim=1).tolist(), rows.any(dim=1).tolist(), strict=True)
    return [cosine if exists else None for cosine, exists in found]


def class_prototypes(adapter: Adapter) -> Tensor:
    """The prototype of each class at unit length, C×d; the text anchor of a class that has none yet."""
    if not adapter.prototypes_in:
        raise StateMismatch(f"{adapter.name} keeps no prototype per class that could be exported")
    rows, anchors = adapter.state()[adapter.prototypes_in], adapter.classifier.anchors
    unit = normalize(rows.double(), dim=1)
    return torch.where(unit.any(dim=1, keepdim=True), unit, anchors.double()).to(anchors.dtype)
