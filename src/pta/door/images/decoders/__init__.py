"""Decoders of JPEG files on a GPU: one file per package that has one. A package is imported when it is asked for."""

import io
from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from PIL import Image
from torch import Tensor

from pta.door.images.baseline import Content
from pta.door.images.decoders.nvimagecodec import NvImageCodecDecoder
from pta.door.images.decoders.torchcodec import TorchcodecDecoder
from pta.door.images.decoders.torchvision import TorchvisionDecoder

_DECODERS = (TorchcodecDecoder, NvImageCodecDecoder, TorchvisionDecoder)


class Decoder(Protocol):
    """JPEG files to pixels on a device.

    Files come without metadata, so that no decoder turns a picture by its EXIF orientation.
    """

    name: str
    """Package, version and library, such as "torchvision 0.26.0 nvJPEG": part of what a result was made with."""

    def __call__(self, contents: Sequence[Content]) -> list[Tensor]:
        """One uint8 tensor per file, 3×height×width, in any memory layout; an error if any file cannot be decoded."""
        ...


def available_decoder(device: torch.device) -> Decoder | None:
    """The best decoder that is installed; None where there is none."""
    return next(installed_decoders(device), None)


def installed_decoders(device: torch.device) -> Iterator[Decoder]:
    """The decoders of the packages that are installed and decode a small picture, the best first."""
    trial = io.BytesIO()
    Image.new("RGB", (16, 16)).save(trial, "JPEG")
    for kind in _DECODERS if device.type == "cuda" else ():
        try:
            decoder: Decoder = kind(device)
            decoder([bytearray(trial.getvalue())])
        except Exception:  # not installed, too old, or built without CUDA: packages say so in many ways
            continue
        yield decoder
