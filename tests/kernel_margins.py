"""Launches GPU kernels on tensors that lie inside larger ones, to notice what they read or write outside of their own.

Every byte of a margin is 0xFF, which is NaN in every floating type, −1 as an integer and true as a flag. What a kernel
reads there spoils its results. What it writes there is found after the launch. Triton's interpreter also checks every
address, so that a number that was read outside is noticed even if the kernel drops it afterwards.
"""

from functools import cache, partial

import numpy as np
import pytest
import torch
from torch import Tensor
from triton.runtime import interpreter

MARGIN = 2**14  # bytes, more than a block of the tested sizes


class InMargins:
    """A kernel that is launched on copies of its tensors, whose results it copies back."""

    def __init__(self, kernel):
        self._kernel = kernel

    def __getitem__(self, grid):
        return partial(self._launch, grid)

    def _launch(self, grid, *arguments, **constants):
        tensors = [given for given in arguments if isinstance(given, Tensor)]
        assert all(tensor.is_contiguous() for tensor in tensors), "kernels read rows one after the other"
        copies = {id(tensor): _inside_margins(tensor) for tensor in tensors}
        if torch.cuda.is_available():  # a kernel that is launched ahead would read copies while they are made
            torch.cuda.synchronize()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(interpreter, "_interpreter", Watched(copies.values()))
            patch.setattr(interpreter, "_patch_lang", cache(interpreter._patch_lang))  # slow, and needed once
            self._kernel[grid](*(copies.get(id(given), given) for given in arguments), **constants)
        for tensor in tensors:
            copy = copies[id(tensor)]
            assert _margins_are_untouched(copy), f"{self._kernel.__name__} wrote outside of a tensor"
            tensor.copy_(copy)


def _inside_margins(tensor):
    buffer = torch.full((MARGIN + tensor.nbytes + MARGIN,), 0xFF, dtype=torch.uint8, device=tensor.device)
    copy = buffer[MARGIN : MARGIN + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
    return copy.copy_(tensor)


def _margins_are_untouched(copy):
    buffer = torch.empty(0, dtype=torch.uint8, device=copy.device).set_(copy.untyped_storage())
    return bool((buffer[:MARGIN] == 0xFF).all() and (buffer[-MARGIN:] == 0xFF).all())


class Watched:
    """The interpreter's access to memory, for these tensors alone."""

    _native = interpreter._interpreter

    def __init__(self, tensors):
        self._starts, self._ends = np.array(sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors)).T

    def __getattr__(self, name):
        return getattr(self._native, name)

    def load(self, addresses, mask, *others):
        self._check(addresses, mask)
        return self._native.load(addresses, mask, *others)

    def store(self, addresses, values, mask):
        self._check(addresses, mask)
        return self._native.store(addresses, values, mask)

    def _check(self, addresses, mask):
        used = addresses[mask].astype(np.int64)
        tensor = np.searchsorted(self._starts, used, side="right") - 1
        assert ((tensor >= 0) & (used < self._ends[tensor])).all(), "an address outside of every tensor"
