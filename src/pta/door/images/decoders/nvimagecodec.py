"""NVIDIA's nvImageCodec (package nvidia-nvimgcodec)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pta.door.images.baseline import Content


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
