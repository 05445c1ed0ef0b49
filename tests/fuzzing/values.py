"""Odd values of every kind, and valid values with one thing wrong.

What never ends (an endless iterator) and what fails on purpose (an object whose `__len__` raises) is not given: that is
the caller's own program, and not its input.
"""

import copy
import datetime
import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nested

Value = TypeVar("Value")
Instead = Callable[[Random, Any], Any]

HUGE = 2**40  # rows of a tensor that takes no memory until somebody copies it
_SINGLE = (-1, 0, 1, 2, 1.01, -1e-3, 1e-45, 1e18, 1e30, 1e308, math.nan, math.inf, 2**53, 2**62, -(2**63))
FLOATS = (math.nan, math.inf, -math.inf, 1e30, -1e30, 3e38, 1e-30, 1e-45, 0.0, -0.0, 1e18, 5e-324)


class Subclass(torch.Tensor):
    """A tensor of another class."""


def _with(number: float) -> Callable[[Tensor], Tensor]:
    def put(tensor: Tensor) -> Tensor:
        changed = tensor.clone().float()
        changed.view(-1)[: max(1, changed.numel() // 3)] = number
        return changed

    return put


_DTYPES = (
    *(torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float64),
    torch.complex64,
)
_FORMS: tuple[Callable[[Tensor], Tensor], ...] = (
    *(Tensor.to_sparse, Tensor.to_sparse_csr, Tensor.to_sparse_csc, torch.zeros_like),
    *((lambda tensor, dtype=dtype: tensor.to(dtype)) for dtype in _DTYPES),
    *((lambda tensor, value=value: torch.full(tensor.shape, value)) for value in (2**63 - 1, -(2**63))),
    *((lambda tensor, factor=factor: tensor * factor) for factor in (1e6, 1e-6, 1.01)),
    *map(_with, FLOATS),
    lambda tensor: tensor.to("meta"),
    lambda tensor: torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.qint8),
    lambda tensor: nested.nested_tensor([*tensor.float()]),
    lambda tensor: nested.nested_tensor([*tensor.float()], layout=torch.jagged),
    lambda tensor: tensor.to(torch.complex64).conj().imag,
    lambda tensor: tensor.float().to_mkldnn(),
    lambda tensor: tensor[:1].expand(3, *tensor.shape[1:]),
    lambda tensor: tensor[:1].expand(HUGE, *tensor.shape[1:]),
    lambda tensor: tensor[..., :1].expand(*tensor.shape[:-1], HUGE),
    lambda tensor: tensor[:0],
    lambda tensor: tensor[..., :0],
    lambda tensor: tensor[0],
    lambda tensor: tensor[None],
    lambda tensor: tensor[::2],
    lambda tensor: tensor.mT,
    lambda tensor: tensor.flip(0),
    lambda tensor: torch.cat([tensor, tensor[..., :1]], dim=-1),
    lambda tensor: torch.cat([tensor, tensor[:1]]),
    lambda tensor: tensor.float().requires_grad_(),
    lambda tensor: tensor.float().requires_grad_() * 2,
    lambda tensor: torch.nn.Parameter(tensor.float()),
    lambda tensor: tensor.rename(*[f"axis{number}" for number in range(tensor.ndim)]),
    lambda tensor: tensor.as_subclass(Subclass),
    lambda tensor: torch.from_numpy(np.broadcast_to(tensor.numpy(), tensor.shape)),
    torch.inference_mode()(Tensor.clone),
)

_ARRAY_DTYPES = (object, str, "S8", complex, bool, np.float16, np.longdouble, ">f4", ">i8")
_EMPTY_DTYPES = ([("a", "f4"), ("b", "i8")], "datetime64[s]", "timedelta64[D]", "V8")
_FILLED = (2**63 - 1, np.uint64(2**64 - 1), math.nan, math.inf, 1e30, 5e-324)
_ARRAY_FORMS: tuple[Callable[[NDArray[Any]], Any], ...] = (
    *((lambda array, dtype=dtype: array.astype(dtype)) for dtype in _ARRAY_DTYPES),
    *((lambda array, dtype=dtype: np.zeros(array.shape, dtype)) for dtype in _EMPTY_DTYPES),
    *((lambda array, value=value: np.full(array.shape, value)) for value in _FILLED),
    lambda array: np.array([None, "x", [1]], dtype=object),
    lambda array: np.array(array.flat[0] if array.size else 0),
    lambda array: np.broadcast_to(array, array.shape),
    lambda array: np.broadcast_to(array[:1], (HUGE, *array.shape[1:])),
    lambda array: np.ma.masked_array(array, array == array.flat[0]),
    lambda array: np.matrix(array),
    lambda array: np.rec.array(np.zeros(array.shape, [("a", "f4")])),
    lambda array: -array.astype(np.float64),
)


def tensor_like(random: Random, tensor: Tensor) -> Tensor:
    """A tensor in another form, with other numbers, or with one other number."""
    if tensor.numel() and random.random() < 0.3:
        changed = tensor.clone()
        with suppress(RuntimeError, OverflowError):  # not a number of this type
            changed.view(-1)[random.randrange(tensor.numel())] = random.choice(_SINGLE)
            return changed
    return _tried(random, _FORMS, tensor)


def array_like(random: Random, array: NDArray[Any]) -> Any:
    """An array in another form, or with other numbers: one that tensors have, too, or one of arrays alone."""
    forms = (lambda array: tensor_like(random, torch.from_numpy(array)).numpy(), *_ARRAY_FORMS)
    return _tried(random, forms, array) if random.random() < 0.6 else _tried(random, forms[:1], array)


def _tried(random: Random, forms: Sequence[Callable[[Any], Any]], value: Any) -> Any:
    """A value in one of the forms that can be made of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # making sparse, named and quantised tensors warns
        for form in random.sample(forms, min(len(forms), 8)):
            try:
                return form(value)
            except Exception:  # not every tensor has every form
                continue
    return value


NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 7, 255, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, -(10**400), 10**5000),
    *(*FLOATS, 0.5, 1.5, -2.5, 100.0, 1e4, 1e39, 1e308, True, False, 1j, complex(math.nan, 0)),
    *map(Decimal, ("0.1", "NaN", "sNaN", "1e999999")),
    *(Fraction(1, 3), Fraction(10**400, 3), torch.tensor(3), torch.tensor(3.5), torch.tensor([1, 2])),
    *(np.float32(3), np.float64("nan"), np.int8(-1), np.uint64(2**64 - 1), np.bool_(True), np.longdouble(1)),
    *(np.datetime64("NaT"), np.str_("3")),
)
"""Numbers and what resembles them."""

TEXTS = (
    *("", " ", "\n", "\0", "\r\n", "\t", "x", "cat", "-", "--", "-1", "0", "nan", "inf", "1e400", "None", "null"),
    *("cat\0dog", "cat\ndog", "\x1b[31mred\x1b[0m", "\x07\x08", "\x9b2J", "\ud800", "caf\udce9", "e\u0301", "true"),
    *("=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "a" * 300, "a" * 100_000, "ﬀ", "𝒳", "猫", "{}", "{0}", "{x}", "}{"),
    *(".", "..", "/", "~", "../../missing/x", "a/b", "a\\b", "file:", "hf:", "hf:x", "openclip:", "nothing:x", "%s"),
    *("embedded", "pta", "tda", "PTA", "pta.h=1", "fashion/clean", "fashion/x", "dtd", "imagenet_c/fog/5", "cpu"),
    *("[" * 100, "{" * 100, '{"a":' * 50, "1" * 5000, "[0..99999999999].tar", "shard-{0..10}.tar", "*.tar", "[z-a]*"),
    *("{{}}", "\u202ereversed", "cuda:99", "iid", '"', '"a\nb"', "'", '""""', "[nan]", "{a = 1}", "1979-05-27"),
    *("[" * 100_000, '{"a":' * 100_000),  # nested too deeply for a recursive reader
    *("missing", "missing.npz", "missing.safetensors", "a\nb", "x/" * 3000, "~nobody/x"),
    *("/dev/null", "/dev/zero", "/dev/full", "/proc/self/mem", "/proc/self/environ"),
)
"""Texts, some of them names that the project knows, and places where nothing useful is."""


