"""From files to raw samples: one by one on the host, or decoded and resized in batches on a GPU."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pta.core.modality import IMAGES, Modality
from pta.door.images.batch_decoder import BatchDecoder, PrepareFile
from pta.door.images.batch_decoder import Prepared as Picture
from pta.door.images.decoders import available_decoder
from pta.door.images.device import resize_ragged
from pta.door.images.jpeg import BaselineJpeg
from pta.door.limits import Limits
from pta.errors import InvalidParameter, PtaError, naming
from pta.models import Encoder, ImageEncoder
from pta.models.encoder import Prepare, Raw, content_of
from pta.models.image_encoder import PicturePreparer
from pta.run.gpu.encoder_program import ON_DEVICE
from pta.run.reading import Decode, Reading

PILLOW = "pillow"
_MOST_HANDED_ON = 2**20  # pixels


class Decoding(Protocol):
    """How samples become raw samples: first one by one in many threads, then a batch at a time."""

    name: str
    """The decoder's name, part of the provenance of features and states."""

    prepare: Prepare
    """Does the part that needs one sample only; it can run in another process."""

    def finish(self, prepared: Sequence[Any]) -> tuple[Sequence[Raw] | Tensor, list[PtaError | None]]:
        """Do the rest for a batch, in one thread: the readable raw samples, and the error of each other one."""

    def sentence(self) -> str | None:
        """How many samples each decoder took, if there is more than one."""


def open_decoding(encoder: Encoder, reading: Reading) -> Decoding:
    """The decoding to use; `auto` is a GPU if there is one with a decoder."""
    if reading.decode == "pillow" or (reading.decode == "auto" and reading.host_only):
        return _by_pillow(encoder, reading)
    decoder = available_decoder(encoder.device) if isinstance(encoder, ImageEncoder) else None
    if isinstance(encoder, ImageEncoder) and decoder is not None:
        return OnGpu(encoder, reading, BatchDecoder(decoder, encoder.preprocess, encoder.device, **reading.bounds))
    require_decoder(reading.decode, encoder.modality, encoder.device)
    return _by_pillow(encoder, reading)


def require_decoder(decode: Decode, modality: Modality, device: torch.device) -> None:
    """Refuse a decoder on a GPU for samples or a device that have none."""
    if decode != "gpu" or (modality == IMAGES and available_decoder(device) is not None):
        return
    if modality != IMAGES or device.type != "cuda":
        found = f"this one reads {modality.name}s on {device}"
        raise InvalidParameter(f"--decode gpu needs an image model on a GPU; {found}")
    packages = "torchcodec, nvidia-nvimgcodec or torchvision, built for CUDA"
    raise InvalidParameter(f"--decode gpu needs a package that decodes JPEG files on a GPU: {packages}")


def _by_pillow(encoder: Encoder, reading: Reading) -> Decoding:
    on_gpu = encoder.device.type == "cuda" and find_spec("triton") is not None
    if isinstance(encoder, ImageEncoder) and on_gpu and not reading.host_only:
        return _ResizedOnGpu(encoder, reading)
    return _OnHost(encoder, reading)


class _OnHost:
    name = PILLOW

    def __init__(self, encoder: Encoder, reading: Reading) -> None:
        self.prepare: Prepare = encoder.preparer(
            fast_decode=reading.fast_decode, views=reading.views, limits=reading.limits
        )

    def finish(self, prepared: Sequence[Raw]) -> tuple[Sequence[Raw], list[PtaError | None]]:
        return prepared, [None] * len(prepared)

    def sentence(self) -> str | None:
        return None


class _DecodeWhole(PicturePreparer):
    """A picture decoded by Pillow, 1×height×width×channels, if it is small enough to transfer; else its pixels."""

    def _maker(self, picture: Image.Image, number: int) -> Callable[[Image.Image], Raw]:
        small = picture.width * picture.height <= _MOST_HANDED_ON
        return self._whole if small else super()._maker(picture, number)

    def _whole(self, picture: Image.Image) -> Raw:
        coloured = self.preprocess.coloured(picture)
        return np.array(coloured).reshape(1, picture.height, picture.width, -1)


class _ResizedOnGpu:
    """Pictures decoded by Pillow and resized by a GPU, to the same bytes. Resizing is half of the work."""

    name = PILLOW

    def __init__(self, encoder: ImageEncoder, reading: Reading) -> None:
        self._preprocess, self._device = encoder.preprocess, encoder.device
        self.prepare: Prepare = _DecodeWhole(encoder.preprocess, None, reading.limits, None)
        self._stream = _own_stream(encoder.device)

    def finish(self, prepared: Sequence[Raw]) -> tuple[Tensor, list[PtaError | None]]:
        size = self._preprocess.size
        whole = [number for number, one in enumerate(prepared) if one.ndim == 4]
        ready = [number for number, one in enumerate(prepared) if one.ndim == 3]
        with ON_DEVICE, _on(self._stream):
            shape = (len(prepared), len(self._preprocess.mean), size, size)
            pixels = torch.empty(shape, dtype=torch.uint8, device=self._device)
            if whole:
                pictures = [torch.from_numpy(prepared[number][0]).to(self._device).permute(2, 0, 1) for number in whole]
                pixels[whole] = resize_ragged(pictures, self._preprocess)
            if ready:
                pixels[ready] = torch.from_numpy(np.stack([prepared[number] for number in ready])).to(self._device)
            _wait(self._stream)
        return pixels, [None] * len(prepared)

    def sentence(self) -> str | None:
        return None


@dataclass(frozen=True)
class _PrepareForGpu:
    """Prepares the content of a file for a GPU, and an object in memory as on the host."""

    file: PrepareFile
    other: Prepare
    limits: Limits

    def __call__(self, given: object, key: str, number: int) -> Any:
        one, name = content_of(given, key, self.limits)
        if not isinstance(one, bytes):
            return self.other(one, key, number)
        with naming(name):
            prepared = self.file(one)
        if isinstance(prepared, BaselineJpeg):  # as an array, which processes can share
            return prepared._replace(content=np.frombuffer(prepared.content, np.uint8))
        return prepared


class OnGpu:
    """JPEG files decoded on a GPU, on a separate CUDA stream; Pillow decodes unusual files."""

    def __init__(self, encoder: Encoder, reading: Reading, decoder: BatchDecoder) -> None:
        self.name, self._decoder = decoder.name, decoder
        self.prepare: Prepare = _PrepareForGpu(decoder.prepare, encoder.preparer(limits=reading.limits), reading.limits)
        self._stream = _own_stream(decoder.device)

    def finish(self, prepared: Sequence[Picture]) -> tuple[Tensor, list[PtaError | None]]:
        with ON_DEVICE, _on(self._stream):
            done = self._decoder.decode(prepared)
            good = [number for number, error in enumerate(done.errors) if error is None]
            pixels = done.pixels if len(good) == len(prepared) else done.pixels[good]
            _wait(self._stream)
        return pixels, list(done.errors)

    def sentence(self) -> str | None:
        by_gpu, by_pillow = (f"{self._decoder.counts[way]:,}" for way in ("gpu", "pillow"))
        return f"decoded by {self.name}: {by_gpu} pictures; by Pillow: {by_pillow}"


def _own_stream(device: torch.device) -> torch.cuda.Stream | None:
    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]


def _on(stream: torch.cuda.Stream | None) -> AbstractContextManager[object]:
    return nullcontext() if stream is None else torch.cuda.stream(stream)


def _wait(stream: torch.cuda.Stream | None) -> None:
    if stream is not None:
        stream.synchronize()
