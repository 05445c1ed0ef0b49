"""How samples are read: options, views, and decoding, one by one on the host or in batches on a GPU."""

import sys
import zlib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from pta.core.limits import USUAL_LIMITS, Limits
from pta.core.modality import IMAGES, Modality
from pta.core.parameters import check_given, choice, count, require_seed
from pta.data.generated import GeneratedPictures
from pta.data.views import MODES, MOST_VIEWS, Mode, make_views
from pta.door.images import Preprocessing
from pta.door.images.bare import BaselineJpeg
from pta.door.images.batch_decoder import DECODE_MEMORY, BatchDecoder, PrepareFile
from pta.door.images.batch_decoder import Prepared as Picture
from pta.door.images.decoders import available_decoder, opening_decoder
from pta.door.images.device import kernel_runs_on, resize_ragged
from pta.door.patience import USUAL_PATIENCE, Patience
from pta.errors import InvalidParameter, PtaError, naming, nearest, shown
from pta.models import Encoder, ImageEncoder
from pta.models.encoder import PicturePreparer, Prepare, Raw, content_of
from pta.run.feed.workers import start_server
from pta.run.gpu.encoder_program import ON_DEVICE, are_many

Decode = Literal["auto", "pillow", "gpu"]
_CHECKED = {
    "batch": count(64, 1, 2**20, "samples, or views, encoded at once"),
    "workers": count(None, 1, 1024, "threads or processes that prepare them"),
    "decode": choice("auto", Decode, "what decodes images"),
    "decode_memory": count(DECODE_MEMORY, 1, 2**40, "bytes of decoded pixels on the GPU at once"),
}


@dataclass(frozen=True)
class Views:
    """How augmented views are drawn.

    The views of image number i depend only on (seed, i); without a seed, only on the image's content.
    """

    count: int
    mode: Mode = "augmix"
    seed: int | None = 1

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or not 2 <= self.count <= MOST_VIEWS:
            raise InvalidParameter(f"an image can have 2 to {MOST_VIEWS} views, not {shown(self.count)}")
        if self.mode not in MODES:
            raise InvalidParameter(f"mode={shown(self.mode)} is not a choice; {nearest(self.mode, MODES)}")
        if self.seed is not None:
            require_seed(self.seed)

    @classmethod
    def crops(cls, count: int) -> "Views":
        """How the views of a stream are drawn: an image's depend on its content alone."""
        return cls(count, "crops", seed=None)

    def of(self, picture: Image.Image, number: int, preprocess: Preprocessing) -> NDArray[np.float32]:
        """The normalised pixels of the views of an image, count×channels×size×size."""
        seed = (zlib.crc32(picture.tobytes()),) if self.seed is None else (self.seed, number)
        return make_views(picture, preprocess, count=self.count, mode=self.mode, seed=seed).numpy()


