"""Which compilers and kernels can be used on this machine."""

from functools import cache
from importlib.util import find_spec

import torch
from torch.utils._python_dispatch import _disable_current_modes

_OLDEST_FOR_TRITON = (8, 0)  # compute capability


@cache
def triton_runs_on(device: torch.device) -> bool:
    """Whether kernels can be compiled and launched there."""
    if device.type != "cuda" or find_spec("triton") is None:
        return False
    if torch.cuda.get_device_capability(device) < _OLDEST_FOR_TRITON:
        return False
    from pta.engines.gpu.triton import works_on

    with _disable_current_modes():  # kernels need numbers, even if the question is asked for tensors that have none
        return works_on(device)


@cache
def numba_is_installed() -> bool:
    """Whether there is a compiler for what runs on a CPU."""
    return find_spec("numba") is not None  # looks through the whole path where it is not, too slow for every step
