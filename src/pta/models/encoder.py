"""Encoder: the interface of every model."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from pta.core.limits import USUAL_LIMITS, Limits
from pta.core.modality import IMAGES, Modality
from pta.core.towers import ImageTower, Model, PromptTower
from pta.door.files import read_sample, require_short
from pta.door.images import Preprocessing, as_picture, open_image
from pta.door.images.reading import made_in_room
from pta.door.patience import USUAL_PATIENCE
from pta.door.refused_places import require_place_with_samples
from pta.errors import InvalidParameter, InvalidSamples, PtaError, UnavailableModel, UnreadableSample
from pta.models.clip.prompts import CausalPrompts, PromptTokens, tokenize_prompts

RECIPE = 1
"""Raised when the same weights begin to give other features: it is part of every fingerprint, so of every cache key."""

_LARGEST_SCALE = 10_000  # CLIP's is 100
_MOST_SAMPLES, _MOST_TEXTS = 256, 256  # in a batch: bound memory, change no result

Raw = NDArray[Any]
"""A sample, or the views of one, as the towers take it: an array that can be stacked with others."""

Prepare = Callable[[object, str, int], Raw]
"""Makes a raw sample from what is given of it (bytes, a path or an object), its key and its number."""


class ViewMaker(Protocol):
    """Makes the views of a sample that was decoded, given its number and the model's way to prepare it."""

    def of(self, sample: Any, number: int, preprocess: Any) -> Raw: ...