def _recursive(inside: Any) -> Any:
    """A list or dictionary that contains itself."""
    inside.append(inside) if isinstance(inside, list) else inside.update(inside=inside)
    return inside


def _deep(levels: int = 5000) -> list[Any]:
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


class Plain:
    """An object that knows nothing."""


OBJECTS: tuple[Callable[[], Any], ...] = (
    *(list, dict, tuple, set, bytes, bytearray, Plain, SimpleNamespace, torch.Generator, datetime.datetime.now, _deep),
    *(lambda: np, lambda: _recursive([]), lambda: _recursive({}), lambda: lambda: 1, lambda: torch.nn.Linear(2, 2)),
    *(lambda: iter([]), lambda: (number for number in range(3)), lambda: map(str, [1]), lambda: bytearray(b"abc")),
    *(lambda: SimpleNamespace(shape=(2, 8), dtype="x", ndim=2), lambda: [torch.ones(2, 2).to_sparse()]),
    *(lambda: [torch.ones(8), torch.ones(7)], lambda: [torch.ones(8, device="meta")]),
    *(lambda: Image.new("RGB", (3, 2)), lambda: Image.new("F", (3, 2)), lambda: Image.new("RGBA", (1, 1))),
    *(
        (lambda value=value: copy.copy(value))
        for value in (
            *(None, ..., NotImplemented, Plain, len, type, torch.float32, np.float32, range(10), range(0)),
            *(
                frozenset({1}),
                slice(None),
                Exception("x"),
                datetime.timedelta(1),
                torch.device("meta"),
                torch.Size([2]),
            ),
            *([None], [[]], [1, [2]], ["a", 1], [[1.0, "x"]], [[1], [1, 2]], ["a", "a"], ["", ""], [10**400]),
            *([[10**400] * 8], [[True] * 8], [["1"] * 8], [[1j] * 8]),
            *({1: 2}, {"a": None}, {None: None}, {(1, 2): [3]}, b"\0" * 10, b"\xff\xd8\xff", b"cat"),
        )
    ),
)
"""Whatever else a program may hand over."""

