"""Decoders of JPEG files on a GPU: one class per package that has one. A package is imported when it is asked for."""

import io
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Protocol

import torch
from PIL import Image
from torch import Tensor

from pta.door.images.bare import Content


class Decoder(Protocol):
    """JPEG files to pixels on a device.

    Files come without metadata, so that no decoder turns a picture by its EXIF orientation.
    """

    name: str
    """Package, version and library, such as "torchvision 0.26.0 nvJPEG": part of what a result was made with."""

    def __call__(self, contents: Sequence[Content]) -> list[Tensor]:
        """One uint8 tensor per file, 3×height×width, in any memory layout; an error if any file cannot be decoded."""
        ...


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


class NvImageCodecDecoder:
    """Chooses between the GPU's JPEG engines, its cores and the host by itself."""

    def __init__(self, device: torch.device) -> None:
        from nvidia import nvimgcodec

        self.name = f"nvImageCodec {nvimgcodec.__version__} nvJPEG"
        self._device = device
        index = torch.cuda.current_device() if device.index is None else device.index
        # With several threads, version 0.9 waits for ever for a batch of one file that the host decodes in part.
        self._decoder = nvimgcodec.Decoder(device_id=index, max_num_cpu_threads=1)
        self._params = nvimgcodec.DecodeParams(apply_exif_orientation=False, color_spec=nvimgcodec.ColorSpec.SRGB)

    def __call__(self, contents: Sequence[Content]) -> list[Tensor]:
        """Files to pixels of red, green and blue, seen as planes."""
        stream = torch.cuda.current_stream(self._device).cuda_stream
        files = [bytes(content) for content in contents]
        decoded = self._decoder.decode(files, params=self._params, cuda_stream=stream)
        if any(picture is None for picture in decoded):
            raise RuntimeError("nvImageCodec cannot decode a file of the batch")
        return [torch.as_tensor(picture, device=self._device).permute(2, 0, 1) for picture in decoded]


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


_DECODERS = (TorchcodecDecoder, NvImageCodecDecoder, TorchvisionDecoder)


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
