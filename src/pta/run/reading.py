"""Reading: how samples are read, and how views of them are drawn."""

import zlib
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pta.core.parameters import require_choice, require_count, require_seed
from pta.data.generated import GeneratedPictures
from pta.data.views import MODES, MOST_VIEWS, Mode, make_views
from pta.door.images import Preprocessing
from pta.door.images.batch_decoder import DECODE_MEMORY
from pta.door.limits import USUAL_LIMITS, Limits
from pta.errors import InvalidParameter, shown

_LARGEST_BATCH, _MOST_WORKERS, _MOST_MEMORY = 2**20, 1024, 2**40


Decode = Literal["auto", "pillow", "gpu"]


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
        require_choice("mode", self.mode, MODES)
        if self.seed is not None:
            require_seed(self.seed)

    def of(self, picture: Image.Image, number: int, preprocess: Preprocessing) -> NDArray[np.float32]:
        """The normalised pixels of the views of an image, count×channels×size×size."""
        seed = (zlib.crc32(picture.tobytes()),) if self.seed is None else (self.seed, number)
        return make_views(picture, preprocess, count=self.count, mode=self.mode, seed=seed).numpy()


@dataclass(frozen=True)
class Reading:
    """How samples are read."""

    batch: int = 64  # samples, or views, encoded at once
    workers: int | None = None  # threads that prepare them; see `pta.run.feed.batches.default_workers`
    fast_decode: bool = False  # large JPEG files at a fraction of their size (`pta.models.image_encoder.FAST_MARGIN`)
    views: Views | None = None  # augmented views of every sample, instead of the sample alone
    raw: bool = False  # give out raw samples beside the features, for methods that look inside a tower
    limits: Limits = USUAL_LIMITS  # what is larger cannot be read
    patches: bool = False  # give out the features of the plain sample's patches, too
    generated: GeneratedPictures | None = None  # encode these as well, each as a plain sample
    decode: Decode = "auto"  # what decodes images: Pillow, or a GPU where there is one with a decoder
    decode_memory: int = DECODE_MEMORY  # bytes of decoded pixels on the GPU at once
    processes: bool = False  # the workers are processes, not threads; only for images
    compiled: bool = True  # compile the model on a GPU; see `pta.run.gpu.encoder_program`

    def __post_init__(self) -> None:
        require_count("batch", self.batch, 1, _LARGEST_BATCH)
        if self.workers is not None:
            require_count("workers", self.workers, 1, _MOST_WORKERS)
        require_choice("decode", self.decode, get_args(Decode))
        require_count("decode_memory", self.decode_memory, 1, _MOST_MEMORY)
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

    @property
    def bounds(self) -> dict[str, Any]:
        """What a decoder on a GPU must not exceed."""
        return {"limits": self.limits, "decode_memory": self.decode_memory}

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