@dataclass(frozen=True)
class Reading:
    """How samples are read."""

    batch: int = 64  # samples, or views, encoded at once
    workers: int | None = None  # threads that prepare them; see `pta.run.feed.batches.default_workers`
    fast_decode: bool = False  # large JPEG files at a fraction of their size (`pta.models.encoder.FAST_MARGIN`)
    views: Views | None = None  # augmented views of every sample, instead of the sample alone
    raw: bool = False  # give out raw samples beside the features, for methods that look inside a tower
    limits: Limits = USUAL_LIMITS  # what is larger cannot be read
    patches: bool = False  # give out the features of the plain sample's patches, too
    generated: GeneratedPictures | None = None  # encode these as well, each as a plain sample
    decode: Decode = "auto"  # what decodes images: Pillow, or a GPU where there is one with a decoder
    decode_memory: int = DECODE_MEMORY  # bytes of decoded pixels on the GPU at once
    # the workers are processes, not threads; only for images; None: for many of them and a model on a GPU
    processes: bool | None = False
    compiled: bool = True  # compile the model on a GPU; see `pta.run.gpu.encoder_program`
    patience: Patience = field(default=USUAL_PATIENCE, compare=False)  # with a storage that does not give a sample
    give_up_unread: bool = False  # go on without samples that it does not give

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in _CHECKED}
        check_given("a Reading", _CHECKED, {name: one for name, one in given.items() if one is not None})
        self._require_fitting()

    def _require_fitting(self) -> None:
        """Refuse what cannot be had together."""
        if self.decode == "gpu" and self.host_only:
            raise InvalidParameter(f"{self.host_only} are made by Pillow; leave out --decode gpu")
        if self.fast_decode and self.views is not None:
            raise InvalidParameter("views are cut from the full picture, so --fast-decode cannot be used with them")
        if self.raw and self.views is not None:
            raise InvalidParameter("pixels (of the plain image) cannot be stored together with views")

    @property
    def host_only(self) -> str | None:
        """What is asked for that a GPU does not decode, in words."""
        asked = {"pictures at a fraction of their size (--fast-decode)": self.fast_decode}
        asked |= {"views": self.views is not None, "generated pictures": self.generated is not None}
        return next((what for what, wanted in asked.items() if wanted), None)

    def with_processes(self, on_gpu: bool, expected: int | None) -> bool:
        """Whether processes prepare so many pictures."""
        return on_gpu and are_many(expected) if self.processes is None else self.processes

    @property
    def samples_at_once(self) -> int:
        """How many samples a batch holds."""
        return max(1, self.batch // self.encoded_per_sample)

    @property
    def encoded_at_once(self) -> int:
        """How many raw samples the model is given at once: a batch of samples, or the views of one."""
        return self.views.count if self.views else self.samples_at_once

    @property
    def encoded_per_sample(self) -> int:
        """How many raw samples are encoded for one: its views, or itself, and its generated pictures."""
        return (self.views.count if self.views else 1) + (self.generated.count if self.generated else 0)

    def changed(self, **values: Any) -> "Reading":
        """The same with some other values, which are not checked."""
        if values.items() <= vars(self).items():
            return self
        other = copy(self)
        vars(other).update(values)
        return other

    def for_needs(self, needs: frozenset[str], views: Views) -> "Reading":
        """The same for a method that needs this; `views` says how they are drawn if it needs them."""
        wanted = {"views": views if "views" in needs else None, "raw": "raw" in needs, "patches": "patches" in needs}
        fitting = self.changed(**wanted, generated=None)
        if fitting is not self:
            fitting._require_fitting()
        return fitting


PILLOW = "pillow"
_MOST_HANDED_ON = 2**20  # pixels


class Decoding:
    """How samples become raw samples: first one by one in many threads, then a batch at a time. Here, one by one.

    Args:
        prepare: does the part that needs one sample only; it can run in another process.
    """

    name = PILLOW
    """The decoder's name, part of the provenance of features and states."""

    def __init__(self, prepare: Prepare) -> None:
        self.prepare = prepare

    def finish(self, prepared: Sequence[Any]) -> tuple[Sequence[Raw] | Tensor, list[PtaError | None]]:
        """Do the rest for a batch, in one thread: the readable raw samples, and the error of each other one."""
        return prepared, [None] * len(prepared)

    def sentence(self) -> str | None:
        """How many samples each decoder took, if there is more than one."""
        return None


def open_decoding(encoder: Encoder, reading: Reading) -> Decoding:
    """The decoding to use; `auto` is a GPU if there is one with a decoder."""
    device = encoder.device
    if reading.decode == "gpu" or (reading.decode == "auto" and not reading.host_only):
        decoder = available_decoder(device) if isinstance(encoder, ImageEncoder) else None
        if isinstance(encoder, ImageEncoder) and decoder is not None:
            prepare = PrepareFile(encoder.preprocess, reading.limits, reading.decode_memory)
            return _OnGpu(encoder, reading, BatchDecoder(decoder, prepare, device))
        require_decoder(reading.decode, encoder.modality, device)
    if isinstance(encoder, ImageEncoder) and not reading.host_only and kernel_runs_on(device):
        return _ResizedOnGpu(encoder, reading)
    fast, views = reading.fast_decode, reading.views
    return Decoding(encoder.preparer(fast_decode=fast, views=views, limits=reading.limits))


def start_early(reading: Reading, modality: Modality, device: torch.device, expected: int | None) -> None:
    """Let what takes seconds to start do so while a model is loaded: the GPU's decoder, the server of processes."""
    on_gpu = device.type == "cuda"
    if modality == IMAGES and on_gpu and reading.decode != "pillow" and not reading.host_only:
        opening_decoder(device)
    if modality == IMAGES and sys.platform == "linux" and reading.with_processes(on_gpu, expected):
        start_server()


def require_decoder(decode: Decode, modality: Modality, device: torch.device) -> None:
    """Refuse a decoder on a GPU for samples or a device that have none."""
    if decode != "gpu" or (modality == IMAGES and available_decoder(device) is not None):
        return
    if modality != IMAGES or device.type != "cuda":
        found = f"this one reads {modality.name}s on {device}"
        raise InvalidParameter(f"--decode gpu needs an image model on a GPU; {found}")
    raise InvalidParameter("--decode gpu needs torchvision, built for CUDA, to decode JPEG files on a GPU")


class _DecodeWhole(PicturePreparer):
    """A picture decoded by Pillow, 1×height×width×channels, if it is small enough to transfer; else its pixels."""

    def _raw(self, number: int, picture: Image.Image) -> Raw:
        if picture.width * picture.height > _MOST_HANDED_ON:
            return super()._raw(number, picture)
        coloured = self.preprocess.coloured(picture)
        return np.array(coloured).reshape(1, picture.height, picture.width, -1)


class _ResizedOnGpu(Decoding):
    """Pictures decoded by Pillow and resized by a GPU, to the same bytes. Resizing is half of the work."""

    def __init__(self, encoder: ImageEncoder, reading: Reading) -> None:
        super().__init__(_DecodeWhole(encoder.preprocess, None, reading.limits, None))
        self._preprocess, self._device = encoder.preprocess, encoder.device
        self._stream = _own_stream(encoder.device)

    def finish(self, prepared: Sequence[Raw]) -> tuple[Tensor, list[PtaError | None]]:
        size = self._preprocess.size
        whole = [number for number, one in enumerate(prepared) if one.ndim == 4]
        ready = [number for number, one in enumerate(prepared) if one.ndim == 3]
        with ON_DEVICE, torch.cuda.stream(self._stream):
            shape = (len(prepared), len(self._preprocess.mean), size, size)
            pixels = torch.empty(shape, dtype=torch.uint8, device=self._device)
            if whole:
                pictures = [torch.from_numpy(prepared[number][0]).to(self._device).permute(2, 0, 1) for number in whole]
                pixels[whole] = resize_ragged(pictures, self._preprocess)
            if ready:
                pixels[ready] = torch.from_numpy(np.stack([prepared[number] for number in ready])).to(self._device)
            _wait(self._stream)
        return pixels, [None] * len(prepared)


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


class _OnGpu(Decoding):
    """JPEG files decoded on a GPU, on a separate CUDA stream; Pillow decodes unusual files."""

    def __init__(self, encoder: Encoder, reading: Reading, decoder: BatchDecoder) -> None:
        super().__init__(_PrepareForGpu(decoder.prepare, encoder.preparer(limits=reading.limits), reading.limits))
        self.name, self._decoder = decoder.decoder.name, decoder
        self._stream = _own_stream(decoder.device)

    def finish(self, prepared: Sequence[Picture]) -> tuple[Tensor, list[PtaError | None]]:
        with ON_DEVICE, torch.cuda.stream(self._stream):
            done = self._decoder.decode(prepared)
            good = [number for number, error in enumerate(done.errors) if error is None]
            pixels = done.pixels if len(good) == len(prepared) else done.pixels[good]
            _wait(self._stream)
        return pixels, list(done.errors)

    def sentence(self) -> str | None:
        by_gpu, by_pillow = (f"{self._decoder.counts[way]:,}" for way in ("gpu", "pillow"))
        return f"decoded by {self.name}: {by_gpu} pictures; by Pillow: {by_pillow}"


def _own_stream(device: torch.device) -> torch.cuda.Stream | None:
    """A stream whose few kernels go before those of the model that wait."""
    return torch.cuda.Stream(device, priority=-1) if device.type == "cuda" else None  # type: ignore[no-untyped-call]


def _wait(stream: torch.cuda.Stream | None) -> None:
    if stream is not None:
        stream.synchronize()
