"""Where the tensors of a state dict lie in a file of torch, from the pickle that describes them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from pta.door.weights.inert_pickle import PERSISTENT, Inert
from pta.errors import UnreadableFile

_DTYPES = {
    "torch DoubleStorage": torch.float64,
    "torch FloatStorage": torch.float32,
    "torch HalfStorage": torch.float16,
    "torch BFloat16Storage": torch.bfloat16,
    "torch LongStorage": torch.int64,
    "torch IntStorage": torch.int32,
    "torch ShortStorage": torch.int16,
    "torch CharStorage": torch.int8,
    "torch ByteStorage": torch.uint8,
    "torch BoolStorage": torch.bool,
}
_TENSORS = {"torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor"}
_PARAMETERS = {"torch._utils _rebuild_parameter", "torch._utils _rebuild_parameter_with_state"}

_MOST_DIMENSIONS, _LARGEST_NUMBER = 16, 2**62
_MOST_ATTRIBUTES = 100_000  # modules may be shared, so a short pickle can have any number of them
_LONGEST_NAME = 1_000


@dataclass(frozen=True)
class StoredTensor:
    """A strided view of a record."""

    record: str
    dtype: torch.dtype
    numbers: int  # that the record holds, of this dtype
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def record_bytes(self) -> int:
        return self.numbers * self.dtype.itemsize


def state_dict_in(root: Any) -> dict[str, StoredTensor]:
    """The named tensors of a TorchScript module, of a state dict, or of a training run that holds a state dict.

    Whatever is no tensor is left out.
    """
    if isinstance(root, Inert):
        found = dict(_tensors_of_module(root))
    else:
        state = root.get("state_dict", root) if isinstance(root, dict) else {}
        named = state.items() if isinstance(state, dict) else ()
        found = {name: tensor for name, value in named if (tensor := _tensor(value))}
    if not found:
        raise UnreadableFile("it holds no state dict (names and tensors)")
    _require_short(max(map(len, found)))
    return found


def _tensors_of_module(root: Inert) -> Iterator[tuple[str, StoredTensor]]:
    """The tensors that a module and the modules within it have as attributes, by their names joined with dots."""
    pending, left = [("", root)], _MOST_ATTRIBUTES
    while pending:
        prefix, module = pending.pop()
        attributes = module.state if isinstance(module.state, dict) else {}
        left -= len(attributes)
        if left < 0:
            raise UnreadableFile(f"its modules have more than {_MOST_ATTRIBUTES:,} attributes")
        for name, value in attributes.items():
            _require_short(len(prefix) + len(name))
            if tensor := _tensor(value):
                yield prefix + name, tensor
            elif isinstance(value, Inert):
                pending.append((f"{prefix}{name}.", value))


def _require_short(length: int) -> None:
    if length > _LONGEST_NAME:
        raise UnreadableFile(f"something in it has a name of more than {_LONGEST_NAME:,} letters")


def _tensor(value: Any) -> StoredTensor | None:
    """A tensor, or None for anything else; a tensor whose place makes no sense is refused."""
    if isinstance(value, Inert) and value.name in _PARAMETERS and value.arguments:
        value = value.arguments[0]
    if not isinstance(value, Inert) or value.name not in _TENSORS:
        return None
    match value.arguments:
        case (
            Inert(name=found, arguments=(("storage", Inert(name=kind), str(record), str(), int(numbers)),)),
            int(offset),
            tuple(size),
            tuple(stride),
            *_,
        ) if found == PERSISTENT and kind in _DTYPES and len(record) <= _LONGEST_NAME:
            tensor = StoredTensor(record, _DTYPES[kind], numbers, offset, size, stride)
            if _lies_within(tensor):
                return tensor
    raise UnreadableFile("a tensor in it has a shape, a type or a place that none can have")


def _lies_within(tensor: StoredTensor) -> bool:
    """Whether the view is inside its record and shows no number twice."""
    if not len(tensor.size) == len(tensor.stride) <= _MOST_DIMENSIONS:
        return False
    numbers = (tensor.numbers, tensor.offset, *tensor.size, *tensor.stride)
    if not all(type(number) is int and 0 <= number <= _LARGEST_NUMBER for number in numbers):
        return False
    if 0 in tensor.size:
        return True
    reach = 0  # of the dimensions with smaller strides
    for stride, length in sorted(zip(tensor.stride, tensor.size, strict=True)):
        if length > 1 and stride <= reach:
            return False
        reach += (length - 1) * stride
    return tensor.offset + reach < tensor.numbers
