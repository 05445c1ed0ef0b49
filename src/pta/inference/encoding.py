"""From samples that are still files to features, preparing and encoding at the same time."""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from pta.datasets.generated import GeneratedPictures
from pta.datasets.sample_set import SampleReference
from pta.encoders import Encoder
from pta.encoders.encoder import Raw, by_shape
from pta.errors import InvalidParameter, InvalidSamples, PtaError, UnreadableSample, naming, shown
from pta.images import Preprocessing
from pta.inference.feed import prepare_in_batches
from pta.limits import USUAL_LIMITS, Limits
from pta.parameters import require_choice, require_count, require_seed
from pta.samples import Samples
from pta.views import MODES, MOST_VIEWS, Mode, make_views

OnError = Literal["stop", "skip"]

_FIRST_SHARE = 8
_LARGEST_BATCH, _MOST_WORKERS = 2**20, 1024

Reference = TypeVar("Reference", bound=SampleReference)


@dataclass(frozen=True)
class Views:
    """How augmented views are drawn.

    The views of image number i depend on (seed, i) alone; without a seed, on what the image shows, whenever it comes.
    """

    count: int
    mode: Mode = "augmix"
    seed: int | None = 1

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or not 2 <= self.count <= MOST_VIEWS:
            raise InvalidParameter(f"from 2 to {MOST_VIEWS} views can be made of an image, not {shown(self.count)}")
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
    workers: int | None = None  # threads that prepare them; see `pta.inference.feed.default_workers`
    fast_decode: bool = False  # large JPEG files at a fraction of their size (`pta.encoders.image_encoder.FAST_MARGIN`)
    views: Views | None = None  # augmented views of every sample, instead of the sample alone
    raw: bool = False  # give out raw samples beside the features, for methods that look inside a tower
    limits: Limits = USUAL_LIMITS  # what is larger cannot be read
    patches: bool = False  # give out the features of the plain sample's patches, too
    generated: GeneratedPictures | None = None  # encode these as well, each as a plain sample

    def __post_init__(self) -> None:
        require_count("batch", self.batch, 1, _LARGEST_BATCH)
        if self.workers is not None:
            require_count("workers", self.workers, 1, _MOST_WORKERS)
        if self.fast_decode and self.views is not None:
            raise InvalidParameter(
                "views are cut out of the whole picture, so it cannot be decoded at a fraction of its size"
            )
        if self.raw and self.views is not None:
            raise InvalidParameter("pixels are those of the plain image; they cannot be kept together with views")

    @property
    def samples_at_once(self) -> int:
        """How many samples a batch holds."""
        return max(1, self.batch // self.encoded_per_sample)

    @property
    def encoded_per_sample(self) -> int:
        """How many raw samples are encoded for one: its views, or itself, and its generated pictures."""
        return (self.views.count if self.views else 1) + (self.generated.count if self.generated else 0)

    def for_needs(self, needs: frozenset[str], views: Views) -> "Reading":
        """The same for a method that needs this; `views` says how they are drawn if it needs them."""
        views_if_needed = views if "views" in needs else None
        return replace(self, views=views_if_needed, raw="raw" in needs, patches="patches" in needs, generated=None)


@dataclass(frozen=True)
class Encoded(Generic[Reference]):
    """A batch: the numbered samples that could be read with their features, and those that could not be read."""

    taken: list[tuple[int, Reference]]  # both kinds, in order
    samples: list[tuple[int, Reference]]
    # `features` N×d, and `views` N×V×d, `raw`, `patches`, `generated` if asked for; on the CPU; none if N is 0
    tensors: dict[str, Tensor]
    failures: list[tuple[int, PtaError]]


def encode_files(
    encoder: Encoder,
    numbered: Iterable[tuple[int, Reference]],
    reading: Reading,
    *,
    on_error: OnError = "stop",
    quick_start: bool = False,
    live: bool = False,
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[Encoded[Reference]]:
    """Batches of features in the order of the numbered samples; for `live` and `stopping` see `prepare_in_batches`.

    The last bits of features depend on the batch. So that resumed work gives those of work that was never interrupted,
    batches end at fixed numbers, wherever the numbers begin: at multiples of the batch size. With `quick_start`, the
    first batch is an eighth, so that nobody waits long for it, and the others follow it.

    With `on_error="stop"`, everything before a sample that cannot be read is given out, then its error is raised; with
    `skip` it is among the failures of its batch.
    """
    preparer = partial(encoder.preparer, fast_decode=reading.fast_decode, limits=reading.limits)
    prepare, prepare_plain = preparer(views=reading.views), preparer()
    most = reading.limits.max_bytes

    def prepare_item(item: tuple[int, Reference]) -> tuple[Raw, Raw | None]:
        number, sample = item
        own = prepare(sample.read(most), sample.key, number)
        if reading.generated is None:
            return own, None
        with naming(f"generated from {sample.key}"):
            return own, np.stack([prepare_plain(one.read(most), one.key, 0) for one in reading.generated.of(sample)])

    size = reading.samples_at_once
    first = max(1, size // _FIRST_SHARE) if quick_start else 0
    for prepared in prepare_in_batches(
        *(numbered, prepare_item, size, reading.workers),
        ends=lambda item: (item[0] + 1 - first) % size == 0,
        live=live,
        low_priority=encoder.device.type == "cpu",
        stopping=stopping,
    ):
        unread = next((i for i, one in enumerate(prepared) if one.error is not None), None)
        stop = None if unread is None or on_error == "skip" else prepared[unread].error
        done = prepared if stop is None else prepared[:unread]
        good = [(one.item, one.result) for one in done if one.result is not None]
        failures = [(one.item[0], one.error) for one in done if one.error is not None]
        tensors = encode_prepared(encoder, [own for _, (own, _) in good], reading) if good else {}
        if generated := [beside for _, (_, beside) in good if beside is not None]:
            tensors["generated"] = _encode_each(encoder, generated)
        yield Encoded([one.item for one in done], [item for item, _ in good], tensors, failures)
        if stop is not None:
            raise unless_skipped(str(stop))


def unless_skipped(complaint: str) -> UnreadableSample:
    """The error about a sample that cannot be read, with the way out."""
    return UnreadableSample(f"{complaint}; --on-error skip goes on without it")


def encode_prepared(encoder: Encoder, prepared: Sequence[Raw], reading: Reading) -> dict[str, Tensor]:
    """The `Encoded.tensors` of several samples, at least one, as `Encoder.preparer` made them for this reading.

    Samples of one shape are encoded together.
    """
    alike, place = by_shape(prepared)
    if len(alike) > 1 and reading.raw:
        shapes = " and ".join("×".join(map(str, prepared[numbers[0]].shape)) for numbers in alike[:2])
        raise InvalidSamples(f"raw samples must have one shape, got {shapes}; give samples of one size")
    parts = [_encode_alike(encoder, [prepared[number] for number in numbers], reading) for numbers in alike]
    if len(parts) == 1:
        return parts[0]
    return {name: torch.cat([part[name] for part in parts])[place] for name in parts[0]}


def _encode_alike(encoder: Encoder, prepared: Sequence[Raw], reading: Reading) -> dict[str, Tensor]:
    # numpy stacks: torch would wake all its threads for it, which fight with those that decode
    plain = torch.from_numpy(np.stack([one if reading.views is None else one[0] for one in prepared]))
    if reading.views is not None:
        seen = _encode_each(encoder, prepared)
        tensors = {"features": seen[:, 0], "views": seen}
        return tensors | ({"patches": encoder.encode_tokens(plain).cpu()} if reading.patches else {})
    if reading.patches:
        features, patches = encoder.encode_with_tokens(plain)
        tensors = {"features": features.cpu(), "patches": patches.cpu()}
    else:
        tensors = {"features": encoder.encode(plain).cpu()}
    return tensors | ({"raw": plain} if reading.raw else {})


def _encode_each(encoder: Encoder, several: Sequence[Raw]) -> Tensor:
    """Several raw samples for each of N, to N×n×d."""
    return torch.stack([encoder.encode(torch.from_numpy(one)).cpu() for one in several])


def samples_of(tensors: Mapping[str, Any]) -> Samples:
    """What a method is given of encoded samples, of which there is at least one."""
    return Samples.of(**tensors)
