"""torchvision's JPEG decoder for CUDA, since its version 0.20 for batches."""

from collections.abc import Sequence

import torch
import torchvision
from torch import Tensor
from torchvision.io import ImageReadMode, decode_jpeg

from pta.images.decoders import Decoder


class _Torchvision:
    name = f"torchvision {torchvision.__version__} nvJPEG"

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def __call__(self, contents: Sequence[bytearray]) -> list[Tensor]:
        files = [torch.frombuffer(content, dtype=torch.uint8) for content in contents]
        decoded: list[Tensor] = decode_jpeg(files, mode=ImageReadMode.RGB, device=self._device)
        return decoded


def open_decoder(device: torch.device) -> Decoder:
    return _Torchvision(device)
