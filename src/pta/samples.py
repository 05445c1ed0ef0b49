"""Samples: a batch of image (or point cloud) features, checked once, before anything learns from it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pta.errors import InvalidSamples

SMALLEST_NORM = 1e-6  # a shorter row has no direction that float32 could hold


@dataclass(frozen=True)
class Samples:
    """A batch of B features of dimension d, finite and with a direction each.

    `Samples.of` makes one from whatever the caller has and scales rows to unit length. Features that are
    already a mean over views are shorter than one on purpose: pass `normalise=False` to keep them so.

    >>> Samples.of([[3.0, 4.0]]).features
    tensor([[0.6000, 0.8000]])
    """

    features: Tensor

    def __post_init__(self) -> None:
        _norms_of_checked(self.features)

    @classmethod
    def of(cls, features: object, *, normalise: bool = True) -> "Samples":
        """Samples from a tensor, array or list; a copy, never a view of the caller's memory."""
        try:
            tensor = torch.as_tensor(features)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidSamples(f"features cannot be read as numbers: {error}") from None
        if tensor.is_complex() or tensor.dtype == torch.bool:
            raise InvalidSamples(f"features must be real numbers, got {tensor.dtype}")
        wide = tensor.dtype if tensor.dtype == torch.float64 else torch.float32
        copied = tensor.detach().to(wide, copy=True)
        norms = _norms_of_checked(copied)
        return cls._trusted(copied.div_(norms[:, None]) if normalise else copied)

    @classmethod
    def _trusted(cls, features: Tensor) -> "Samples":
        """Samples from features that were checked before."""
        samples = object.__new__(cls)
        object.__setattr__(samples, "features", features)
        return samples

    def __len__(self) -> int:
        return self.features.shape[0]

    @property
    def dim(self) -> int:
        """The length d of a feature."""
        return self.features.shape[1]

    def __getitem__(self, rows: slice | Tensor) -> "Samples":
        return Samples._trusted(self.features[rows])

    def batches(self, size: int) -> Iterator["Samples"]:
        """Consecutive batches of at most `size` samples."""
        for start in range(0, len(self), size):
            yield self[start : start + size]


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
    norms: Tensor = torch.linalg.vector_norm(features, dim=1, dtype=torch.promote_types(features.dtype, torch.float32))
    least, most = norms.aminmax()
    if not math.isfinite(most):
        row = int(torch.nonzero(~torch.isfinite(norms))[0])
        raise InvalidSamples(f"row {row} of the features is not finite (NaN or Inf)")
    if least < SMALLEST_NORM:
        raise InvalidSamples(f"row {int(norms.argmin())} of the features is zero and has no direction")
    return norms
