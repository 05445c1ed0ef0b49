"""Notices kernels that are launched ahead and do too much before they wait.

Such a kernel starts while the operation before it still runs. Triton's interpreter runs one after the other; here, what
a program reads before it waits is compared with what the operation before has written.
"""

from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pytest
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.runtime import interpreter

from pta.engines import gpu
from pta.engines.gpu import triton_ahead, triton_few_tokens

MODULES = [import_module(f"pta.engines.gpu.{one.name}") for one in iter_modules(gpu.__path__)]
WITH_WAITS = [module for module in MODULES if hasattr(module, "wait_for_inputs")]


class LaunchOrder(TorchDispatchMode):
    """While it is entered, kernels are launched ahead; `faults` are those that did too much before they waited."""

    def __init__(self):
        super().__init__()
        self.faults, self.ahead = set(), set()
        self._before = ("nothing", set())  # the operation before the kernel, and the addresses it has written
        self._kernel = None
        self._patch = pytest.MonkeyPatch()

    def __enter__(self):
        execute, turn = interpreter.GridExecutor.__call__, interpreter.interpreter_builder.set_grid_idx
        self._native = interpreter._interpreter
        self._patch.setattr(triton_ahead, "launches_ahead", lambda device: True)
        for module in WITH_WAITS:
            self._patch.setattr(module, "wait_for_inputs", self._wait)
        self._patch.setattr(triton_few_tokens, "fetch_to_cache", lambda rows, size: None)  # no number is used
        self._patch.setattr(interpreter, "_interpreter", self)
        self._patch.setattr(
            interpreter.GridExecutor, "__call__", lambda grid, *given, **how: self._launch(execute, grid, given, how)
        )
        self._patch.setattr(interpreter.interpreter_builder, "set_grid_idx", lambda *at: self._begin(turn, at))
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self._patch.undo()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        places = {one.untyped_storage().data_ptr() for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)}
        found = operation(*args, **kwargs)
        changes = any(one.alias_info is not None and one.alias_info.is_write for one in operation._schema.arguments)
        written = [
            one
            for one in tree_leaves(found)
            if isinstance(one, Tensor) and (changes or one.untyped_storage().data_ptr() not in places)
        ]
        if written and self._kernel is None and "empty" not in str(operation):
            self._before = str(operation), set().union(*map(_addresses, written))
        return found

    def _launch(self, execute, grid, given, how):
        self._kernel, self._read, self._written = grid.fn.__name__, set(), set()
        self._waits = how.get("launch_pdl", False)
        assert self._waits == how.get("AHEAD", False)
        if self._waits:
            self.ahead.add(self._kernel)
        execute(grid, *given, **how)
        name, written = self._before
        if self._read & written:
            self.faults.add(f"{self._kernel} reads what {name} writes")
        self._before, self._kernel = (self._kernel, self._written), None

    def _begin(self, turn, at):
        self._is_early = self._waits
        return turn(*at)

    def _wait(self, AHEAD):
        self._is_early = False

    # Access to memory, as the interpreter has it.

    def __getattr__(self, name):
        return getattr(self._native, name)

    def load(self, addresses, mask, *others):
        if self._is_early:
            self._read.update(addresses[mask].astype(np.int64).tolist())
        return self._native.load(addresses, mask, *others)

    def store(self, addresses, values, mask):
        if self._is_early:
            self.faults.add(f"{self._kernel} writes before it waits")
        self._written.update(addresses[mask].astype(np.int64).tolist())
        return self._native.store(addresses, values, mask)


def _addresses(tensor):
    at = np.zeros(1, np.int64)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        at = (at[:, None] + stride * np.arange(size)).ravel()
    return set((tensor.data_ptr() + at * tensor.element_size()).tolist())