class Encoder(nn.Module, Model, ABC):
    """Samples of one modality and texts to unit rows of one space.

    A model declares the files it reads (`modality`), how a file becomes a raw sample (`prepare`) and how cosines become
    logits (`scale`, `bias`). It implements the differentiable half: `features`, and for texts `tokenize`, `embed_ids`
    and `text_from_embeddings`, or only `text_features` if its text tower takes no embeddings. `patch_features` is
    optional, as is `image_tower` for a tower of blocks. `prompt_tower`, `encode` and `encode_texts` follow.
    """

    modality: ClassVar[Modality]
    architecture: str  # for people and for finding reference accuracies, e.g. "ViT-B/16"
    dim: int  # length of a feature
    scale: float  # what cosines are multiplied by to become logits
    bias: float = 0.0  # what is added to logits; SigLIP has one, CLIP none
    runtime: str = "torch"  # what makes the features
    settings: Any = None  # whatever else changes features and shows in no weight: the activation, a tokenizer's digest

    # -- what a model implements: differentiable, on the model's device, in its precision ------------------------------

    @abstractmethod
    def features(self, raw: Tensor) -> Tensor:
        """Raw samples, as `_ready` gives them, to N×dim unit rows."""

    def patch_features(self, raw: Tensor) -> Tensor:
        """Raw samples to N×patches×dim unit rows, an image's patches row by row, in the space of the features."""
        raise InvalidParameter(f"the image tower of {self.architecture} gives no patch tokens")

    def features_with_patches(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """What `features` and `patch_features` give; a model that computes both at once says so."""
        return self.features(raw), self.patch_features(raw)

    def patch_count(self) -> int:
        """How many patches `patch_features` gives of a sample; a modality that has patches says so."""
        raise InvalidParameter(f"{self.architecture} gives no patches of a {self.modality.name}")

    def image_tower(self) -> ImageTower:
        """The image tower block by block, on the model's device and in its precision as they are then."""
        raise InvalidParameter(
            f"the image tower of {self.architecture} cannot be run block by block; CLIP's ViT from hf: or file: can"
        )

    def tokenize(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Texts to token ids and their mask (False where a row is padded), both N×L, on the model's device."""
        raise self._no_embeddings()

    def embed_ids(self, ids: Tensor) -> Tensor:
        """Token ids N×L to token embeddings N×L×width, without positions."""
        raise self._no_embeddings()

    def text_from_embeddings(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """Token embeddings N×L×width and their mask N×L to N×dim unit rows; prompts are tuned through this."""
        raise self._no_embeddings()

    def text_features(self, texts: Sequence[str]) -> Tensor:
        """Texts, at least one, to N×dim unit rows."""
        ids, mask = self.tokenize(texts)
        return self.text_from_embeddings(self.embed_ids(ids), mask)

    # -- from files to raw samples -------------------------------------------------------------------------------------

    @abstractmethod
    def prepare(self, content: bytes, key: str = "the sample") -> Raw:
        """The content of a file to a raw sample; what cannot be used is an `UnreadableSample` that names the key."""

    @property
    def preparation(self) -> dict[str, Any]:
        """Everything that shapes raw samples and shows in no weight, for the record."""
        return {}

    def as_raw(self, given: object, key: str = "the sample") -> Raw:
        """A raw sample from bytes or a path; a modality may take objects in memory as well."""
        given, key = content_of(given, key)
        if not isinstance(given, bytes):
            raise UnreadableSample(f"expected a path or bytes of a {self.modality.name}, got {type(given).__name__}")
        return self.prepare(given, key)

    def preparer(
        self, *, fast_decode: bool = False, views: ViewMaker | None = None, limits: Limits = USUAL_LIMITS
    ) -> Prepare:
        """What makes raw samples with these options; a modality that does not know one of them refuses it."""
        if fast_decode or views is not None:
            option = "fast decoding" if fast_decode else "views"
            raise InvalidParameter(f"{self.architecture} reads {self.modality.name}s, for which pta has no {option}")
        return lambda given, key, number: self.as_raw(*content_of(given, key, limits))

    # -- prompts that are tuned ----------------------------------------------------------------------------------------

    def prompt_tower(self, class_names: Sequence[str], start: str = "a photo of a") -> PromptTower:
        """The text tower as a function of `start`, on the model's device and in its precision as they are then.

        The prompt of a class is "{start} {name}.", underscores of the name as spaces: "a photo of a sea lion."
        """
        prompts = tokenize_prompts(self.tokenize, class_names, start)
        context = self.embed_ids(prompts.ids[:1, prompts.lead : prompts.shared])[0].detach()
        return self._tower_of(prompts, context)

    def _tower_of(self, prompts: PromptTokens, context: Tensor) -> PromptTower:
        reader = self._prompt_reader(prompts)
        return PromptTower(
            context=context,
            lengths=prompts.mask.sum(dim=1),
            dim=self.dim,
            encode=reader,
            encode_each=partial(self._read_each, prompts),
            part=lambda classes: self._tower_of(prompts.of(classes), context),
            recordable=isinstance(reader, CausalPrompts),
        )

    def _prompt_reader(self, prompts: PromptTokens) -> Callable[[Tensor], Tensor]:
        """What reads contexts B×n×width into B×C×dim."""
        return partial(self._read_prompts, prompts)

    def _read_prompts(self, prompts: PromptTokens, contexts: Tensor) -> Tensor:
        """Every class's whole prompt with every context."""
        count, parts = len(contexts), []
        size = max(1, _MOST_TEXTS // max(1, count))
        for ids, mask in zip(torch.split(prompts.ids, size), torch.split(prompts.mask, size), strict=True):
            several = replace(prompts, ids=ids.repeat(count, 1), mask=mask.repeat(count, 1))
            features = self._read_each(several, contexts.repeat_interleave(len(ids), dim=0))
            parts.append(features.reshape(count, len(ids), self.dim))
        return torch.cat(parts, dim=1)

    def _read_each(self, prompts: PromptTokens, contexts: Tensor) -> Tensor:
        """Every class's whole prompt with a context of its own."""
        own = self.embed_ids(prompts.ids)
        embeddings = torch.cat([own[:, : prompts.lead], contexts, own[:, prompts.shared :]], dim=1)
        return self.text_from_embeddings(embeddings, prompts.mask)

    # -- for users: no gradients, any number at once, float32 out -----------------------------------------------------
    # `no_grad` and not `inference_mode`: features that a prompt is tuned against must be allowed in a graph.

    @torch.no_grad()
    def encode(self, raw: Tensor) -> Tensor:
        """Raw samples to N×dim unit rows."""
        return self.require_finite(self.encode_unchecked(raw))

    def require_finite(self, features: Tensor) -> Tensor:
        """The features, if they are numbers."""
        usable = features.isfinite().all(dim=1)
        if not usable.all():
            raise InvalidSamples(
                f"the features of sample {int(usable.int().argmin())} are not finite: its numbers are NaN, infinite, "
                f"or too large for {self.architecture} in {self.dtype}"
            )
        return features

    @torch.no_grad()
    def encode_unchecked(self, raw: Tensor) -> Tensor:
        """The same without a look at any number, for which the host would wait for a GPU."""
        if not len(raw):
            return torch.empty(0, self.dim, device=self.device)
        return self._rows(map(self.features, self._batches(raw)))

    @torch.no_grad()
    def encode_tokens(self, raw: Tensor) -> Tensor:
        """Raw samples to N×patches×dim unit rows."""
        return self._rows(map(self.patch_features, self._batches(raw)))

    @torch.no_grad()
    def encode_with_tokens(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """What `encode` and `encode_tokens` give, at once where the model can."""
        features, patches = zip(*map(self.features_with_patches, self._batches(raw)), strict=True)
        return self.require_finite(self._rows(features)), self._rows(patches)

    @torch.no_grad()
    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Texts to N×dim unit rows."""
        if isinstance(texts, str):
            raise InvalidParameter(f"texts must be a list of strings; for one text pass [{texts!r}]")
        if not texts:
            return torch.empty(0, self.dim, device=self.device)
        starts = range(0, len(texts), _MOST_TEXTS)
        return self._rows(self.text_features(texts[start : start + _MOST_TEXTS]) for start in starts)

    @property
    def fingerprint(self) -> str:
        """The sha256 of recipe, architecture, settings, preparation and weights: equal exactly for equal encoders.

        The weights count by name, shape and value, as they were loaded, in whatever precision they run.
        """
        return self._hash() if self._fingerprint is None else self._fingerprint

    # -- where and how it runs -----------------------------------------------------------------------------------------

    _fingerprint: str | None = None

    def ready(self, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> Self:
        """For inference on a device, in a precision; remembers the fingerprint of the weights as they are now."""
        self._fingerprint = self._hash()
        self.eval().requires_grad_(False).to(device=device, dtype=dtype)
        for name, weight in self.named_parameters():
            if not weight.isfinite().all():
                raise UnavailableModel(f"the weight {name} of {self.architecture} is not finite in {dtype}")
        if not (0 < self.scale <= _LARGEST_SCALE and abs(self.bias) <= _LARGEST_SCALE):
            raise UnavailableModel(
                f"{self.architecture} has scale {self.scale:g} and bias {self.bias:g}; a scale is above 0, "
                f"and neither is beyond {_LARGEST_SCALE:,}"
            )
        return self

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def has_kernels_for(self, batch: int) -> bool:
        """Whether kernels of its own do most of the work on so many samples, so that compiling would gain nothing."""
        return False

    def _hash(self) -> str:
        about = [RECIPE, self.architecture, self.settings, self.preparation]
        digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
        for name, value in sorted(self.state_dict().items()):
            digest.update(f"{name} {tuple(value.shape)}".encode())
            digest.update(value.float().cpu().contiguous().numpy().data)
        return digest.hexdigest()

    # -- what tokenizing and reading texts have in common --------------------------------------------------------------

    def _require_short(self, texts: Sequence[str], lengths: Iterable[int], most: int, unit: str = "tokens") -> None:
        """Refuse the first text that is too long; a start and an end token are counted in neither number."""
        for text, length in zip(texts, lengths, strict=True):
            if length > most:
                raise InvalidParameter(
                    f"a text has {length} {unit}, {self.architecture} reads at most {most}; shorten {text[:40]!r}…"
                )

    def _padded(self, rows: Sequence[Sequence[int]], pad: int, length: int | None = None) -> tuple[Tensor, Tensor]:
        """Rows of ids, padded on the right to a length or to the longest, and their mask."""
        length = length or max(map(len, rows))
        padded = [[*row, *[pad] * (length - len(row))] for row in rows]
        ids = torch.tensor(padded, device=self.device)
        lengths = torch.tensor([*map(len, rows)], device=self.device)
        return ids, torch.arange(length, device=self.device) < lengths[:, None]

    def _no_embeddings(self) -> InvalidParameter:
        return InvalidParameter(f"the text tower of {self.architecture} takes texts only, no token embeddings")

    def _ready(self, raw: Tensor) -> Tensor:
        """Raw samples on the model's device and in its precision."""
        return raw.to(self.device, self.dtype, non_blocking=True)

    def _batches(self, raw: Tensor) -> Iterator[Tensor]:
        return map(self._ready, torch.split(raw, _MOST_SAMPLES))

    def _rows(self, parts: Iterable[Tensor]) -> Tensor:
        return nn.functional.normalize(torch.cat([part.float() for part in parts]), dim=-1)


def content_of(given: object, key: str, limits: Limits = USUAL_LIMITS) -> tuple[object, str]:
    """The content of a file and its name, if a path is given; anything else as it is, unless it is too long."""
    if isinstance(given, str | Path):
        require_place_with_samples(str(given))
        return USUAL_PATIENCE.ask(partial(read_sample, Path(given), limits.max_bytes)), str(given)
    if isinstance(given, bytes | bytearray | memoryview):
        require_short(key, len(given), limits.max_bytes)
        return bytes(given), key
    return given, key


def at_end(hidden: Tensor, mask: Tensor) -> Tensor:
    """Of N×L×width the N×width where each row of the mask is True last."""
    ends = (mask * torch.arange(mask.shape[1], device=mask.device)).amax(dim=1)
    return hidden[torch.arange(len(hidden), device=hidden.device), ends]


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
        try:
            if isinstance(one, bytes):
                picture = open_image(one, limits=self.limits, at_least=self.at_least)
            else:
                picture = as_picture(one)
            return made_in_room(picture, self.preprocess, partial(self._raw, number))
        except PtaError as error:
            raise type(error)(f"{name}: {error}") from None

    def _raw(self, number: int, picture: Image.Image) -> Raw:
        if self.views is None:
            return self.preprocess.pixels(picture)
        return self.views.of(picture, number, self.preprocess)


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
