"""Odd values of every kind, and valid values with one thing wrong.

What never ends (an endless iterator) and what fails on purpose (an object whose `__len__` raises) is not given: that is
the caller's own program, and not its input.
"""

import copy
import datetime
import decimal
import fractions
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

Value = TypeVar("Value")

HUGE = 2**40  # rows of a tensor that takes no memory until somebody copies it


class Subclass(torch.Tensor):
    """A tensor of another class."""


def _named(tensor: Tensor) -> Tensor:
    return tensor.rename(*[f"axis{number}" for number in range(tensor.ndim)])


def _quantised(tensor: Tensor) -> Tensor:
    return torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.qint8)


def _with(number: float) -> Callable[[Tensor], Tensor]:
    def put(tensor: Tensor) -> Tensor:
        changed = tensor.clone().float()
        changed.view(-1)[: max(1, changed.numel() // 3)] = number
        return changed

    return put


FLOATS = (math.nan, math.inf, -math.inf, 1e30, -1e30, 3e38, 1e-30, 1e-45, 0.0, -0.0, 1e18, 5e-324)

_FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "sparse COO": lambda tensor: tensor.to_sparse(),
    "sparse CSR": lambda tensor: tensor.to_sparse_csr(),
    "sparse CSC": lambda tensor: tensor.to_sparse_csc(),
    "meta": lambda tensor: tensor.to("meta"),
    "quantised": _quantised,
    "nested": lambda tensor: torch.nested.nested_tensor([*tensor.float()]),
    "jagged": lambda tensor: torch.nested.nested_tensor([*tensor.float()], layout=torch.jagged),
    "complex": lambda tensor: tensor.to(torch.complex64),
    "imaginary part": lambda tensor: tensor.to(torch.complex64).conj().imag,
    "mkldnn": lambda tensor: tensor.float().to_mkldnn(),
    "expanded": lambda tensor: tensor[:1].expand(3, *tensor.shape[1:]),
    "huge": lambda tensor: tensor[:1].expand(HUGE, *tensor.shape[1:]),
    "wide": lambda tensor: tensor[..., :1].expand(*tensor.shape[:-1], HUGE),
    "no rows": lambda tensor: tensor[:0],
    "no columns": lambda tensor: tensor[..., :0],
    "one row": lambda tensor: tensor[0],
    "one more axis": lambda tensor: tensor[None],
    "one more column": lambda tensor: torch.cat([tensor, tensor[..., :1]], dim=-1),
    "one row twice": lambda tensor: torch.cat([tensor, tensor[:1]]),
    "transposed": lambda tensor: tensor.mT,
    "backwards": lambda tensor: tensor.flip(0),
    "every second": lambda tensor: tensor[::2],
    "bool": lambda tensor: tensor > 0,
    "uint8": lambda tensor: tensor.clamp(0, 255).to(torch.uint8),
    "int64": lambda tensor: tensor.long(),
    "largest int64": lambda tensor: torch.full(tensor.shape, 2**63 - 1),
    "smallest int64": lambda tensor: torch.full(tensor.shape, -(2**63)),
    "float16": lambda tensor: tensor.half(),
    "bfloat16": lambda tensor: tensor.bfloat16(),
    "float8": lambda tensor: tensor.to(torch.float8_e4m3fn),
    "float64": lambda tensor: tensor.double(),
    "requires grad": lambda tensor: tensor.float().requires_grad_(),
    "parameter": lambda tensor: torch.nn.Parameter(tensor.float()),
    "in a graph": lambda tensor: tensor.float().requires_grad_() * 2,
    "named": _named,
    "subclass": lambda tensor: tensor.as_subclass(Subclass),
    "zeros": torch.zeros_like,
    "read-only memory": lambda tensor: torch.from_numpy(np.broadcast_to(tensor.numpy(), tensor.shape)),
    "inference": lambda tensor: _in_inference_mode(tensor),
    **{f"some {number}": _with(number) for number in FLOATS},
    "times 1e6": lambda tensor: tensor * 1e6,
    "times 1e-6": lambda tensor: tensor * 1e-6,
    "a little longer": lambda tensor: tensor * 1.01,
}


def _in_inference_mode(tensor: Tensor) -> Tensor:
    with torch.inference_mode():
        return tensor.clone()


def tensor_like(random: Random, tensor: Tensor) -> Tensor:
    """A tensor in another form, or with other numbers."""
    return _tried(random, _FORMS, tensor)


_ARRAY_FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "object": lambda array: array.astype(object),
    "objects": lambda array: np.array([None, "x", [1]], dtype=object),
    "structured": lambda array: np.zeros(array.shape, [("a", "f4"), ("b", "i8")]),
    "datetime": lambda array: np.zeros(array.shape, "datetime64[s]"),
    "timedelta": lambda array: np.zeros(array.shape, "timedelta64[D]"),
    "void": lambda array: np.zeros(array.shape, "V8"),
    "text": lambda array: array.astype(str),
    "bytes": lambda array: array.astype("S8"),
    "complex": lambda array: array.astype(complex),
    "bool": lambda array: array.astype(bool),
    "float16": lambda array: array.astype(np.float16),
    "long double": lambda array: array.astype(np.longdouble),
    "other byte order": lambda array: array.astype(array.dtype.newbyteorder()),
    "unsigned": lambda array: np.full(array.shape, 2**64 - 1, np.uint64),
    "backwards": lambda array: array[::-1],
    "every second": lambda array: array[::2],
    "no axes": lambda array: np.array(array.flat[0] if array.size else 0),
    "one more axis": lambda array: array[None],
    "no rows": lambda array: array[:0],
    "one row": lambda array: array[0],
    "read-only": lambda array: np.broadcast_to(array, array.shape),
    "huge": lambda array: np.broadcast_to(array[:1], (HUGE, *array.shape[1:])),
    "masked": lambda array: np.ma.masked_array(array, array == array.flat[0]),
    "matrix": lambda array: np.matrix(array),
    "record": lambda array: np.rec.array(np.zeros(array.shape, [("a", "f4")])),
    "negative": lambda array: -array.astype(np.float64),
    "largest": lambda array: np.full(array.shape, np.iinfo(np.int64).max),
    **{f"some {number}": lambda array, number=number: np.full(array.shape, number) for number in FLOATS},
}


