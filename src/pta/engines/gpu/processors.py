"""Which compilers and kernels can be used on this machine."""

from functools import cache
from importlib.util import find_spec

import torch
from torch.utils._python_dispatch import _disable_current_modes

from pta.door.foreign import works
from pta.door.private_cache import keep_code_private

_OLDEST_FOR_TRITON = (8, 0)  # compute capability


@cache
def triton_runs_on(device: torch.device) -> bool:
    """Whether kernels can be compiled and launched there."""
    if device.type != "cuda" or find_spec("triton") is None:
        return False
    if torch.cuda.get_device_capability(device) < _OLDEST_FOR_TRITON:
        return False
    from pta.engines.gpu.triton import works_on

    keep_code_private()
    with _disable_current_modes():  # kernels need numbers, even if the question is asked for tensors that have none
        return works_on(device)


@cache
def transformer_runs_on(device: torch.device) -> bool:
    """Whether a vision transformer in half precision has kernels there."""
    if not triton_runs_on(device):
        return False
    from pta.engines.gpu.triton_ahead import launches_ahead

    if not launches_ahead(device):
        return False
    from pta.engines.gpu.triton_few_tokens import TILINGS, small_product
    from pta.engines.gpu.triton_transformer import FEWEST_ROWS, linear_with_gelu

    x = torch.zeros(FEWEST_ROWS, 64, device=device, dtype=torch.float16)

    def trial() -> None:
        linear_with_gelu(x, x[:64], x[0], quick=True)
        small_product(TILINGS["up"], x[:64], x[:64], x[0], quick=True)

    return works(trial, "vision transformers do without their GPU kernels")


@cache
def numba_is_installed() -> bool:
    """Whether there is a compiler for what runs on a CPU."""
    return find_spec("numba") is not None  # looks through the whole path where it is not, too slow for every step
