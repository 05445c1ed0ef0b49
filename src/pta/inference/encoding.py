"""From images that are still files to features, decoding and encoding at the same time."""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from pta.encoders import Encoder
from pta.errors import InvalidParameter, PtaError, UnreadableImage
from pta.images import Preprocessing, decode_image
from pta.inference.feed import prepare_in_batches
from pta.samples import Samples
from pta.views import Mode, make_views

FAST_MARGIN = 2
"""Fast decoding leaves both sides of a JPEG at least so many times as long as the model's."""


OnError = Literal["stop", "skip"]


class ImageReference(Protocol):
    """An image that can be read when its turn comes."""

    @property
    def key(self) -> str:
        """What the user calls it."""

    def read(self) -> bytes:
        """Its content, still encoded."""


Reference = TypeVar("Reference", bound=ImageReference)


@dataclass(frozen=True)
class Views:
    """How augmented views are drawn.

    The views of image number i depend on (seed, i) alone; without a seed, on what the image shows, whenever it comes.
    """

    count: int
    mode: Mode = "augmix"
    seed: int | None = 1

    def __post_init__(self) -> None:
        if not 2 <= self.count <= 1024:
            raise InvalidParameter(f"from 2 to 1024 views can be made of an image, not {self.count}")

    def of(self, picture: Image.Image, number: int, preprocess: Preprocessing) -> NDArray[np.float32]:
        """The normalised pixels of the views of an image, count×channels×size×size."""
        seed = (zlib.crc32(picture.tobytes()),) if self.seed is None else (self.seed, number)
        return make_views(picture, preprocess, count=self.count, mode=self.mode, seed=seed).numpy()


@dataclass(frozen=True)
class Reading:
    """How images are read.

    Args:
        batch: images, or views, encoded at once.
        workers: threads that decode; see `pta.inference.feed.default_workers`.
        fast_decode: decode large JPEG files at a fraction of their size (see `FAST_MARGIN`).
        views: augmented views of every image, instead of the image alone.
        pixels: give out the pixels beside the features, for methods that look inside the image tower.
    """

    batch: int = 64
    workers: int | None = None
    fast_decode: bool = False
    views: Views | None = None
    pixels: bool = False

    def __post_init__(self) -> None:
        if self.batch < 1 or (self.workers is not None and self.workers < 1):
            raise InvalidParameter(f"batch and workers must be whole numbers from 1, not {self.batch}, {self.workers}")
        if self.fast_decode and self.views is not None:
            raise InvalidParameter(
                "views are cut out of the whole picture, so it cannot be decoded at a fraction of its size"
            )
        if self.pixels and self.views is not None:
            raise InvalidParameter("pixels are those of the plain image; they cannot be kept together with views")


@dataclass(frozen=True)
class Encoded(Generic[Reference]):
    """A batch: the numbered images that could be read with their features, and those that could not be read."""

    images: list[tuple[int, Reference]]
    tensors: dict[str, Tensor]  # `features` N×d, and `views` N×V×d or uint8 `pixels` if asked for; on the CPU
    failures: list[tuple[int, PtaError]]

    @property
    def features(self) -> Tensor:
        """N×d, float32."""
        return self.tensors["features"]


def encode_files(
    encoder: Encoder,
    numbered: Iterable[tuple[int, Reference]],
    reading: Reading,
    *,
    on_error: OnError = "stop",
    live: bool = False,
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[Encoded[Reference]]:
    """Batches of features in the order of the numbered images; for `live` and `stopping` see `prepare_in_batches`.

    With `on_error="stop"`, everything before an image that cannot be read is given out, then its error is raised; with
    `skip` it is among the failures of its batch.
    """
    views = reading.views
    at_least = FAST_MARGIN * encoder.preprocess.size if reading.fast_decode else None

    def prepare(item: tuple[int, Reference]) -> NDArray[Any]:
        number, image = item
        picture = decode_image(image.read(), image.key, at_least=at_least)
        try:
            if views is None:
                return encoder.preprocess.pixels(picture)
            return views.of(picture, number, encoder.preprocess)
        except (PtaError, MemoryError) as error:
            raise UnreadableImage(f"{image.key} cannot be used: {str(error) or 'it needs too much memory'}") from None

    size = reading.batch if views is None else max(1, reading.batch // views.count)
    for prepared in prepare_in_batches(
        numbered,
        prepare,
        batch=size,
        workers=reading.workers,
        live=live,
        step_back=encoder.device.type == "cpu",
        stopping=stopping,
    ):
        good = [(one.item, one.result) for one in prepared if one.result is not None]
        failures = [(one.item[0], one.error) for one in prepared if one.error is not None]
        stop = failures[0] if failures and on_error == "stop" else None
        if stop is not None:
            good, failures = [(item, pixels) for item, pixels in good if item[0] < stop[0]], []
        tensors = encode_prepared(encoder, [pixels for _, pixels in good], views, pixels=reading.pixels)
        yield Encoded([item for item, _ in good], tensors, failures)
        if stop is not None:
            raise unless_skipped(str(stop[1]))


def unless_skipped(complaint: str) -> UnreadableImage:
    """The error about an image that cannot be read, with the way out."""
    return UnreadableImage(f"{complaint}; --on-error skip goes on without it")


def encode_prepared(
    encoder: Encoder, prepared: list[NDArray[Any]], views: Views | None = None, *, pixels: bool = False
) -> dict[str, Tensor]:
    """The `Encoded.tensors` of several images, given as bytes or, with views, as normalised pixels."""
    if views is not None:
        seen = [encoder.encode_images(torch.from_numpy(one)).cpu() for one in prepared]
        stacked = torch.stack(seen) if seen else torch.empty(0, views.count, encoder.dim)
        return {"features": stacked[:, 0], "views": stacked}
    # numpy stacks: torch would wake all its threads for it, which fight with those that decode
    shape = (0, len(encoder.preprocess.mean), encoder.preprocess.size, encoder.preprocess.size)
    batch = torch.from_numpy(np.stack(prepared) if prepared else np.empty(shape, np.uint8))
    features = encoder.encode_images(batch).cpu() if prepared else torch.empty(0, encoder.dim)
    return {"features": features} | ({"pixels": batch} if pixels else {})


def samples_of(tensors: Mapping[str, Tensor]) -> Samples:
    """What a method is given of encoded images, of which there is at least one."""
    return Samples.of(tensors["features"], views=tensors.get("views"), pixels=tensors.get("pixels"))
