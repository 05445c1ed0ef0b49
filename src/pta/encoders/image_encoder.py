"""ImageEncoder: an encoder whose samples are pictures."""

from typing import Any

import torch
from torch import Tensor

from pta.encoders.encoder import Encoder, Prepare, Raw, ViewMaker, content_of
from pta.errors import InvalidSamples, PtaError, UnreadableSample
from pta.images import Preprocessing, as_picture, decode_image
from pta.modality import IMAGES

FAST_MARGIN = 2
"""Fast decoding leaves both sides of a JPEG at least so many times as long as the model's."""


class ImageEncoder(Encoder):
    """Images and texts to unit rows of one space; raw samples are uint8 pixels channels×size×size.

    A model says how its pixels are made (`preprocess`); pixels that are normalised already are taken as well.
    """

    modality = IMAGES
    preprocess: Preprocessing

    def preparer(self, *, fast_decode: bool = False, views: ViewMaker | None = None) -> Prepare:
        """What makes the pixels, or the normalised pixels of the views, of an image."""
        at_least = FAST_MARGIN * self.preprocess.size if fast_decode else None

        def prepare(given: object, key: str, number: int) -> Raw:
            one, name = content_of(given, key)
            picture = decode_image(one, name, at_least=at_least) if isinstance(one, bytes) else as_picture(one)
            try:
                if views is None:
                    return self.preprocess.pixels(picture)
                return views.of(picture, number, self.preprocess)
            except (PtaError, MemoryError) as error:
                raise UnreadableSample(f"{key} cannot be used: {str(error) or 'it needs too much memory'}") from None

        return prepare

    def prepare(self, content: bytes, key: str = "the image") -> Raw:
        """An encoded picture to pixels."""
        return self.preparer()(content, key, 0)

    def as_raw(self, given: object, key: str = "the image") -> Raw:
        """The pixels of bytes, a path, a Pillow image or a uint8 array of rows×columns(×3, red first)."""
        return self.preparer()(given, key, 0)

    @property
    def preparation(self) -> dict[str, Any]:
        """How the pixels are made."""
        return self.preprocess.describe()

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
