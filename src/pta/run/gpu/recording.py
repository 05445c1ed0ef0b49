"""Work on fixed tensors as a CUDA graph, which a GPU replays without the host."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

_WARM_UPS = 3  # kernels are compiled and chosen before they are recorded


class Recording:
    """What `work` does with tensors that stay where they are; after recording, its `state` is as it was before.

    All recordings of a program share a stream, because libraries keep memory for each.
    """

    def __init__(
        self, work: Callable[[], tuple[Tensor, ...]], state: Iterable[Tensor], stream: torch.cuda.Stream
    ) -> None:
        written = list(state)
        saved = [tensor.clone() for tensor in written]
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UPS):
                    work()
        finally:
            torch.cuda.current_stream().wait_stream(stream)
            for tensor, before in zip(written, saved, strict=True):
                tensor.copy_(before)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            self._results = work()

    def replay(self) -> tuple[Tensor, ...]:
        """Do the work; the results are copies."""
        self._graph.replay()
        return tuple(result.clone() for result in self._results)
