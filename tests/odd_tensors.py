"""Tensors that are not simply dense numbers in memory, each made from an ordinary one, and other odd values."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode


class Named(Tensor):
    """A subclass that changes nothing."""


def _freed(tensor: Tensor) -> Tensor:
    tensor = tensor.clone()
    tensor.untyped_storage().resize_(0)
    return tensor


ODD_TENSORS: dict[str, Callable[[Tensor], object]] = {
    "sparse": lambda one: one.to_sparse(),
    "compressed rows": lambda one: one.flatten(1).to_sparse_csr(),
    "mkldnn": lambda one: one.to_mkldnn(),
    "nested": lambda one: torch.nested.nested_tensor(list(one)),
    "jagged": lambda one: torch.nested.nested_tensor(list(one), layout=torch.jagged),
    "quantized": lambda one: torch.quantize_per_tensor(one, 0.1, 0, torch.qint8),
    "meta": lambda one: one.to("meta"),
    "fake": lambda one: FakeTensorMode().from_tensor(one),
    "freed": _freed,
    "complex": lambda one: one.to(torch.complex64),
    "imaginary part": lambda one: torch.complex(one, -one).conj().imag,
    "flags": lambda one: one > 0,
    "float8": lambda one: one.to(torch.float8_e4m3fn),
    "integers": lambda one: one.mul(10).long(),
    "half": lambda one: one.half(),
    "requires grad": lambda one: one.clone().requires_grad_(),
    "parameter": lambda one: torch.nn.Parameter(one),
    "subclass": lambda one: one.as_subclass(Named),
    "expanded": lambda one: one[:1].expand_as(one),
    "overlapping": lambda one: one.flatten()[: one.shape[1] + len(one)].unfold(0, one.shape[1], 1)[: len(one)],
    "transposed": lambda one: one.mT.contiguous().mT,
    "zero-dimensional": lambda one: one.sum(),
    "empty": lambda one: one[:0],
    "scalar": lambda one: 1.0,
    "nothing": lambda one: None,
    "objects": lambda one: one.numpy().astype(object),
    "lists": lambda one: one.tolist(),
    "ragged lists": lambda one: [[1.0], [1.0, 2.0]],
    "huge integers": lambda one: [[10**400, 1], [1, 2]],
    "text": lambda one: "features",
    "generator": lambda one: (row for row in one),
}


ODD_VALUES: list[object] = [
    *(None, -1, 0, 2**70, 10**400, 10**5000, 1.5, float("nan"), float("inf"), 1j, True),
    *("", "x", "a\nb", "\0", b"x", [], [[1], 2], (), {}, {1: 2}, set(), object(), range(3), int),
    *(torch.tensor(3), torch.ones(2, 3), torch.eye(2).to_sparse(), torch.ones(2, device="meta")),
]


def odd_id(value: object) -> str:
    """A name for a test with that value."""
    return f"{type(value).__name__} {value}"[:20] if isinstance(value, str | bytes | float) else type(value).__name__
