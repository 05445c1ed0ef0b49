"""A caller's values as plain tensors, or a one-line error, and whether the host can read tensors without waiting."""

import numpy as np
import torch
from torch import Tensor

from pta.core.limits import available_memory
from pta.errors import PtaError, first_line

_INTEGERS = {getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}
FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
_LARGE = 2**30  # bytes; smaller copies are made without a check
_DTYPES = FLOATS | _INTEGERS | {torch.bool}


def plain_tensor(name: str, given: object, refusal: type[PtaError]) -> Tensor:
    """A value as a dense, detached tensor in memory; the value itself, if it is one."""
    try:
        if isinstance(given, np.ndarray):  # torch wants the byte order of this machine, and no negative strides
            given = np.require(given, given.dtype.newbyteorder("="), ["C", "W"])
        tensor = given if isinstance(given, Tensor) else torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise refusal(f"{name} cannot be read as numbers: {first_line(error)}") from None
    if oddity := _oddity(tensor):
        raise refusal(f"{name} must be an ordinary dense tensor of real numbers, got {oddity}")
    if type(tensor) is Tensor and not tensor.requires_grad and not tensor.is_neg():
        return tensor
    return tensor.detach().as_subclass(Tensor).resolve_neg()


def _oddity(tensor: Tensor) -> str | None:
    """What a tensor is that is sparse, nested, quantized or complex, or holds no numbers."""
    if tensor.is_nested:
        return "a nested one"
    if tensor.layout is not torch.strided:
        return f"one of layout {tensor.layout}"
    if tensor.dtype not in _DTYPES:
        return f"{tensor.dtype}"
    if not _is_in_memory(tensor):
        return "one without numbers"
    if any(getattr(tensor, "names", ())):  # which releases of torch before ours had
        return "one with named dimensions"
    size = tensor.numel() * tensor.element_size()
    if size > _LARGE and size > tensor.untyped_storage().nbytes() and size > available_memory():
        return "one that is expanded beyond the available memory"
    return None


def _is_in_memory(tensor: Tensor) -> bool:
    """Whether the tensor has values: not on the meta device, after its memory was freed, or in a tracer."""
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return False
    try:
        return tensor.data_ptr() != 0 or tensor.numel() == 0
    except RuntimeError:
        return False


def is_host_readable(*tensors: Tensor) -> bool:
    """Whether reading the tensors' values is free: the host waits for no device and no recording is broken."""
    return all(tensor.is_cpu and type(tensor) is Tensor for tensor in tensors)
