"""PTA's recurrence: `advance` picks the fastest of engines with equal answers; on a GPU `pta.engines.gpu.triton`."""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from pta.engines.pta.chunk import advance_by_chunk
from pta.engines.pta.loop import advance_by_loop
from pta.engines.pta.prototypes import Prototypes
from pta.engines.pta.rule import Rule
from pta.engines.pta.step import advance_by_step
from pta.engines.pta.touches import Touches, find_touches, find_touches_exactly

__all__ = ["Prototypes", "Rule", "Touches", "advance", "find_touches", "find_touches_exactly", "runs_on_gpu"]

Engine = Callable[[Prototypes, Tensor, Tensor, Touches, Rule], Tensor]

# Measured, see benchmarks/results/engine-cpu.csv. `advance_by_chunk` takes as many rounds as a class has touches;
# where nearly every sample touches every class, short chunks cost less in rounds than they lose in products.
_NUMBA_CHUNK = 256
_CHUNK = 128
_CHUNK_OF_MANY_TOUCHES = 32
_MANY_TOUCHES_PER_SAMPLE = 16
_OLDEST_FOR_TRITON = (8, 0)  # compute capability


def advance(prototypes: Prototypes, anchors: Tensor, features: Tensor, touches: Touches, rule: Rule) -> Tensor:
    """Learn B samples in order and give the cosine of each with every class's anchored prototype, B×C.

    The answers and the state are those of one sample at a time, however the batch is cut.
    """
    if prototypes.knowledge.dtype not in (torch.float32, torch.float64):
        return advance_by_loop(prototypes, anchors, features, touches, rule)
    batch = prototypes, anchors, features, touches, rule
    on_cpu = features.device.type == "cpu"
    if on_cpu and len(features) == 1:
        return advance_by_step(*batch)
    if on_cpu and numba_is_installed():
        from pta.engines.pta.numba_chunk import advance_by_numba

        return advance_in_chunks(advance_by_numba, _NUMBA_CHUNK, *batch)
    many = len(touches.samples) > _MANY_TOUCHES_PER_SAMPLE * len(features)
    return advance_in_chunks(advance_by_chunk, _CHUNK_OF_MANY_TOUCHES if many else _CHUNK, *batch)


def runs_on_gpu(prototypes: Prototypes) -> bool:
    """Whether `pta.engines.gpu.triton` can follow these prototypes."""
    return prototypes.knowledge.dtype == torch.float32 and triton_runs_on(prototypes.knowledge.device)


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


def advance_in_chunks(
    engine: Engine, size: int, prototypes: Prototypes, anchors: Tensor, features: Tensor, touches: Touches, rule: Rule
) -> Tensor:
    """Let one engine do a batch in chunks of at most `size` samples."""
    if len(features) <= size:
        return engine(prototypes, anchors, features, touches, rule)
    cosines = features.new_empty(len(features), len(anchors))
    for start in range(0, len(features), size):
        end = min(start + size, len(features))
        cosines[start:end] = engine(prototypes, anchors, features[start:end], touches.between(start, end), rule)
    return cosines
