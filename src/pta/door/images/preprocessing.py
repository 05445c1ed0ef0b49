"""From a picture to the pixels a model wants: resize, crop, scale to [0, 1], normalise. Pillow does the resizing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from pta.errors import InvalidParameter, InvalidSamples, UnreadableSample, shown

Pixels = npt.NDArray[np.uint8]

_LARGEST_SIZE = 4096
_COLOURS = {1: "L", 3: "RGB"}
_MOST_RESIZED = 89_478_485  # pixels, before the centre is cut out: bounds how thin a picture may be
FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


@dataclass(frozen=True)
class Preprocessing:
    """How a model's images are made; the defaults are CLIP's.

    >>> CLIP_PREPROCESSING(Image.new("RGB", (640, 480))).shape
    torch.Size([1, 3, 224, 224])
    """

    size: int = 224  # side of the square the model sees
    # `shortest` scales the shorter side to `size` and cuts the centre out, `square` squeezes both sides
    resize: Literal["shortest", "square"] = "shortest"
    resample: str = "bicubic"  # Pillow's filter, antialiased
    # Of each channel, after scaling to [0, 1]; one channel means grey images.
    mean: tuple[float, ...] = (0.48145466, 0.4578275, 0.40821073)
    std: tuple[float, ...] = (0.26862954, 0.26130258, 0.27577711)

    def __post_init__(self) -> None:
        sized = isinstance(self.size, int) and 1 <= self.size <= _LARGEST_SIZE
        if not sized or self.resize not in ("shortest", "square") or self.resample not in FILTERS:
            raise InvalidParameter(f"cannot preprocess images by {shown(self, most=200)}")
        in_bounds = all(abs(value) <= 1000 for value in (*self.mean, *self.std)) and min(self.std) >= 0.001
        if not in_bounds or not len(self.std) == len(self.mean) in _COLOURS:
            found = f"{shown(self.mean)}, {shown(self.std)}"
            raise InvalidParameter(f"mean and std must be one or three numbers up to 1000, std from 0.001: {found}")

    def __call__(self, images: Image.Image | Sequence[Image.Image] | Pixels) -> Tensor:
        """Pictures, or bytes that have the right size already, to a normalised batch N×channels×size×size."""
        if isinstance(images, np.ndarray):
            grey = images.ndim == 3 and len(self.mean) == 1
            return self.normalise(torch.tensor(images[:, None] if grey else images))
        pictures = images if isinstance(images, Sequence) else [images]
        batch = np.array([self.pixels(picture) for picture in pictures], np.uint8)
        return self.normalise(torch.from_numpy(batch.reshape(-1, len(self.mean), self.size, self.size)))

    def pixels(self, image: Image.Image) -> Pixels:
        """A picture of any size and mode to channels×size×size bytes."""
        picture = self.coloured(image)
        (width, height), (left, top) = self.geometry(*picture.size)
        resized = picture.resize((width, height), FILTERS[self.resample])
        central = resized.crop((left, top, left + self.size, top + self.size))
        return np.asarray(central).reshape(self.size, self.size, -1).transpose(2, 0, 1).copy()

    def coloured(self, image: Image.Image) -> Image.Image:
        """A picture of any mode in the model's colours, 8 bits per channel."""
        if image.mode.startswith("I;16"):  # Pillow would cut off what is above 255
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        if image.mode in ("I", "F"):
            raise UnreadableSample("its values have 32 bits and an unknown range; save it with 8 or 16")
        colours = _COLOURS[len(self.mean)]
        try:
            return image if image.mode == colours else image.convert(colours)  # which would copy it
        except ValueError as error:
            raise UnreadableSample(str(error)) from None

    def normalise(self, pixels: Tensor) -> Tensor:
        """A uint8 batch N×channels×size×size to float32, where it is."""
        expected = (len(self.mean), self.size, self.size)
        require_bytes("pixels", pixels, expected, "for other sizes pass Pillow images to preprocess")
        mean, std = (_planes(values, pixels.device) for values in (self.mean, self.std))
        return pixels.float().div_(255).sub_(mean).div_(std)

    def geometry(self, width: int, height: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """The width and height that a picture is resized to, and the left and top of what is then cut out."""
        if min(width, height) < 1:
            raise UnreadableSample(f"{width}×{height} pixels are not a picture")
        resized, shorter = (self.size, self.size), min(width, height)
        if self.resize == "shortest":
            resized = max(self.size, self.size * width // shorter), max(self.size, self.size * height // shorter)
        if resized[0] * resized[1] > _MOST_RESIZED:
            raise UnreadableSample(f"{width}×{height} pixels are too thin a picture to be resized")
        return resized, (round((resized[0] - self.size) / 2), round((resized[1] - self.size) / 2))


def _planes(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Channels×1×1, filled where it is needed: a copy from the host would keep a GPU from recording it."""
    return torch.stack([torch.full((1, 1), value, device=device) for value in values])


def require_bytes(what: str, given: Tensor, expected: tuple[int, ...], otherwise: str) -> None:
    """Refuse what is not a uint8 batch N×channels×height×width; `otherwise` says what to do with other sizes."""
    if given.dtype != torch.uint8 or given.ndim != 4 or tuple(given.shape[1:]) != expected:
        raise InvalidSamples(
            f"{what} must be uint8 of shape N×{'×'.join(map(str, expected))}, not {given.dtype} of shape "
            f"{'×'.join(map(str, given.shape))}; {otherwise}"
        )


CLIP_PREPROCESSING = Preprocessing()
