"""Whether a step can be recorded once and replayed, tested by steps on tensors without data.

A replay repeats the operations on tensors and runs no Python. So a recorded step must not read a number on the host,
must keep its state in the same tensors, and must not hand anything but its state to the next call.
"""

from collections.abc import Iterable, Mapping, Sized
from copy import copy
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pta.core.samples import Samples
from pta.door.foreign import failure_of
from pta.methods.adapter import Adapter

_GIVEN = {"features": 1, "views": 64, "patches": 196}  # of a sample


class _Dataflow(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows what is computed from the state and the samples, and refuses what a replay would miss.

    Tensors that are computed from constants alone may be kept from one call to the next.
    """

    def __init__(self, state: Iterable[Tensor], device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device
        self._state = {id(tensor): tensor for tensor in state}
        self._varying: dict[int, Tensor] = {}  # keeps them alive, so that no other tensor gets the same id
        self._from_earlier_calls: dict[int, Tensor] = {}

    def begin_call(self, samples: Samples) -> None:
        self._from_earlier_calls |= self._varying
        self._varying = {id(tensor): tensor for tensor in samples.tensors().values()}

    def use(self, tensors: Iterable[Tensor]) -> bool:
        """Whether any of the tensors varies; refuses what an earlier call has left."""
        used = {id(tensor) for tensor in tensors}
        if not self._from_earlier_calls.keys().isdisjoint(used):
            raise RuntimeError("a call uses a tensor that an earlier one has left")
        return not (self._varying.keys().isdisjoint(used) and self._state.keys().isdisjoint(used))

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if operation.namespace == "prim":  # asks for the device of a tensor, not for its numbers
            return operation(*args, **(kwargs or {}))
        varies = self.use(_tensors((args, kwargs)))
        result = operation(*args, **(kwargs or {}))
        for made in _tensors(result) if varies else ():
            if made.device != self._device:
                raise RuntimeError("the host would wait for a copy to another device")
            if id(made) not in self._state:
                self._varying[id(made)] = made
        return result


@torch.no_grad()
def is_recordable(adapter: Adapter, batch: int = 1) -> bool:
    """Whether a step on a batch of this size does all its work on tensors, so that a replay does the same.

    The answer is about the adapter where it is: on a GPU methods may have kernels that they do not have elsewhere.
    Methods that need more than features, views and patches are not tried.
    """
    if not adapter.needs_with(adapter.parameters) <= _GIVEN.keys():
        return False
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    twin = _without_numbers(adapter.clone(), fake)
    state, values = twin.state(), _plain_values(twin)
    dataflow = _Dataflow(state.values(), twin.classifier.anchors.device)

    def rehearse() -> None:
        with fake, dataflow:
            for call in (twin.step_before_refresh, twin.predict, twin.predict, twin.step_before_refresh):
                samples = _samples(twin, batch)
                dataflow.begin_call(samples)
                dataflow.use([call(samples)])
                twin.refresh_state()

    if failure_of(rehearse) is not None:  # the method needs numbers
        return False
    same_tensors = all(tensor is state[name] for name, tensor in twin.state().items())
    now = _plain_values(twin)
    return same_tensors and all(now.get(name) == value for name, value in values.items())


def _without_numbers(adapter: Adapter, fake: FakeTensorMode) -> Adapter:
    """The adapter itself, its state and its anchors replaced by tensors without numbers."""
    classifier = copy(adapter.classifier)
    object.__setattr__(classifier, "anchors", fake.from_tensor(classifier.anchors))
    for piece in adapter.pieces.values():
        piece.owner.classifier = classifier
        setattr(piece.owner, piece.attribute, fake.from_tensor(piece.tensor))
    return adapter


def _samples(adapter: Adapter, batch: int) -> Samples:
    dim = adapter.classifier.dim
    features = adapter.classifier.anchors.new_empty(batch, dim)
    others = adapter.needs_with(adapter.parameters) - {"features"}
    return Samples.unchecked(features, **{name: features.new_empty(batch, _GIVEN[name], dim) for name in others})


def _plain_values(adapter: Adapter) -> dict[tuple[int, str], object]:
    """Numbers and texts, and sizes of containers, that the adapter and those it stands on hold as attributes."""
    owners = {id(piece.owner): piece.owner for piece in adapter.pieces.values()}
    found: dict[tuple[int, str], object] = {}
    for key, owner in owners.items():
        for name, value in vars(owner).items():
            if isinstance(value, int | float | str):
                found[key, name] = value
            elif isinstance(value, Sized) and not isinstance(value, Tensor):
                found[key, name] = len(value)
    return found


def _tensors(tree: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
