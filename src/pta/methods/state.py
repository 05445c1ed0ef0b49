"""The declared state of an adapter: its pieces, which are replaced together or not at all, and snapshots of them.

The bound of a piece has its allowed values, which are checked whenever it comes from a file, a snapshot or a pickle. It
contains everything that steps can lead to, rounding included. On a state within its bounds no step fails or gives NaN.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier, plain_list
from pta.core.plain import is_host_readable, plain_tensor
from pta.core.samples import LARGEST_NORM, LONGEST_MEAN, Samples, longest_unit
from pta.engines.caches.admission import EMPTY
from pta.errors import InvalidParameter, StateMismatch, first_line, shown
from pta.methods.declaration import Declaration

Initial = Callable[[ZeroShotClassifier], Tensor]
"""The initial state, on the device of the classifier."""

LARGEST_COUNT = 2**53
"""Float64 tells whole numbers up to here from the next."""

_ROUNDING = 1e-4  # of lengths and sums that are one at most, in float32 and float64
_ROUNDING_OF_ENTROPIES = 1e-9


def full(value: float, *shape: int, dtype: torch.dtype | None = None) -> Initial:
    """A start with one value everywhere, on the classifier's device and, unless another is given, in its precision."""
    return lambda classifier: classifier.anchors.new_full(shape, value, dtype=dtype)


def doubles(value: float, *shape: int) -> Initial:
    """The same in float64."""
    return full(value, *shape, dtype=torch.float64)


def identity(size: int, factor: float = 1.0) -> Initial:
    """A start at a multiple of the identity, in float64."""
    return lambda classifier: torch.eye(size, dtype=torch.float64, device=classifier.anchors.device) * factor


def text_anchors(classifier: ZeroShotClassifier) -> Tensor:
    """A start at the text anchors."""
    return classifier.anchors.clone()


class Bound(NamedTuple):
    """A condition on a tensor, and what error messages say that it must be."""

    says: str
    holds: Callable[[Tensor], bool]


