"""Kernels that are launched while the one before them still runs, on NVIDIA's GPUs from compute capability 9.0.

Such a kernel may read at once what the one before it does not write: that one begins when all before it have ended. All
else, and every write, is to come after `wait_for_inputs`.
"""

from functools import cache

import torch
import triton
import triton.language as tl

_OLDEST = (9, 0)  # compute capability
PLAINLY = {"AHEAD": False}
"""How a kernel is launched after the one before it."""


@cache
def launches_ahead(device: torch.device) -> bool:
    """Whether kernels can be launched ahead there."""
    is_nvidia = device.type == "cuda" and torch.version.cuda is not None
    return is_nvidia and torch.cuda.get_device_capability(device) >= _OLDEST


def ahead_on(device: torch.device) -> dict[str, bool]:
    """How a kernel is launched ahead, or plainly where none can be."""
    return {"AHEAD": True, "launch_pdl": True} if launches_ahead(device) else PLAINLY


@triton.jit
def wait_for_inputs(AHEAD: tl.constexpr):
    """Wait until the kernel before has ended, if this one was launched ahead; then allow the next to be launched."""
    if AHEAD:
        tl.inline_asm_elementwise("griddepcontrol.wait; mov.u32 $0, 0;", "=r", [], tl.int32, False, 1)
        tl.inline_asm_elementwise("griddepcontrol.launch_dependents; mov.u32 $0, 0;", "=r", [], tl.int32, False, 1)
