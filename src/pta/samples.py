"""Samples: a batch of image (or point cloud) features, checked once, before anything learns from it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from pta.errors import InvalidSamples, nearest

_ROWS_AT_ONCE = 4096  # bounds memory, changes no result
SMALLEST_NORM = 1e-6  # a shorter row has no direction that float32 could hold


def _require_views(name: str, views: Any, features: Tensor) -> None:
    if not isinstance(views, Tensor) or not views.is_floating_point() or views.ndim != 3 or views.numel() == 0:
        shape = tuple(views.shape) if isinstance(views, Tensor) else type(views).__name__
        raise InvalidSamples(f"{name} must be a floating-point tensor B×views×d, got {shape}")
    rows, dim = features.shape
    if (views.shape[0], views.shape[2]) != (rows, dim):
        raise InvalidSamples(f"{name} have shape {tuple(views.shape)}, expected {rows}×views×{dim}")
    norms = _norms(views.detach())
    usable = torch.isfinite(norms) & (norms >= SMALLEST_NORM)
    if not bool(usable.all()):
        sample, view = torch.nonzero(~usable)[0].tolist()
        raise InvalidSamples(f"{name}: number {view} of sample {sample} is zero, NaN or Inf and has no direction")


def _require_raw(name: str, raw: Any, features: Tensor) -> None:
    if not isinstance(raw, Tensor) or raw.is_complex():
        raise InvalidSamples(f"{name} must be a tensor of real numbers")
    rows = len(features)
    if raw.ndim < 2 or len(raw) != rows:
        raise InvalidSamples(f"{name} must have a row for each of {rows} samples, got shape {tuple(raw.shape)}")
    if raw.is_floating_point() and not bool(torch.isfinite(raw).all()):
        raise InvalidSamples(f"{name}: some numbers are NaN or Inf")


# An optional tensor with one row per sample: what refuses others, given name, tensor and features; and whether only
# directions of its last dimension count, so that `to` scales them to unit length.
_VIEWS = {"check": _require_views, "directions": True}
_RAW = {"check": _require_raw, "directions": False}


@dataclass(frozen=True)
class Samples:
    """A batch of B features of dimension d, finite and with a direction each, and what else is known of the samples.

    `Samples.of` makes one from whatever the caller has and scales rows to unit length. Features that are
    already a mean over views are shorter than one on purpose: pass `normalise=False` to keep them so.

    Beside the features there may be tensors with one row per sample. Each is one line below; checking, slicing, moving
    and hashing follow from it.

    >>> Samples.of([[3.0, 4.0]]).features
    tensor([[0.6000, 0.8000]])
    """

    features: Tensor  # B×d
    # B×V×d features of augmented views, the plain sample first; of any length, only directions count
    views: Tensor | None = field(default=None, metadata=_VIEWS)
    # B×n×d, the views whose mean the features are, if they are one; features then keep their length
    most_confident: Tensor | None = field(default=None, metadata=_VIEWS)
    # what the model's towers take, for example pixels B×channels×height×width, for methods that look inside
    raw: Tensor | None = field(default=None, metadata=_RAW)

    def __post_init__(self) -> None:
        _norms_of_checked(self.features)
        for name, one in self._optional().items():
            _FIELDS[name].metadata["check"](name, one, self.features)

    @classmethod
    def of(cls, features: object, *, normalise: bool = True, **others: object) -> "Samples":
        """Samples from tensors, arrays or lists; features are copied, what is beside them is not."""
        tensor = _tensor("features", features)
        if tensor.is_complex() or tensor.dtype == torch.bool:
            raise InvalidSamples(f"features must be real numbers, got {tensor.dtype}")
        wide = tensor.dtype if tensor.dtype == torch.float64 else torch.float32
        copied = tensor.detach().to(wide, copy=True)
        norms = _norms_of_checked(copied)
        if normalise and others.get("most_confident") is None:
            copied.div_(norms[:, None])
        for name in others:
            if name not in _FIELDS:
                raise InvalidSamples(f"samples have no {name!r}; {nearest(name, _FIELDS)}")
        given = {name: _tensor(name, value) for name, value in others.items() if value is not None}
        return cls(copied, **given) if given else cls.unchecked(copied)

    @classmethod
    def unchecked(cls, features: Tensor, **others: Tensor | None) -> "Samples":
        """Samples from tensors that were checked before."""
        samples = object.__new__(cls)
        object.__setattr__(samples, "features", features)
        for name in _FIELDS:
            object.__setattr__(samples, name, others.get(name))
        return samples

    def __len__(self) -> int:
        return self.features.shape[0]

    @property
    def dim(self) -> int:
        """The length d of a feature."""
        return self.features.shape[1]

    @property
    def provides(self) -> frozenset[str]:
        """The names of what a method can be given of these samples."""
        return frozenset({"features", *self._optional()})

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name, those that there are."""
        return {"features": self.features, **self._optional()}

    def __getitem__(self, rows: slice | Tensor) -> "Samples":
        return Samples.unchecked(**{name: one[rows] for name, one in self.tensors().items()})

    def to(self, like: Tensor) -> "Samples":
        """The same on the device and in the precision of another tensor, without gradients; raw stays as it is."""
        moved = {
            name: torch.nn.functional.normalize(one.detach().to(like), dim=-1)
            if _FIELDS[name].metadata["directions"]
            else one.detach()
            for name, one in self._optional().items()
        }
        return Samples.unchecked(self.features.detach().to(like), **moved)

    def batches(self, size: int) -> Iterator["Samples"]:
        """Consecutive batches of at most `size` samples."""
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def _optional(self) -> dict[str, Tensor]:
        return {name: one for name in _FIELDS if (one := getattr(self, name)) is not None}


_FIELDS = {one.name: one for one in fields(Samples) if one.metadata}


def _tensor(name: str, given: object) -> Tensor:
    try:
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidSamples(f"{name} cannot be read as numbers: {error}") from None


def _norms_of_checked(features: object) -> Tensor:
    """The length of every row, if they all can be learned from."""
    if not isinstance(features, Tensor) or not features.is_floating_point():
        raise InvalidSamples("features must be a floating-point tensor; Samples.of(...) converts arrays and lists")
    if features.ndim != 2:
        raise InvalidSamples(
            f"features must be B×d (one row per sample), got shape {tuple(features.shape)}; "
            "a single feature vector x is x[None]"
        )
    if features.numel() == 0:
        raise InvalidSamples(f"no samples: features have shape {tuple(features.shape)}")
    norms = _norms(features.detach())
    least, most = norms.aminmax()
    if not math.isfinite(most):
        row = int(torch.nonzero(~torch.isfinite(norms))[0])
        raise InvalidSamples(f"row {row} of the features is not finite (NaN or Inf)")
    if least < SMALLEST_NORM:
        raise InvalidSamples(f"row {int(norms.argmin())} of the features is zero and has no direction")
    return norms


def _norms(rows: Tensor) -> Tensor:
    wide = torch.promote_types(rows.dtype, torch.float32)  # of which vector_norm makes a copy
    return torch.cat([torch.linalg.vector_norm(part, dim=-1, dtype=wide) for part in torch.split(rows, _ROWS_AT_ONCE)])