def array_like(random: Random, array: np.ndarray) -> Any:
    """An array in another form, or with other numbers."""
    return _tried(random, _ARRAY_FORMS, array)


NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 7, 255, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, -(10**400), 10**5000),
    *FLOATS,
    *(0.5, 1.5, -2.5, 100.0, 1e4, 1e39, 1e308, True, False, 1j, complex(math.nan, 0)),
    *(decimal.Decimal("0.1"), decimal.Decimal("NaN"), decimal.Decimal("sNaN"), decimal.Decimal("1e999999")),
    *(fractions.Fraction(1, 3), fractions.Fraction(10**400, 3)),
    *(np.float32(3), np.float64("nan"), np.int8(-1), np.uint64(2**64 - 1), np.bool_(True), np.longdouble(1)),
    *(np.datetime64("NaT"), np.str_("3"), torch.tensor(3), torch.tensor(3.5), torch.tensor([1, 2])),
)
"""Numbers and what resembles them."""

TEXTS = (
    *("", " ", "\n", "\0", "\r\n", "\t", "x", "cat", "-", "--", "-1", "0", "nan", "inf", "1e400", "None", "null"),
    *("true",),
    *("cat\0dog", "cat\ndog", "\x1b[31mred\x1b[0m", "\x07\x08", "\x9b2J", "\ud800", "caf\udce9", "e\u0301"),
    *("\u202ereversed",),
    *("=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "a" * 300, "a" * 100_000, "ﬀ", "𝒳", "猫", "{}", "{0}", "{x}", "}{"),
    *("%s", "{{}}"),
    *(".", "..", "/", "~", "../../missing/x", "a/b", "a\\b", "file:", "hf:", "hf:x", "openclip:", "nothing:x"),
    *("embedded", "pta", "tda", "PTA", "pta.h=1", "fashion/clean", "fashion/x", "dtd", "imagenet_c/fog/5", "cpu"),
    *("cuda:99",),
    *("[" * 100, "{" * 100, '{"a":' * 50, "1" * 5000, "[0..99999999999].tar", "shard-{0..10}.tar", "*.tar", "[z-a]*"),
    *("iid",),
)
"""Texts, some of them names that the project knows."""

PATHS = (
    *("missing", "", ".", "..", "/", "a\0b", "\ud800", "caf\udce9", "a\nb", "x" * 300, "x/" * 3000, "~nobody/x", "-"),
    *("/dev/null", "/dev/zero", "/dev/full", "/proc/self/mem", "/proc/self/environ", "missing.npz"),
    *("missing.safetensors",),
)
"""Places where nothing useful is."""


def recursive_list() -> list[Any]:
    """A list that contains itself."""
    inside: list[Any] = []
    inside.append(inside)
    return inside


def recursive_dict() -> dict[str, Any]:
    """A dictionary that contains itself."""
    inside: dict[str, Any] = {}
    inside["inside"] = inside
    return inside


def deep(levels: int = 5000) -> list[Any]:
    """Lists in lists."""
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


class Plain:
    """An object that knows nothing."""


OBJECTS: tuple[Callable[[], Any], ...] = (
    *(lambda: None, lambda: ..., lambda: NotImplemented, Plain, lambda: Plain, lambda: len, lambda: lambda: 1),
    *(list, dict, tuple, set, bytes, bytearray, recursive_list, recursive_dict, deep, lambda: frozenset({1})),
    *(lambda: iter([]), lambda: (number for number in range(3)), lambda: map(str, [1]), lambda: range(10)),
    *(lambda: range(0),),
    *(lambda: [None], lambda: [[]], lambda: [1, [2]], lambda: ["a", 1], lambda: [[1.0, "x"]], lambda: [[1], [1, 2]]),
    *(lambda: {1: 2}, lambda: {"a": None}, lambda: {None: None}, lambda: {(1, 2): [3]}, lambda: ["a", "a"]),
    *(lambda: ["", ""],),
    *(lambda: b"\0" * 10, lambda: b"\xff\xd8\xff", lambda: memoryview(b"abc"), lambda: bytearray(b"abc")),
    *(lambda: b"cat",),
    *(datetime.datetime.now, lambda: datetime.timedelta(1), lambda: slice(None), lambda: Exception("x"), lambda: type),
    *(SimpleNamespace, lambda: SimpleNamespace(shape=(2, 8), dtype="x", ndim=2), lambda: torch.float32),
    *(lambda: np.float32,),
    *(lambda: torch.Generator(), lambda: torch.nn.Linear(2, 2), lambda: torch.device("meta"), lambda: torch.Size([2])),
    *(lambda: Image.new("RGB", (3, 2)), lambda: Image.new("F", (3, 2)), lambda: Image.new("RGBA", (1, 1)), lambda: np),
    *(lambda: [torch.ones(8), torch.ones(7)], lambda: [torch.ones(8, device="meta")]),
    *(lambda: [torch.ones(2, 2).to_sparse()],),
    *(lambda: [10**400], lambda: [[10**400] * 8], lambda: [[True] * 8], lambda: [["1"] * 8], lambda: [[1j] * 8]),
)
"""Whatever else a program may hand over."""

BASE_TENSORS = (torch.linspace(-1, 1, 16).reshape(2, 8), torch.ones(2, 3, 8), torch.arange(5.0), torch.ones(()))
BASE_ARRAYS = (np.linspace(-1, 1, 16).reshape(2, 8), np.arange(5), np.zeros((2, 4, 4), np.uint8))


def anything(random: Random) -> Any:
    """A value of any kind."""
    match random.randrange(7):
        case 0 | 1:
            return tensor_like(random, random.choice(BASE_TENSORS))
        case 2:
            return array_like(random, random.choice(BASE_ARRAYS))
        case 3:
            return random.choice(NUMBERS)
        case 4:
            return random.choice(TEXTS)
        case 5:
            return Path(random.choice(PATHS))
        case _:
            return random.choice(OBJECTS)()


def near(random: Random, value: Any) -> Any:
    """A value like this one, with something wrong with it, or another of its kind."""
    match value:
        case bool():
            return random.choice([not value, *NUMBERS])
        case int() | float():
            return random.choice([value + 1, -value, value * 2, 0, *NUMBERS])
        case Tensor():
            return tensor_like(random, value)
        case np.ndarray():
            return array_like(random, value)
        case str():
            return random.choice([text_like(random, value), random.choice(TEXTS)])
        case bytes():
            return bytes_like(random, value)
        case Path():
            return Path(random.choice(PATHS))
        case list() | tuple() if value:
            return _sequence_like(random, value)
        case dict() if value:
            return _mapping_like(random, value)
        case _:
            return anything(random)


def around(random: Random, value: Value) -> Value | Any:
    """The value itself, most of the time; else one near it, or anything."""
    drawn = random.random()
    if drawn < 0.6:
        return copy.copy(value) if isinstance(value, list | dict) else value
    return near(random, value) if drawn < 0.85 else anything(random)


def text_like(random: Random, text: str) -> str:
    """A text with a part removed, doubled, or replaced by an odd one."""
    start = random.randrange(len(text) + 1)
    end = min(len(text), start + random.choice((0, 1, 2, 8, 40)))
    return text[:start] + random.choice(("", text[start:end] * 2, random.choice(TEXTS))) + text[end:]


def bytes_like(random: Random, content: bytes) -> bytes:
    """Bytes with bits flipped, or a part removed, doubled, moved, or overwritten."""
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        if not changed:
            return bytes(random.randbytes(random.randrange(20)))
        start, size = random.randrange(len(changed)), random.choice((1, 2, 4, 8, 64, 512))
        other = random.randrange(len(changed))
        match random.randrange(8):
            case 0 | 1:
                changed[start] ^= 1 << random.randrange(8)
            case 2:
                del changed[start:]
            case 3:
                del changed[start : start + size]
            case 4:
                changed[start:start] = random.randbytes(size)
            case 5:
                changed[start : start + size] = changed[other : other + size]
            case 6:
                changed[start : start + size] = random.choice((b"\0", b"\xff", b"\x7f")) * size
            case _:
                changed[start:start] = changed[other : other + size]
    return bytes(changed)


def json_like(random: Random, content: Any, within: str = "") -> Any:
    """A JSON value in which one place, on any level (or below the given key), is another."""
    if within and isinstance(content, dict) and within in content:
        return {**content, within: json_like(random, content[within])}
    inside = list(content) if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ()
    if not inside or random.random() < 0.15:
        return json_value(random, content)
    changed, at = copy.copy(content), random.choice(list(inside))
    match random.randrange(8):
        case 0:
            del changed[at]
        case 1 if isinstance(changed, dict):
            changed[random.choice(TEXTS)] = changed.pop(at)
        case 1 | 2 if isinstance(changed, list):
            changed.append(changed[at])
        case _:
            changed[at] = json_like(random, content[at])
    return changed


def json_value(random: Random, instead_of: Any = None) -> Any:
    """A value that JSON can hold, in the place of another."""
    return random.choice(
        (
            *(None, True, False, 0, -1, 1, 2, 10**30, 2**63, 1e308, -1e-320, 0.5, math.nan, math.inf, "", "x", [], {}),
            *([[]], {"": {}}, [None], ["x"] * 3, [1, 2], "\0", "\ud800", "\x1b[2J", "a" * 5000, [instead_of]),
            *(str(instead_of),),
            *([[[[[[[[1]]]]]]]], {"a": {"b": {"c": 1}}}, [0] * 50, {"h": 1}, "pta", "float16", [1e30], [-1]),
        )
    )


def deep_json(random: Random) -> str:
    """JSON that is nested too deeply for a recursive reader."""
    return random.choice(("[", '{"a":')) * random.choice((500, 100_000))


def _tried(random: Random, forms: dict[str, Callable[[Any], Any]], value: Any) -> Any:
    """A value in one of the forms that can be made of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # making sparse, named and quantised tensors warns
        for name in random.sample(list(forms), 8):
            try:
                return forms[name](value)
            except Exception:  # not every tensor has every form
                continue
    return value


def _sequence_like(random: Random, value: Sequence[Any]) -> Any:
    items = list(value)
    at = random.randrange(len(items))
    match random.randrange(6):
        case 0:
            del items[at]
        case 1:
            items.append(items[at])
        case 2:
            items[at] = anything(random)
        case 3:
            return iter(items)
        case 4:
            return str(value)
        case _:
            items[at] = near(random, items[at])
    return type(value)(items) if type(value) in (list, tuple) else items


def _mapping_like(random: Random, value: dict[Any, Any]) -> Any:
    items = dict(value)
    at = random.choice(list(items))
    match random.randrange(5):
        case 0:
            del items[at]
        case 1:
            items[random.choice(TEXTS)] = items[at]
        case 2:
            items[at] = anything(random)
        case 3:
            return list(items.items())
        case _:
            items[at] = near(random, items[at])
    return items
