"""torchcodec's JPEG decoder for CUDA."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from pta.door.images.baseline import Content


class TorchcodecDecoder:
    """Exists since torchcodec 0.16, where it replaces torchvision's."""

    def __init__(self, device: torch.device) -> None:
        import torchcodec
        from torchcodec.decoders import decode_jpeg

        self.name = f"torchcodec {torchcodec.__version__} nvJPEG"
        self._decode = partial(decode_jpeg, mode="RGB", device=device)

    def __call__(self, contents: Sequence[Content]) -> list[Tensor]:
        """Files to planes of red, green and blue."""
        return self._decode([torch.frombuffer(content, dtype=torch.uint8) for content in contents])
