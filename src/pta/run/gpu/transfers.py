"""Asynchronous copies from the host to a GPU and back."""

from itertools import cycle

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


_SLOTS = 2  # one is filled while the other is read


class Uploads:
    """Sends batches, which are to be `like` one on the device, on a stream of their own."""

    def __init__(self, like: Tensor) -> None:
        self._slots = cycle([_Slot(like) for _ in range(_SLOTS)])
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream())  # it may still use the memory of the slots

    def send(self, pixels: Tensor, into: Tensor) -> None:
        """Write pixels to the first rows of `into`, on the current stream; the host does not wait for that."""
        slot = next(self._slots)
        slot.upload(pixels, self._stream)
        slot.hand_over(into[: len(pixels)])


class _Slot:
    """A batch in memory that a GPU can read by itself, and its copy there."""

    def __init__(self, like: Tensor) -> None:
        self.host = torch.empty(like.shape, dtype=like.dtype, pin_memory=True)
        self.device = torch.empty_like(like)
        self.uploaded = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.handed_over = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def upload(self, pixels: Tensor, stream: torch.cuda.Stream) -> None:
        """Copy pixels here and send them off, as soon as what was here before has left."""
        self.uploaded.synchronize()
        self.host[: len(pixels)].copy_(pixels)
        with torch.cuda.stream(stream):
            stream.wait_event(self.handed_over)
            self.device[: len(pixels)].copy_(self.host[: len(pixels)], non_blocking=True)
            self.uploaded.record()

    def hand_over(self, into: Tensor) -> None:
        """Copy what was uploaded, once it is there."""
        torch.cuda.current_stream().wait_event(self.uploaded)
        into.copy_(self.device[: len(into)])
        self.handed_over.record()
