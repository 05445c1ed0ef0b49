"""A function of tensors recorded as a CUDA graph: one launch for all its kernels."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_WARM_UP = 2  # calls before the recording, in which libraries choose their kernels and take their memory


def recorded(function: Callable[..., Tensor], *like: Tensor, pool: Any = None) -> Callable[..., Tensor]:
    """The function for tensors like these, which are overwritten; it must do all its work on the GPU.

    Recordings that share a pool must not run at the same time.
    """
    current, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(current)
    with torch.cuda.stream(aside):
        for _ in range(_WARM_UP):
            function(*like)
    current.wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        answer = function(*like)

    def replay(*given: Tensor) -> Tensor:
        with torch.no_grad():
            for place, one in zip(like, given, strict=True):
                place.copy_(one)
        graph.replay()
        return answer.clone()

    return replay
