"""Samples: a batch of image (or point cloud) features, checked once, before anything learns from it."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pta.errors import InvalidSamples

_SMALLEST_NORM = 1e-6  # a shorter row has no direction that float32 could hold


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
        features = self.features
        if not isinstance(features, Tensor) or not features.is_floating_point():
            raise InvalidSamples("features must be a floating-point tensor; Samples.of(...) converts arrays and lists")
        if features.ndim != 2:
            raise InvalidSamples(
                f"features must be B×d (one row a sample), got shape {tuple(features.shape)}; "
                "a single feature vector x is x[None]"
            )
        if features.shape[0] == 0 or features.shape[1] == 0:
            raise InvalidSamples(f"no samples: features have shape {tuple(features.shape)}")
        norms = torch.linalg.vector_norm(features, dim=1, dtype=torch.promote_types(features.dtype, torch.float32))
        if not bool(torch.isfinite(norms).all()):
            row = int(torch.nonzero(~torch.isfinite(norms))[0])
            raise InvalidSamples(f"row {row} of the features is not finite (NaN or Inf)")
        if bool((norms < _SMALLEST_NORM).any()):
            row = int(torch.nonzero(norms < _SMALLEST_NORM)[0])
            raise InvalidSamples(f"row {row} of the features is zero and has no direction")

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
        samples = cls(tensor.detach().to(wide, copy=True))
        if not normalise:
            return samples
        return cls(torch.nn.functional.normalize(samples.features, dim=1))

    def __len__(self) -> int:
        return self.features.shape[0]

    @property
    def dim(self) -> int:
        """The length d of a feature."""
        return self.features.shape[1]

    def __getitem__(self, rows: slice | Tensor) -> "Samples":
        return Samples(self.features[rows])

    def to(self, *, device: torch.device | None = None, dtype: torch.dtype | None = None) -> "Samples":
        """The same samples on another device or in another precision."""
        return Samples(self.features.to(device=device, dtype=dtype))

    def batches(self, size: int) -> Iterator["Samples"]:
        """Consecutive batches of at most `size` samples."""
        for start in range(0, len(self), size):
            yield self[start : start + size]
