"""Samples: a batch of image (or point cloud) features, checked once before use."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from numbers import Integral

import torch
from torch import Tensor

from pta.core.plain import FLOATS, is_host_readable, plain_tensor
from pta.errors import InvalidSamples, nearest, shown

_ROWS_AT_ONCE = 4096  # bounds memory, changes no result
SMALLEST_NORM = 1e-6  # a shorter row has no direction that float32 could hold
LARGEST_NORM = 1e18  # the squares of a longer row are too large for float32
_UNIT_WITHIN = 1e-6  # rounding of unit rows in float32
_NO_DIRECTION = 1e-12  # a shorter row remains short


def longest_unit(dtype: torch.dtype) -> float:
    """The largest length of a unit row after rounding to a precision.

    >>> longest_unit(torch.float32), longest_unit(torch.bfloat16)
    (1.001, 1.0078125)
    """
    return 1 + max(1e-3, torch.finfo(dtype).eps if dtype in FLOATS else 0.0)


LONGEST_MEAN = longest_unit(torch.float32) + 1e-4
"""The largest length of a mean of features after rounding at every step, in float32 or float64."""


def _require_views(name: str, views: Tensor, features: Tensor) -> None:
    if views.dtype not in FLOATS or views.ndim != 3 or views.numel() == 0:
        raise InvalidSamples(f"{name} must be a floating-point tensor B×n×d, got {tuple(views.shape)}")
    rows, dim = features.shape
    if (views.shape[0], views.shape[2]) != (rows, dim):
        raise InvalidSamples(f"{name} have shape {tuple(views.shape)}, expected {rows}×n×{dim}")
    norms = _norms(views)
    usable = (norms >= SMALLEST_NORM) & (norms <= LARGEST_NORM)
    if not bool(usable.all()):
        sample, view = torch.nonzero(~usable)[0].tolist()
        raise InvalidSamples(f"{name}: number {view} of sample {sample} is {_lack_of_direction(norms[sample, view])}")


def _require_raw(name: str, raw: Tensor, features: Tensor) -> None:
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
    """A batch of B finite, non-zero features of dimension d, with optional further tensors per sample.

    `Samples.of` converts arrays and lists and scales rows to unit length. Means over views are shorter than one on
    purpose: pass `normalise=False` to keep their length. No feature is longer than one.

    The optional tensors have one row per sample. Each is one line below; checking, slicing, moving and hashing follow
    from it.

    >>> Samples.of([[3.0, 4.0]]).features
    tensor([[0.6000, 0.8000]])
    """

    features: Tensor  # B×d
    # B×V×d features of augmented views, the plain sample first; of any length, only directions count
    views: Tensor | None = field(default=None, metadata=_VIEWS)
    # B×n×d, the views whose mean the features are, if they are one; features then keep their length
    most_confident: Tensor | None = field(default=None, metadata=_VIEWS)
    # B×G×d features of pictures that were generated from the sample
    generated: Tensor | None = field(default=None, metadata=_VIEWS)
    # what the model's towers take, for example pixels B×channels×height×width, for methods that look inside
    raw: Tensor | None = field(default=None, metadata=_RAW)
    # B×P×d features of the patches of the plain sample, row by row; of any length, only directions count
    patches: Tensor | None = field(default=None, metadata=_VIEWS)

    def __post_init__(self) -> None:
        for name, one in self.tensors().items():
            if not isinstance(one, Tensor):
                converted = "Samples.of(...) converts arrays and lists"
                raise InvalidSamples(f"{name} must be a tensor, got {type(one).__name__}; {converted}")
            vars(self)[name] = plain_tensor(name, one, InvalidSamples)
        if self.features.dtype == torch.bfloat16:
            vars(self)["features"] = Samples.of(self.features, normalise=False).features
        else:
            _checked_norms(self.features, longest=longest_unit(self.features.dtype))
        self._check_optional()

    @classmethod
    def of(cls, features: object, *, normalise: bool = True, **others: object) -> "Samples":
        """Samples from tensors, arrays or lists; features are copied, the other tensors are not."""
        tensor = plain_tensor("features", features, InvalidSamples)
        if not isinstance(normalise, bool):
            raise InvalidSamples(f"normalise must be True or False, got {shown(normalise)}")
        if tensor.dtype == torch.bool:
            raise InvalidSamples("features must be real numbers, got booleans")
        copied = tensor.to(tensor.dtype if tensor.dtype == torch.float64 else torch.float32, copy=True)
        keeps_length = not normalise or others.get("most_confident") is not None
        norms = _checked_norms(copied, longest=longest_unit(tensor.dtype) if keeps_length else LARGEST_NORM)
        if not keeps_length:
            copied.div_(norms[:, None])
        elif tensor.dtype == torch.bfloat16:  # so coarse that rounding makes unit rows up to 1.004 long
            copied.div_(norms.clamp_min(1.0)[:, None])
        for name in others:
            if name not in _FIELDS:
                raise InvalidSamples(f"samples have no {name!r}; {nearest(name, _FIELDS)}")
        given = {name: plain_tensor(name, one, InvalidSamples) for name, one in others.items() if one is not None}
        samples = cls.unchecked(copied, **given)
        samples._check_optional()
        return samples

    @classmethod
    def unchecked(cls, features: Tensor, **others: Tensor | None) -> "Samples":
        """Samples from tensors that were checked before."""
        samples = object.__new__(cls)
        vars(samples).update(dict.fromkeys(_FIELDS) | others, features=features)
        return samples

    def __len__(self) -> int:
        return self.features.shape[0]

    @property
    def dim(self) -> int:
        """The length d of a feature."""
        return self.features.shape[1]

    @property
    def provides(self) -> frozenset[str]:
        """The names of the tensors that these samples have, as in `Adapter.needs`."""
        return frozenset({"features", *self._optional()})

    def tensors(self) -> dict[str, Tensor]:
        """All present tensors by name."""
        return {"features": self.features, **self._optional()}

    def __getitem__(self, rows: slice | Tensor) -> "Samples":
        return Samples.unchecked(**{name: one[rows] for name, one in self.tensors().items()})

    def to(self, like: Tensor) -> "Samples":
        """The same on the device and in the precision of another tensor, without gradients; raw stays as it is."""
        moved = {
            name: _at_unit_length(one.detach().to(like)) if _FIELDS[name].metadata["directions"] else one.detach()
            for name, one in self._optional().items()
        }
        return Samples.unchecked(self.features.detach().to(like), **moved)

    def batches(self, size: int) -> Iterator["Samples"]:
        """Consecutive batches of at most `size` samples."""
        if not isinstance(size, Integral) or size < 1:
            raise InvalidSamples(f"a batch size must be 1 or more, not {shown(size)}")
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def _check_optional(self) -> None:
        for name, one in self._optional().items():
            _FIELDS[name].metadata["check"](name, one, self.features)

    def _optional(self) -> dict[str, Tensor]:
        return {name: one for name in _FIELDS if (one := getattr(self, name)) is not None}


_FIELDS = {one.name: one for one in fields(Samples) if one.metadata}


def _checked_norms(features: Tensor, longest: float) -> Tensor:
    """The length of every row, if all rows are valid."""
    if features.dtype not in FLOATS:
        raise InvalidSamples(f"features must be floating-point numbers, got {features.dtype}; Samples.of(...) converts")
    if features.ndim != 2:
        raise InvalidSamples(
            f"features must be B×d (one row per sample), got shape {tuple(features.shape)}; "
            "a single feature vector x is x[None]"
        )
    if features.numel() == 0:
        raise InvalidSamples(f"no samples: features have shape {tuple(features.shape)}")
    norms = _norms(features)
    least, most = map(float, norms.aminmax())
    if not (least >= SMALLEST_NORM and most <= longest):
        exact = norms.double()  # a bound that is rounded to float32 may be on the other side of a row
        row = int(torch.nonzero(~((exact >= SMALLEST_NORM) & (exact <= longest)))[0])
        raise InvalidSamples(f"row {row} of the features is {_lack_of_direction(norms[row], longest)}")
    return norms


def _at_unit_length(rows: Tensor) -> Tensor:
    """Rows …×d at unit length; those of unit length already as they are, where that can be seen for free."""
    norms = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    if is_host_readable(norms) and bool(((norms - 1).abs() < _UNIT_WITHIN).all()):
        return rows
    return rows / norms.clamp_min_(_NO_DIRECTION)


def _norms(rows: Tensor) -> Tensor:
    wide = torch.promote_types(rows.dtype, torch.float32)  # of which vector_norm makes a copy
    return torch.cat([torch.linalg.vector_norm(part, dim=-1, dtype=wide) for part in torch.split(rows, _ROWS_AT_ONCE)])


def _lack_of_direction(norm: Tensor, longest: float = LARGEST_NORM) -> str:
    """The problem with a row of that length, as the end of an error message."""
    if SMALLEST_NORM <= norm <= LARGEST_NORM:
        return f"{float(norm):.4g} long, more than {longest:.4g}; Samples.of(features) scales rows to unit length"
    return "zero and has no direction" if norm < SMALLEST_NORM else "not finite (NaN or Inf), or too large to be scaled"
