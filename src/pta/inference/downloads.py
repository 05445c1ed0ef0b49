"""Tensors on their way from a GPU to the host."""

import torch
from torch import Tensor


class Download:
    """A copy of a tensor on the host, under way since the object was made; on the host, the tensor itself."""

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
