"""Asynchronous uploads of pixels to a GPU."""

from itertools import cycle

import torch
from torch import Tensor

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
