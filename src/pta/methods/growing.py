"""Adding a class to a state: it starts at its text anchor, and the other classes keep their state."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.parameters import require_text
from pta.core.plain import plain_tensor
from pta.errors import InvalidParameter, StateMismatch, nearest, shown
from pta.methods.adapter import Adapter, Piece
from pta.methods.state_bounds import DISTRIBUTIONS
from pta.methods.state_file import SAME_DIRECTION


def add_class(adapter: Adapter, name: str, anchor: object) -> Adapter:
    """A new adapter with one more class at the end, which has the given text anchor. The old adapter does not change.

    It is refused for a method whose state depends on the number of classes (`Adapter.fixed_classes`). A prior over the
    classes gives the new one an equal share.
    """
    for _, piece in adapter._pieces():
        if piece.per_class and piece.owner.fixed_classes:
            raise StateMismatch(f"no class can be added to a state of {piece.owner.name}: {piece.owner.fixed_classes}")
    old = adapter.classifier
    require_new_class(name, old.class_names)
    row = plain_tensor("the anchor", anchor, InvalidParameter).to(old.anchors)
    if row.shape != (old.dim,):
        raise InvalidParameter(f"the anchor must have {old.dim} numbers, got shape {tuple(row.shape)}")
    row = row / torch.linalg.vector_norm(row)  # so that the anchors of the others keep their bits
    new = ZeroShotClassifier(torch.cat([old.anchors, row[None]]), [*old.class_names, name], old.scale, old.bias)
    grown = type(adapter)(new, model=adapter.model, **adapter.parameters)
    before = adapter.state()
    grown._put({key: _with_row(before[key], key, piece) for key, piece in grown._pieces()})
    grown.refresh_state()
    grown._put_checked(grown.state(), f"the state with {shown(name)}")
    return grown


def require_new_class(name: str, class_names: Sequence[str]) -> None:
    """Refuse a name that a class has already."""
    if require_text("the name of a class", name) in class_names:
        raise InvalidParameter(f"there is a class {shown(name)} already")


def _with_row(old: Tensor, name: str, new: Piece) -> Tensor:
    """A piece of state with what a new adapter has for the class that is added."""
    fresh = new.tensor
    if new.per_class and fresh.shape[1:] == old.shape[1:]:
        return torch.cat([old, fresh[len(old) :]])
    if fresh.shape == old.shape:
        return old
    if new.within is DISTRIBUTIONS and old.ndim == 1:
        return torch.cat([old * (1 - fresh[-1]), fresh[-1:]])
    if new.owner.refresh_interval is not None:
        return fresh  # which `refresh_state` computes anew
    raise StateMismatch(f"no class can be added to a state of {new.owner.name}: {name} depends on how many there are")


def anchor_from(source: ZeroShotClassifier, name: str, classifier: ZeroShotClassifier) -> Tensor:
    """The anchor of a class in another classifier, if that is of the same model and templates.

    Both must have a class in common, by whose anchors this is recognised.
    """
    rows = {one: number for number, one in enumerate(source.class_names)}
    if require_text("the name of a class", name) not in rows:
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