BASE_TENSORS = (torch.linspace(-1, 1, 16).reshape(2, 8), torch.ones(2, 3, 8), torch.arange(5.0), torch.ones(()))
BASE_ARRAYS = (np.linspace(-1, 1, 16).reshape(2, 8), np.arange(5), np.zeros((2, 4, 4), np.uint8))


def anything(random: Random) -> Any:
    """A value of any kind."""
    kinds: tuple[Callable[[], Any], ...] = (
        *2 * (lambda: tensor_like(random, random.choice(BASE_TENSORS)),),
        lambda: array_like(random, random.choice(BASE_ARRAYS)),
        lambda: random.choice(NUMBERS),
        lambda: random.choice(TEXTS),
        lambda: Path(random.choice(TEXTS)),
        lambda: random.choice(OBJECTS)(),
    )
    return random.choice(kinds)()


def near(random: Random, value: Any) -> Any:
    """A value like this one, with something wrong with it, or another of its kind."""
    match value:
        case int() | float():
            return random.choice([not value, value + 1, -value, value * 2, *NUMBERS])
        case Tensor():
            return tensor_like(random, value)
        case np.ndarray():
            return array_like(random, value)
        case str():
            return random.choice([text_like(random, value), random.choice(TEXTS)])
        case bytes():
            return bytes_like(random, value)
        case Path():
            return Path(random.choice(TEXTS))
        case list() | tuple() | dict() if value:
            return altered(random, value, _instead)
        case _:
            return anything(random)


def _instead(random: Random, value: Any) -> Any:
    if isinstance(value, list | tuple | dict):
        return random.choice((iter(value), str(value), [*value], anything(random)))
    return random.choice((anything, lambda random: near(random, value)))(random)


def around(random: Random, value: Value) -> Value | Any:
    """The value itself, most of the time; else one near it, or anything."""
    drawn = random.random()
    if drawn < 0.6:
        return copy.copy(value) if isinstance(value, list | dict) else value
    return near(random, value) if drawn < 0.85 else anything(random)


def altered(random: Random, value: Any, instead: Instead) -> Any:
    """A copy in which one place, on any level, is removed, doubled, renamed, or something `instead`."""
    if not isinstance(value, list | tuple | dict) or not value or random.random() < 0.1:
        return instead(random, value)
    changed = dict(value) if isinstance(value, dict) else list(value)
    at = random.choice(list(changed) if isinstance(changed, dict) else range(len(changed)))
    match random.randrange(8):
        case 0:
            del changed[at]
        case 1 if isinstance(changed, dict):
            changed[random.choice(TEXTS)] = changed.pop(at)
        case 1:
            changed.append(changed[at])
        case 2:
            changed[at] = instead(random, changed[at])
        case _:
            changed[at] = altered(random, changed[at], instead)
    return tuple(changed) if isinstance(value, tuple) else changed


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
            return random.randbytes(random.randrange(20))
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
                changed[start : start + size] = random.choice((b"\0", b"\xff", b"\x7f", b"7", b"../")) * size
            case _:
                changed[start:start] = changed[other : other + size]
    return bytes(changed)


_JSON = (
    *(one for one in NUMBERS if type(one) in (bool, float) or (type(one) is int and abs(one) < 10**40)),
    *(text for text in TEXTS if len(text) < 5001),
    *(None, [], {}, [[]], {"": {}}, [None], ["x"] * 3, [1, 2], [0] * 50, [1e30], [-1], {"h": 1}),
    *([[[[[[[[1]]]]]]]], {"a": {"b": {"c": 1}}}, "float16"),
)


def json_value(random: Random, instead_of: Any = None) -> Any:
    """A value that JSON can hold, in the place of another."""
    return random.choice((*_JSON, [instead_of], str(instead_of)))