class Piece(NamedTuple):
    """A declared piece of state."""

    owner: Declaration  # that has it as an attribute
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
        return self.initial(self.owner.classifier)

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

    def declare(
        self, owner: Declaration, name: str, initial: Initial, within: Bound | None, *, per_class: bool
    ) -> None:
        """Add a piece with how it starts and the allowed values; it becomes the owner's attribute of that name."""
        try:
            start = initial(owner.classifier)
        except (RuntimeError, MemoryError) as error:
            if "allocate" not in str(error):
                raise
            raise InvalidParameter(f"{owner.name} with these parameters needs more memory than there is") from None
        self[name] = Piece(owner, name, initial, per_class, within or usual_bound(start.dtype))
        setattr(owner, name, start)

    def tensors(self) -> dict[str, Tensor]:
        """The current values; the tensors themselves, not copies."""
        return {name: piece.tensor for name, piece in self.items()}

    def put(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace all values by copies of these tensors."""
        copies = {
            name: tensors[name].to(piece.owner.classifier.anchors.device, copy=True) for name, piece in self.items()
        }
        for name, piece in self.items():
            piece.put(copies[name])
        self._tell_owners()

    def put_rows(self, values: Mapping[str, Tensor], rows: Mapping[str, Tensor]) -> None:
        """Write copies of values into rows of pieces, by their numbers, or over whole pieces where none are given."""
        for name, value in values.items():
            if name in rows:
                self[name].tensor[rows[name]] = value
            else:
                self[name].put(value.clone())
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

    def require(self, tensors: Mapping[str, Tensor], source: str, method: str) -> dict[str, Tensor]:
        """Tensors from outside, checked, each and together."""
        if not isinstance(tensors, Mapping) or tensors.keys() != self.keys():
            raise StateMismatch(f"{source} does not hold what {method} keeps: {sorted(self)}")
        checked = {name: piece.require(tensors[name], f"{source}: {name}") for name, piece in self.items()}
        for owner in self._owners():
            own = {piece.attribute: checked[name] for name, piece in self.items() if piece.owner is owner}
            if contradiction := owner.contradiction(own):
                raise StateMismatch(f"{source}: {contradiction}; the state is damaged")
        return checked

    def _tell_owners(self) -> None:
        for owner in self._owners():
            owner._state_replaced()

    def _owners(self) -> list[Declaration]:
        return list({id(piece.owner): piece.owner for piece in self.values()}.values())


class Refreshes:
    """When refreshes are due. The position is read from a GPU only the first time, and counted from there."""

    def __init__(self, adapter: Declaration) -> None:
        self._adapter = adapter
        self._position: int | None = None  # if the host knows it

    def state_replaced(self) -> None:
        """Read the position again."""
        self._position = None

    def within(self, count: int) -> list[int]:
        """After how many of the next `count` samples a refresh is due."""
        if self._position is None or is_host_readable(self._adapter.seen):
            self._position = int(self._adapter.seen)
        due, position = [], self.next(self._position)
        while position <= self._position + count:
            due.append(position - self._position)
            position = self.next(position)
        return due

    def next(self, position: int) -> int:
        """The first position after this one at which one is due: a power of two, or a multiple of the interval."""
        interval = self._adapter.refresh_interval
        assert interval is not None  # who asks has refreshes
        if position < interval:
            return min(interval, 1 << position.bit_length())
        return (position // interval + 1) * interval

    def count(self, samples: int) -> None:
        """Add samples that were learned to the host's position."""
        if self._position is not None:
            self._position += samples

    def step(self, step: Callable[[Samples], Tensor], samples: Samples) -> Tensor:
        """The logits of a step that is interrupted by every refresh that is due."""
        due, parts = self.within(len(samples)), []
        for begin, end in pairwise(sorted({0, *due, len(samples)})):
            parts.append(step(samples[begin:end] if due else samples))
            self.count(end - begin)
            if end in due:
                self._adapter.refresh_state()
        return parts[0] if len(parts) == 1 else torch.cat(parts)


@dataclass(frozen=True)
class Snapshot:
    """The state of an adapter, and its position."""

    method: str
    parameters: Mapping[str, Any]
    classifier: ZeroShotClassifier
    tensors: Mapping[str, Tensor]


def device_named(name: object) -> torch.device:
    """A device of this machine with memory, by its name."""
    try:
        device = torch.empty(0, device=name).device  # type: ignore[call-overload]
    except Exception as error:  # every kind of device fails in its own way
        raise InvalidParameter(f"there is no device {shown(name)}: {first_line(error)}") from error
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


# -- bounds ----------------------------------------------------------------------------------------------------------


def between(low: float, high: float) -> Bound:
    """Numbers from low to high; NaN and Inf are none."""
    return Bound(f"numbers from {low:g} to {high:g}", lambda tensor: _all_within(tensor, low, high))


def usual_bound(dtype: torch.dtype) -> Bound:
    """The default bound of a piece of state: counts from zero, finite numbers, flags."""
    if dtype == torch.bool:
        return FLAGS
    return between(-LARGEST_NORM, LARGEST_NORM) if dtype.is_floating_point else between(0, LARGEST_COUNT)


def rows_at_most(length: float) -> Bound:
    """Rows (of the last dimension) that are at most so long."""
    return Bound(f"rows at most {length:.4g} long", lambda tensor: _all_within(_lengths(tensor), 0.0, length))


def _in_the_unit_ball(rows: Tensor) -> bool:
    # In half precision every entry of a slowly moving mean is rounded at its own pace. It stays between the entries of
    # the features it is a mean of, but the length of the row can grow.
    if rows.dtype in (torch.float32, torch.float64):
        return _all_within(_lengths(rows), 0.0, LONGEST_MEAN)
    return _all_within(rows, -longest_unit(rows.dtype), longest_unit(rows.dtype))


def _are_unit(rows: Tensor) -> bool:
    longest = longest_unit(rows.dtype) + _ROUNDING
    return _all_within(_lengths(rows), 2 - longest, longest)


UNIT_BALL = Bound("finite rows at most one long", _in_the_unit_ball)
UNIT_ROWS = Bound("rows of unit length", _are_unit)
SHARES = Bound("numbers from 0 to 1", lambda tensor: _all_within(tensor, 0.0, LONGEST_MEAN))
DISTRIBUTIONS = Bound(
    "rows of probabilities that add up to one",
    lambda rows: SHARES.holds(rows) and _all_within(rows.sum(dim=-1), 1 - _ROUNDING, 1 + _ROUNDING),
)
# Their dtype says it all: other bytes than 0 and 1 become 1 when they are copied.
FLAGS = Bound("flags", lambda _: True)


def entropies(classes: int) -> Bound:
    """Entropies of distributions over so many classes, in nats."""
    low, high = -_ROUNDING_OF_ENTROPIES, math.log(classes) + _ROUNDING_OF_ENTROPIES
    return Bound(f"entropies from 0 to ln {classes}", lambda tensor: _all_within(tensor, low, high))


def or_empty(scores: Bound) -> Bound:
    """The same, or EMPTY in free slots."""
    return Bound(scores.says, lambda tensor: scores.holds(torch.where(tensor == EMPTY, 0.0, tensor)))


def slots_of(scores: Bound) -> Bound:
    """The scores of a cache: ascending in every class, then EMPTY."""
    may_be_free = or_empty(scores)
    return Bound(
        f"{scores.says} that ascend",
        lambda rows: may_be_free.holds(rows) and bool((rows.diff(dim=-1) >= 0).all()),
    )


def covariances(largest: float) -> Bound:
    """Matrices (of the last two dimensions), symmetric and positive semidefinite, no diagonal entry above `largest`.

    Symmetric is within rounding: 10⁻⁴ of the trace in float32, 10⁻¹² in float64. Positive semidefinite is a matrix that
    has a Cholesky factor once that much is added to its diagonal.
    """

    def is_one(matrix: Tensor) -> bool:
        diagonal = matrix.diagonal()
        slack = (1e-12 if matrix.dtype == torch.float64 else _ROUNDING) * max(1.0, float(diagonal.sum()))
        if not _all_within(diagonal, -slack, largest) or not _all_within(matrix - matrix.T, -slack, slack):
            return False
        wide = matrix.to(torch.float64, copy=True)
        wide.diagonal().add_(slack)
        return int(torch.linalg.cholesky_ex(wide).info) == 0

    says = f"symmetric, positive semidefinite and at most {largest:.4g} on the diagonal"
    return Bound(says, lambda tensor: all(map(is_one, tensor.reshape(-1, *tensor.shape[-2:]))))


def _all_within(tensor: Tensor, low: float, high: float) -> bool:
    return bool(((tensor >= low) & (tensor <= high)).all())


def _lengths(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64)
