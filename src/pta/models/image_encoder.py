"""ImageEncoder: an encoder whose samples are pictures."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from pta.core.limits import USUAL_LIMITS, Limits
from pta.core.modality import IMAGES
from pta.door.images import Preprocessing, as_picture, open_image
from pta.door.images.reading import made_in_room
from pta.errors import InvalidSamples, naming
from pta.models.encoder import Encoder, Prepare, Raw, ViewMaker, content_of

FAST_MARGIN = 2
"""Fast decoding leaves both sides of a JPEG at least this many times as long as the model's."""


@dataclass(frozen=True)
class PicturePreparer:
    """Makes the pixels, or the normalised pixels of the views, of an image within the limits; see `open_image`."""

    preprocess: Preprocessing
    views: ViewMaker | None
    limits: Limits
    at_least: int | None

    def __call__(self, given: object, key: str, number: int) -> Raw:
        one, name = content_of(given, key, self.limits)
        with naming(name):
            if isinstance(one, bytes):
                picture = open_image(one, limits=self.limits, at_least=self.at_least)
            else:
                picture = as_picture(one)
            return made_in_room(picture, self.preprocess, self._maker(picture, number))

    def _maker(self, picture: Image.Image, number: int) -> Callable[[Image.Image], Raw]:
        """What makes the raw sample of a picture, which is open but not decoded."""
        if self.views is None:
            return self.preprocess.pixels
        views = self.views
        return lambda one: views.of(one, number, self.preprocess)


class ImageEncoder(Encoder):
    """Images and texts to unit rows of one space; raw samples are uint8 pixels channels×size×size.

    A model says how its pixels are made (`preprocess`); pixels that are normalised already are taken as well.
    """

    modality = IMAGES
    preprocess: Preprocessing

    def preparer(
        self, *, fast_decode: bool = False, views: ViewMaker | None = None, limits: Limits = USUAL_LIMITS
    ) -> Prepare:
        """What makes the pixels, or the normalised pixels of the views, of an image within the limits."""
        at_least = FAST_MARGIN * self.preprocess.size if fast_decode else None
        return PicturePreparer(self.preprocess, views, limits, at_least)

    def as_raw(self, given: object, key: str = "the image") -> Raw:
        """The pixels of bytes, a path, a Pillow image or a uint8 array of rows×columns(×3, red first)."""
        return self.preparer()(given, key, 0)

    def prepare(self, content: bytes, key: str = "the image") -> Raw:
        """An encoded picture to pixels."""
        return self.as_raw(content, key)

    @property
    def preparation(self) -> dict[str, Any]:
        """How the pixels are made."""
        return asdict(self.preprocess)

    def patch_count(self) -> int:
        """How many patches the model gives of a picture: it is asked about a blank one."""
        return self.encode_tokens(torch.zeros(1, *self._pixel_shape)).shape[1]

    def _ready(self, batch: Tensor) -> Tensor:
        moved = batch.to(self.device, non_blocking=True)
        if moved.dtype == torch.uint8:
            return self.preprocess.normalise(moved).to(self.dtype)
        if tuple(moved.shape[1:]) != self._pixel_shape:
            given, expected = ("×".join(map(str, shape)) for shape in (moved.shape, self._pixel_shape))
            raise InvalidSamples(f"pixels must be of shape N×{expected}, not {given}")
        return moved.to(self.dtype)

    @property
    def _pixel_shape(self) -> tuple[int, int, int]:
        return len(self.preprocess.mean), self.preprocess.size, self.preprocess.size
