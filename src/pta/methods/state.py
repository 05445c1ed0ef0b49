"""The declared state of an adapter: its pieces, which are replaced together or not at all, and snapshots of them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.plain import plain_list, plain_tensor
from pta.core.towers import Model
from pta.errors import InvalidParameter, StateMismatch, first_line, shown
from pta.methods.state_bounds import Bound

Initial = Callable[[ZeroShotClassifier, Mapping[str, Any], Model | None], Tensor]
"""The initial state, from classifier, parameters and model."""

_COUNTERS = ("seen", "without_gradient")  # of samples


def full(value: float, *shape: int, dtype: torch.dtype | None = None) -> Initial:
    """A start with one value everywhere, on the classifier's device and, unless another is given, in its precision."""
    return lambda classifier, *_: classifier.anchors.new_full(shape, value, dtype=dtype)


def text_anchors(classifier: ZeroShotClassifier, *_: object) -> Tensor:
    """A start at the text anchors."""
    return classifier.anchors.clone()


class Owner(Protocol):
    """What a piece of state knows of the adapter that has it."""

    name: ClassVar[str]
    bounded: ClassVar[bool]
    fixed_classes: ClassVar[str]
    longest_stretch: int | None
    classifier: ZeroShotClassifier
    parameters: dict[str, Any]
    model: Model | None

    def _contradiction(self, state: Mapping[str, Tensor]) -> str | None: ...

    def _state_replaced(self) -> None: ...


class Piece(NamedTuple):
    """A declared piece of state."""

    owner: Owner  # that has it as an attribute
    attribute: str
    initial: Initial  # how it starts
    per_class: bool  # its rows belong to the classes
    within: Bound  # allowed values

    @property
    def tensor(self) -> Tensor:
        """Its current value."""
        return getattr(self.owner, self.attribute)

    def fresh(self) -> Tensor:
        """Its value in a new adapter."""
        return self.initial(self.owner.classifier, self.owner.parameters, self.owner.model)

    def put(self, tensor: Tensor) -> None:
        """Set its value, in place if possible, so that a recorded step still finds it."""
        now = self.tensor
        if (now.shape, now.dtype, now.device) == (tensor.shape, tensor.dtype, tensor.device):
            now.copy_(tensor)
        else:
            setattr(self.owner, self.attribute, tensor)

    def require(self, given: object, name: str) -> Tensor:
        """The given value, checked; messages use the name."""
        now, tensor = self.tensor, plain_tensor(name, given, StateMismatch)
        same_shape = tensor.shape == now.shape if self.owner.bounded else tensor.ndim == now.ndim
        if not same_shape or tensor.dtype != now.dtype:
            found, expected = (f"{tuple(one.shape)} {one.dtype}" for one in (tensor, now))
            raise StateMismatch(f"{name} is {found}, expected {expected}")
        if not self.within.holds(tensor):
            raise StateMismatch(f"{name} must be {self.within.says}; the state is damaged")
        return tensor


class Pieces(dict[str, Piece]):
    """Every piece of state of an adapter by name, those of a method that it stands on included."""

    def tensors(self) -> dict[str, Tensor]:
        """The current values; the tensors themselves, not copies."""
        return {name: piece.tensor for name, piece in self.items()}

    @property
    def bytes(self) -> int:
        """Their memory in bytes, without the sample counters."""
        return sum(piece.tensor.nbytes for piece in self.values() if piece.attribute not in _COUNTERS)

    def put(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace all values by copies of these tensors."""
        copies = {
            name: tensors[name].to(piece.owner.classifier.anchors.device, copy=True) for name, piece in self.items()
        }
        for name, piece in self.items():
            piece.put(copies[name])
        self._tell_owners()

    def reset(self, classes: list[int] | None) -> None:
        """Go back to the start, or only the rows of some classes."""
        fresh = {name: piece.fresh() for name, piece in self.items() if classes is None or piece.per_class}
        for name, start in fresh.items():
            if classes is None:
                self[name].put(start)
            else:
                self[name].tensor[classes] = start[classes]
        self._tell_owners()

    def move(self, classifier: ZeroShotClassifier) -> None:
        """Move to the device of this classifier, which takes the place of the owners' one."""
        moved = {name: tensor.to(classifier.anchors.device) for name, tensor in self.tensors().items()}
        for name, piece in self.items():
            piece.owner.classifier = classifier
            piece.put(moved[name])
        self._tell_owners()

    def require(self, tensors: object, source: str, method: str) -> dict[str, Tensor]:
        """Tensors from outside, checked, each and together."""
        if not isinstance(tensors, Mapping) or set(tensors) != set(self):
            found = sorted(map(str, tensors)) if isinstance(tensors, Mapping) else type(tensors).__name__
            raise StateMismatch(f"{source} holds {found}, but {method} keeps {sorted(self)}")
        checked = {name: piece.require(tensors[name], f"{source}: {name}") for name, piece in self.items()}
        for owner in self._owners():
            own = {piece.attribute: checked[name] for name, piece in self.items() if piece.owner is owner}
            if contradiction := owner._contradiction(own):
                raise StateMismatch(f"{source}: {contradiction}; the state is damaged")
        return checked

    def _tell_owners(self) -> None:
        for owner in self._owners():
            owner._state_replaced()

    def _owners(self) -> list[Owner]:
        return list({id(piece.owner): piece.owner for piece in self.values()}.values())


@dataclass(frozen=True)
class Snapshot:
    """The state of an adapter, and its position."""

    method: str
    parameters: Mapping[str, Any]
    classifier: ZeroShotClassifier
    tensors: Mapping[str, Tensor]

    def require_for(self, method: str, parameters: Mapping[str, Any], classifier: ZeroShotClassifier) -> None:
        """Refuse a snapshot of another method, or with other parameters or another classifier."""
        described = isinstance(self.method, str) and isinstance(self.parameters, Mapping)
        if not described or (self.method, self.parameters) != (method, parameters):
            raise StateMismatch(f"the snapshot is of {shown(self.method)} with other parameters than this {method}")
        theirs = self.classifier
        if theirs is classifier:
            return
        if not isinstance(theirs, ZeroShotClassifier) or theirs.fingerprint != classifier.fingerprint:
            raise StateMismatch("the snapshot is of an adapter with another classifier")


def device_named(name: object) -> torch.device:
    """A device of this machine with memory, by its name."""
    try:
        device = torch.empty(0, device=name).device  # type: ignore[call-overload]
    except Exception as error:  # every kind of device fails in its own way
        raise InvalidParameter(f"there is no device {shown(name)}: {first_line(error)}") from None
    if device.type == "meta":
        raise InvalidParameter("an adapter needs a device with memory, not meta")
    return device


def class_numbers(given: Iterable[int], classes: int) -> list[int]:
    """A caller's numbers of classes, if there are such classes."""
    numbers = plain_tensor("classes", given, InvalidParameter).tolist() if isinstance(given, Tensor) else given
    rows = plain_list(numbers)
    if rows is None:
        raise InvalidParameter(f"classes must be a list of class numbers, for example [0, 2], got {shown(given)}")
    for row in rows:
        if isinstance(row, bool) or not isinstance(row, Integral) or not 0 <= int(row) < classes:
            raise InvalidParameter(f"class {shown(row)} does not exist; classes are 0…{classes - 1}")
    return [int(row) for row in rows]
