"""NVIDIA's nvImageCodec (package nvidia-nvimgcodec)."""

from collections.abc import Sequence

import torch
from nvidia import nvimgcodec
from torch import Tensor

from pta.images.decoders import Decoder


class _NvImageCodec:
    name = f"nvImageCodec {nvimgcodec.__version__} nvJPEG"

    def __init__(self, device: torch.device) -> None:
        self._device = device
        index = torch.cuda.current_device() if device.index is None else device.index
        # With several threads, version 0.9 waits for ever for a batch of one file that its GPU cannot decode alone.
        self._decoder = nvimgcodec.Decoder(device_id=index, max_num_cpu_threads=1)
        self._params = nvimgcodec.DecodeParams(apply_exif_orientation=False, color_spec=nvimgcodec.ColorSpec.SRGB)

    def __call__(self, contents: Sequence[bytearray]) -> list[Tensor]:
        stream = torch.cuda.current_stream(self._device).cuda_stream
        decoded = self._decoder.decode([bytes(content) for content in contents], self._params, cuda_stream=stream)
        if any(picture is None for picture in decoded):
            raise RuntimeError("nvImageCodec cannot decode a picture of the batch")
        return [torch.as_tensor(picture, device=self._device).permute(2, 0, 1) for picture in decoded]


def open_decoder(device: torch.device) -> Decoder:
    return _NvImageCodec(device)
