"""The decoder of JPEG files on a GPU: nvJPEG, as torchvision has it."""

import io
import re
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from pta.door.images.bare import Content
from pta.door.images.device import kernel_runs_on

_RGB = 3  # torchvision's ImageReadMode


class Decoder:
    """JPEG files to pixels on a device, in batches since torchvision 0.20.

    Files come without metadata, so that no picture is turned by its EXIF orientation. The library is loaded alone:
    importing the package takes seconds.
    """

    def __init__(self, device: torch.device) -> None:
        package = find_spec("torchvision")
        if package is None or package.origin is None:
            raise ImportError("torchvision is not installed")
        folder = Path(package.origin).parent
        torch.ops.load_library(next(folder.glob("image.*")))  # type: ignore[no-untyped-call]
        # which the package's metadata may give without the version of CUDA
        version = re.search(r"__version__ = '(.*)'", (folder / "version.py").read_text())
        # part of what a result was made with
        self.name = f"torchvision {version[1] if version else ''} nvJPEG"
        self._device = device

    def __call__(self, contents: Sequence[Content]) -> list[Tensor]:
        """One uint8 tensor per file, 3×height×width, in any memory layout; an error if any file cannot be decoded."""
        # It writes in streams of its own to memory that this stream may still read, and does not wait for it.
        torch.cuda.current_stream(self._device).synchronize()
        files = [torch.frombuffer(content, dtype=torch.uint8) for content in contents]
        decoded: list[Tensor] = torch.ops.image.decode_jpegs_cuda(files, _RGB, self._device)
        return decoded


def opening_decoder(device: torch.device) -> Future[Decoder | None]:
    """The decoder to come. It is opened in a thread, because its library takes seconds to start."""
    return _opening(torch.device("cuda", device.index or 0))


@cache
def _opening(device: torch.device) -> Future[Decoder | None]:
    pool = ThreadPoolExecutor(1, "open")
    opening = pool.submit(_open, device)
    pool.shutdown(wait=False)
    return opening


def available_decoder(device: torch.device) -> Decoder | None:
    """The decoder, if it is installed and decodes a small picture."""
    return opening_decoder(device).result() if device.type == "cuda" else None


def _open(device: torch.device) -> Decoder | None:
    kernel_runs_on(device)  # pictures are resized there, whatever decodes them
    trial = io.BytesIO()
    Image.new("RGB", (16, 16)).save(trial, "JPEG")
    try:
        decoder = Decoder(device)
        decoder([bytearray(trial.getvalue())])
    except Exception:  # not installed, too old, or built without CUDA: it says so in many ways
        return None
    return decoder
