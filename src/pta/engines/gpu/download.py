"""Download: a tensor on its way from a GPU to the host."""

import torch
from torch import Tensor


class Download:
    """An asynchronous copy of a tensor to the host, started at once; a tensor on the host is not copied."""

    def __init__(self, tensor: Tensor) -> None:
        self._copy, self._done = tensor, None
        if tensor.is_cuda:
            self._copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._copy.copy_(tensor, non_blocking=True)
            self._done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            self._done.record()

    @property
    def arrived(self) -> bool:
        """Whether `wait` would return at once."""
        return self._done is None or bool(self._done.query())  # type: ignore[no-untyped-call]

    def wait(self) -> Tensor:
        """The copy, once it is complete."""
        if self._done is not None:
            self._done.synchronize()
        return self._copy
