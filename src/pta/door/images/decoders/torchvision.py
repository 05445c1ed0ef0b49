"""torchvision's JPEG decoder for CUDA."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from pta.door.images.baseline import Content


class TorchvisionDecoder:
    """Takes batches since torchvision 0.20."""

    def __init__(self, device: torch.device) -> None:
        import torchvision
        from torchvision.io import ImageReadMode, decode_jpeg

        self.name = f"torchvision {torchvision.__version__} nvJPEG"
        self._device = device
        self._decode = partial(decode_jpeg, mode=ImageReadMode.RGB, device=device)

    def __call__(self, contents: Sequence[Content]) -> list[Tensor]:
        """Files to planes of red, green and blue."""
        # It writes in a stream of its own to memory that this stream may still read, and does not wait for it.
        torch.cuda.current_stream(self._device).synchronize()
        return self._decode([torch.frombuffer(content, dtype=torch.uint8) for content in contents])
