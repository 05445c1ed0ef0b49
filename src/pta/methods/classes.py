"""The classes of a state: a table of what each has learned, and adding one, which starts at its text anchor."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pta.core.classifier import ZeroShotClassifier
from pta.core.plain import plain_tensor
from pta.errors import InvalidParameter, StateMismatch, nearest, shown
from pta.methods.adapter import Adapter
from pta.methods.state import DISTRIBUTIONS, Piece
from pta.methods.state_file import SAME_DIRECTION


class ClassRow(NamedTuple):
    """One class of a state."""

    name: str
    learned: bool  # its count, or else its prototype or what is kept of it, is not that of a new adapter
    samples: float | None  # it has learned from, or the sum of their weights; None if the method keeps no count
    cosine: float | None  # of its prototype and its text anchor; None if it has no prototype


def class_table(adapter: Adapter) -> list[ClassRow]:
    """A row per class."""
    classifier, decisive = adapter.classifier, adapter.counts_in or adapter.prototypes_in
    moved = torch.zeros_like(classifier.anchors[:, 0], dtype=torch.bool)
    for name, piece in adapter.pieces.items():
        if name == decisive or (not decisive and piece.per_class):
            moved |= (piece.tensor != piece.fresh()).reshape(len(moved), -1).any(dim=1)
    return list(
        map(ClassRow, classifier.class_names, moved.tolist(), class_weights(adapter), cosines_with_text(adapter))
    )


def class_weights(adapter: Adapter) -> list[float | None]:
    """How many samples each class has learned from, or the sum of their weights."""
    if not adapter.counts_in:
        return [None] * adapter.classifier.classes
    piece = adapter.pieces[adapter.counts_in]
    weights: list[float | None] = (piece.tensor - piece.fresh()).double().tolist()
    return weights


def cosines_with_text(adapter: Adapter) -> list[float | None]:
    """The cosine of each class's prototype with its text anchor."""
    if not adapter.prototypes_in:
        return [None] * adapter.classifier.classes
    rows, anchors = adapter.state()[adapter.prototypes_in], adapter.classifier.anchors
    lengths = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    products = (rows * anchors).sum(dim=1, dtype=torch.float64)
    found = zip((products / lengths).tolist(), lengths.tolist(), strict=True)
    return [cosine if length else None for cosine, length in found]


def class_prototypes(adapter: Adapter) -> Tensor:
    """The prototype of each class at unit length, C×d; the text anchor of a class that has none yet."""
    if not adapter.prototypes_in:
        raise StateMismatch(f"{adapter.name} keeps no prototype per class that could be exported")
    rows, anchors = adapter.state()[adapter.prototypes_in], adapter.classifier.anchors
    unit = normalize(rows.double(), dim=1)
    return torch.where(unit.any(dim=1, keepdim=True), unit, anchors.double()).to(anchors.dtype)


def add_class(adapter: Adapter, name: str, anchor: object) -> Adapter:
    """A new adapter with one more class at the end, which has the given text anchor. The old adapter does not change.

    It is refused for a method whose state depends on the number of classes (`Adapter.fixed_classes`). A prior over the
    classes gives the new one an equal share.
    """
    require_growing(adapter)
    old = adapter.classifier
    require_new_class(name, old.class_names)
    row = plain_tensor("the anchor", anchor, InvalidParameter).to(old.anchors)
    if row.shape != (old.dim,):
        raise InvalidParameter(f"the anchor must have {old.dim} numbers, got shape {tuple(row.shape)}")
    row = row / torch.linalg.vector_norm(row)  # so that the anchors of the others keep their bits
    bank = old.prompt_features
    if bank is not None:  # the anchor stands for each prompt of the new class
        bank = torch.cat([bank, row.expand(1, *bank.shape[1:])])
    names, anchors = [*old.class_names, name], torch.cat([old.anchors, row[None]])
    new = ZeroShotClassifier(anchors, names, old.scale, old.bias, prompt_features=bank)
    grown = type(adapter)(new, model=adapter.model, checked=adapter.parameters)
    take_state(grown, adapter)
    return grown


def require_growing(adapter: Adapter) -> None:
    """Refuse a method whose state depends on the number of classes."""
    for piece in adapter.pieces.values():
        if piece.per_class and piece.owner.fixed_classes:
            raise StateMismatch(f"no class can be added to a state of {piece.owner.name}: {piece.owner.fixed_classes}")


def take_state(grown: Adapter, adapter: Adapter) -> None:
    """Give a new adapter, which has more classes at the end, the state of another one."""
    before = adapter.state()
    grown._put({key: _with_rows(before[key], key, piece) for key, piece in grown.pieces.items()})
    grown.refresh_state()
    added = grown.classifier.class_names[adapter.classifier.classes :]
    grown._put_checked(grown.state(), f"the state with {shown(', '.join(added))}")


def require_new_class(name: str, class_names: Sequence[str]) -> None:
    """Refuse a name that a class has already."""
    if name in class_names:
        raise InvalidParameter(f"there is a class {shown(name)} already")


def _with_rows(old: Tensor, name: str, new: Piece) -> Tensor:
    """A piece of state with what a new adapter has for the classes that are added."""
    fresh = new.tensor
    if new.per_class and fresh.shape[1:] == old.shape[1:]:
        return torch.cat([old, fresh[len(old) :]])
    if fresh.shape == old.shape:
        return old
    if new.within is DISTRIBUTIONS and old.ndim == 1:
        added = fresh[len(old) :]
        return torch.cat([old * (1 - added.sum()), added])
    if fresh.ndim == old.ndim == 1:
        return torch.cat([old, fresh[len(old) :]])
    raise StateMismatch(f"no class can be added to a state of {new.owner.name}: {name} depends on how many there are")


def anchor_from(source: ZeroShotClassifier, name: str, classifier: ZeroShotClassifier) -> Tensor:
    """The anchor of a class in another classifier, if that is of the same model and templates.

    Both must have a class in common, by whose anchors this is recognised.
    """
    rows = {one: number for number, one in enumerate(source.class_names)}
    if name not in rows:
        raise InvalidParameter(f"no text feature for {shown(name)}; {nearest(name, rows)}")
    if source.dim != classifier.dim:
        raise StateMismatch(f"the text feature has {source.dim} dimensions, those of the state have {classifier.dim}")
    shared = [number for number, one in enumerate(classifier.class_names) if one in rows]
    if not shared:
        raise StateMismatch("no class of the state is among the text features, so their model cannot be compared")
    theirs = source.anchors[[rows[classifier.class_names[number]] for number in shared]].to(classifier.anchors)
    cosines = (theirs * classifier.anchors[shared]).sum(dim=1)
    if float(cosines.min()) < SAME_DIRECTION:
        other = classifier.class_names[shared[int(cosines.argmin())]]
        raise StateMismatch(
            f"the state has another text feature for {shown(other)}: use the model and templates it was learned with"
        )
    return source.anchors[rows[name]]
