"""Samples: a batch of image (or point cloud) features, checked once, before anything learns from it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pta.errors import InvalidSamples

_ROWS_AT_ONCE = 4096  # bounds memory, changes no result
SMALLEST_NORM = 1e-6  # a shorter row has no direction that float32 could hold


@dataclass(frozen=True)
class Samples:
    """A batch of B features of dimension d, finite and with a direction each, and what else is known of the samples.

    `Samples.of` makes one from whatever the caller has and scales rows to unit length. Features that are
    already a mean over views are shorter than one on purpose: pass `normalise=False` to keep them so.

    Attributes:
        features: B×d.
        views: B×V×d features of augmented views, the plain image first; of any length, only directions count.
        most_confident: B×n×d, those views whose mean the features are, if they are one; they are then left as long as they are.
        pixels: B×channels×height×width, for methods that look inside the image tower.

    >>> Samples.of([[3.0, 4.0]]).features
    tensor([[0.6000, 0.8000]])
    """

    features: Tensor
    views: Tensor | None = None
    most_confident: Tensor | None = None
    pixels: Tensor | None = None

    def __post_init__(self) -> None:
        _norms_of_checked(self.features)
        for name, views in (("views", self.views), ("most confident views", self.most_confident)):
            if views is not None:
                _require_views(name, views, self.features)
        if self.pixels is not None:
            _require_pixels(self.pixels, len(self))

    @classmethod
    def of(
        cls,
        features: object,
        *,
        views: object = None,
        most_confident: object = None,
        pixels: object = None,
        normalise: bool = True,
    ) -> "Samples":
        """Samples from tensors, arrays or lists; features are copied, what is beside them is not."""
        tensor = _tensor("features", features)
        if tensor.is_complex() or tensor.dtype == torch.bool:
            raise InvalidSamples(f"features must be real numbers, got {tensor.dtype}")
        wide = tensor.dtype if tensor.dtype == torch.float64 else torch.float32
        copied = tensor.detach().to(wide, copy=True)
        norms = _norms_of_checked(copied)
        if normalise and most_confident is None:
            copied.div_(norms[:, None])
        optional = {"views": views, "most_confident": most_confident, "pixels": pixels}
        given = {name: _tensor(name, value) for name, value in optional.items() if value is not None}
        return cls(copied, **given) if given else cls._trusted(copied)

    @classmethod
    def _trusted(cls, features: Tensor, *others: Tensor | None) -> "Samples":
        """Samples from tensors that were checked before."""
        samples = object.__new__(cls)
        given = (features, *others, *[None] * (3 - len(others)))
        for name, tensor in zip(("features", "views", "most_confident", "pixels"), given, strict=True):
            object.__setattr__(samples, name, tensor)
        return samples

    def __len__(self) -> int:
        return self.features.shape[0]

    @property
    def dim(self) -> int:
        """The length d of a feature."""
        return self.features.shape[1]

    @property
    def provides(self) -> frozenset[str]:
        """What a method can be given of these samples."""
        optional = {"views": self.views, "pixels": self.pixels}
        return frozenset({"features"} | {name for name, tensor in optional.items() if tensor is not None})

    def __getitem__(self, rows: slice | Tensor) -> "Samples":
        optional = (self.views, self.most_confident, self.pixels)
        return Samples._trusted(self.features[rows], *(None if one is None else one[rows] for one in optional))

    def to(self, like: Tensor) -> "Samples":
        """The same on the device and in the precision of another tensor; views become unit rows, pixels stay."""
        views, most_confident = (
            None if one is None else torch.nn.functional.normalize(one.to(like), dim=2)
            for one in (self.views, self.most_confident)
        )
        return Samples._trusted(self.features.to(like), views, most_confident, self.pixels)

    def batches(self, size: int) -> Iterator["Samples"]:
        """Consecutive batches of at most `size` samples."""
        for start in range(0, len(self), size):
            yield self[start : start + size]


def _tensor(name: str, given: object) -> Tensor:
    try:
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidSamples(f"{name} cannot be read as numbers: {error}") from None


def _norms_of_checked(features: object) -> Tensor:
    """The length of every row, if they all can be learnt from."""
    if not isinstance(features, Tensor) or not features.is_floating_point():
        raise InvalidSamples("features must be a floating-point tensor; Samples.of(...) converts arrays and lists")
    if features.ndim != 2:
        raise InvalidSamples(
            f"features must be B×d (one row a sample), got shape {tuple(features.shape)}; "
            "a single feature vector x is x[None]"
        )
    if features.numel() == 0:
        raise InvalidSamples(f"no samples: features have shape {tuple(features.shape)}")
    norms = _norms(features)
    least, most = norms.aminmax()
    if not math.isfinite(most):
        row = int(torch.nonzero(~torch.isfinite(norms))[0])
        raise InvalidSamples(f"row {row} of the features is not finite (NaN or Inf)")
    if least < SMALLEST_NORM:
        raise InvalidSamples(f"row {int(norms.argmin())} of the features is zero and has no direction")
    return norms


def _require_views(name: str, views: object, features: Tensor) -> None:
    if not isinstance(views, Tensor) or not views.is_floating_point() or views.ndim != 3 or views.numel() == 0:
        shape = tuple(views.shape) if isinstance(views, Tensor) else type(views).__name__
        raise InvalidSamples(f"{name} must be a floating-point tensor B×views×d, got {shape}")
    if (views.shape[0], views.shape[2]) != tuple(features.shape):
        raise InvalidSamples(
            f"{name} have shape {tuple(views.shape)}, expected {features.shape[0]}×views×{features.shape[1]}"
        )
    norms = _norms(views)
    usable = torch.isfinite(norms) & (norms >= SMALLEST_NORM)
    if not bool(usable.all()):
        sample, view = torch.nonzero(~usable)[0].tolist()
        raise InvalidSamples(f"view {view} of sample {sample} is zero, NaN or Inf and has no direction")


def _require_pixels(pixels: Tensor, count: int) -> None:
    if pixels.is_complex():
        raise InvalidSamples(f"pixels must be real numbers, got {pixels.dtype}")
    if pixels.ndim != 4 or len(pixels) != count:
        raise InvalidSamples(
            f"pixels must be B×channels×height×width for {count} samples, got shape {tuple(pixels.shape)}"
        )
    if pixels.is_floating_point() and not bool(torch.isfinite(pixels).all()):
        raise InvalidSamples("some pixels are NaN or Inf")


def _norms(rows: Tensor) -> Tensor:
    wide = torch.promote_types(rows.dtype, torch.float32)  # of which vector_norm makes a copy
    return torch.cat([torch.linalg.vector_norm(part, dim=-1, dtype=wide) for part in torch.split(rows, _ROWS_AT_ONCE)])
