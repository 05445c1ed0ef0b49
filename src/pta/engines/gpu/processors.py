"""Which compilers and kernels can be used on this machine."""

import atexit
import os
import shutil
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch.utils._python_dispatch import _disable_current_modes

from pta.door.private_cache import private_cache

_OLDEST_FOR_TRITON, _OLDEST_FOR_TRANSFORMERS = (8, 0), (9, 0)  # compute capability


@cache
def keep_code_private() -> None:
    """Let torch and Triton keep what they compile where only this user can write, unless the environment names a place.

    Torch's own choice is a folder that all users share. Where nothing is private, code is kept for this process alone.
    """
    folder = private_cache("torch")
    if folder is None:
        folder = Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        os.environ.setdefault(name, str(folder / name.split("_")[0].lower()))


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
    if not triton_runs_on(device) or torch.cuda.get_device_capability(device) < _OLDEST_FOR_TRANSFORMERS:
        return False
    from pta.engines.gpu.triton_transformer import works_on

    return works_on(device)


@cache
def numba_is_installed() -> bool:
    """Whether there is a compiler for what runs on a CPU."""
    return find_spec("numba") is not None  # looks through the whole path where it is not, too slow for every step
