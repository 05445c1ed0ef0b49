"""The description in a pickle, without building any object, and where the tensors that it describes lie.

A pickle is a program for a small stack machine, and Python's own machine imports and calls whatever the program names.
This one imports nothing and calls nothing. Strings, integers, tuples and dicts with string keys become themselves, an
object becomes an `Inert`, and everything else becomes None.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pickletools import genops, opcodes
from typing import Any

import torch

from pta.errors import UnreadableFile

MOST_STEPS = 1_000_000
"""Enough for 30,000 tensors; CLIP models have some hundreds, and three times as many while they are trained."""

PERSISTENT = "persistent id"
"""The name of what lies outside the pickle; its argument says where."""

_LONGEST_NAME = 200  # of a module or class; one long string could be used in any number of names

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
_LONGEST_PATH = 1_000  # of a tensor


@dataclass(slots=True, eq=False, repr=False)
class Inert:
    """An object that was not built: the class or function that the pickle names, its arguments and its state."""

    name: str  # "module name", as pickles have it; empty if the pickle calls something that has no name
    arguments: tuple[Any, ...] = ()
    state: Any = None


def read_pickle(content: bytes) -> Any:
    """What a pickle of any protocol describes; work and memory are bounded by its length and `MOST_STEPS`."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[Any, Any] = {}
    for opcode, argument, _ in islice(genops(content), MOST_STEPS):
        match opcode.name:
            case "STOP":
                return stack.pop()
            case "MARK":
                marks.append(len(stack))
            case "DUP":
                stack.append(stack[-1])
            case "GET" | "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "MEMOIZE":
                memo[len(memo)] = stack[-1]
            case name:
                taken = _take(name, stack, marks)
                if opcode.stack_after:
                    stack.append(_result(name, argument, taken))
    raise UnreadableFile(f"its pickle takes more than {MOST_STEPS:,} steps")


# What an opcode takes from the stack: how many values, and whether also all that lies above the last mark.
_TAKES = {
    opcode.name: (kinds.index("mark"), True) if "mark" in kinds else (len(kinds), False)
    for opcode in opcodes
    for kinds in [[kind.name for kind in opcode.stack_before]]
}
_PLAIN_KINDS = {"int", "int_or_bool", "str", "bytes_or_str"}
_PLAIN = {opcode.name for opcode in opcodes if {kind.name for kind in opcode.stack_after} & _PLAIN_KINDS}


def _take(name: str, stack: list[Any], marks: list[int]) -> list[Any]:
    count, marked = _TAKES[name]
    start = (marks.pop() if marked else len(stack)) - count
    if start < 0:
        raise UnreadableFile("its pickle takes more from the stack than is there")
    taken = stack[start:]
    del stack[start:]
    return taken


def _result(name: str, argument: Any, taken: list[Any]) -> Any:
    match name:
        case "EMPTY_TUPLE" | "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
            return tuple(taken)
        case "EMPTY_DICT" | "DICT":
            return _set_items({}, taken)
        case "SETITEM" | "SETITEMS":
            return _set_items(taken[0], taken[1:])
        case "GLOBAL":
            return Inert(argument)
        case "STACK_GLOBAL":
            return Inert(" ".join(part[:_LONGEST_NAME] for part in taken if isinstance(part, str)))
        case "REDUCE" | "NEWOBJ":
            return _call(*taken)
        case "BUILD":
            return _set_state(*taken)
        case "BINPERSID":
            return Inert(PERSISTENT, tuple(taken))
    return argument if name in _PLAIN else None


def _set_items(container: Any, items: list[Any]) -> Any:
    if isinstance(container, dict):
        pairs = zip(items[::2], items[1::2], strict=False)
        container.update((key, value) for key, value in pairs if isinstance(key, str))
    return container


def _call(function: Any, arguments: Any) -> Any:
    name = function.name if isinstance(function, Inert) else ""
    given = arguments if isinstance(arguments, tuple) else ()
    return {} if name == "collections OrderedDict" and not given else Inert(name, given)


def _set_state(subject: Any, state: Any) -> Any:
    if isinstance(subject, Inert):
        subject.state = state
    return subject


# -- tensors -----------------------------------------------------------------------------------------------------------


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

    Whatever is not a tensor is left out.
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
    if length > _LONGEST_PATH:
        raise UnreadableFile(f"something in it has a name of more than {_LONGEST_PATH:,} letters")


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
        ) if found == PERSISTENT and kind in _DTYPES and len(record) <= _LONGEST_PATH:
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
