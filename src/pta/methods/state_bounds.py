"""The allowed values of a piece of state, checked whenever it comes from a file, a snapshot or a pickle.

A bound contains everything that steps can lead to, rounding included. On a state within its bounds no step fails or
gives NaN.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pta.core.samples import LARGEST_NORM, LONGEST_MEAN, longest_unit
from pta.engines.caches.admission import EMPTY

LARGEST_COUNT = 2**53
"""Float64 tells whole numbers up to here from the next."""

_ROUNDING = 1e-4  # of lengths and sums that are one at most, in float32 and float64
_ROUNDING_OF_ENTROPIES = 1e-9


class Bound(NamedTuple):
    """A condition on a tensor, and what error messages say that it must be."""

    says: str
    holds: Callable[[Tensor], bool]


def between(low: float, high: float) -> Bound:
    """Numbers from low to high; NaN and Inf are none."""
    return Bound(f"numbers from {low:g} to {high:g}", lambda tensor: _all_within(tensor, low, high))


def usual_bound(dtype: torch.dtype) -> Bound:
    """The default bound of a piece of state: counts from zero, finite numbers, flags."""
    if dtype == torch.bool:
        return FLAGS
    return between(-LARGEST_NORM, LARGEST_NORM) if dtype.is_floating_point else between(0, LARGEST_COUNT)


def rows_at_most(length: float) -> Bound:
    """Rows (of the last dimension) that are at most so long."""
    return Bound(f"rows at most {length:.4g} long", lambda tensor: _all_within(_lengths(tensor), 0.0, length))


def _in_the_unit_ball(rows: Tensor) -> bool:
    # In half precision every entry of a slowly moving mean is rounded at its own pace. It stays between the entries of
    # the features it is a mean of, but the length of the row can grow.
    if rows.dtype in (torch.float32, torch.float64):
        return _all_within(_lengths(rows), 0.0, LONGEST_MEAN)
    return _all_within(rows, -longest_unit(rows.dtype), longest_unit(rows.dtype))


def _are_unit(rows: Tensor) -> bool:
    longest = longest_unit(rows.dtype) + _ROUNDING
    return _all_within(_lengths(rows), 2 - longest, longest)


def _are_distributions(rows: Tensor) -> bool:
    return SHARES.holds(rows) and _all_within(rows.sum(dim=-1), 1 - _ROUNDING, 1 + _ROUNDING)


UNIT_BALL = Bound("finite rows at most one long", _in_the_unit_ball)
UNIT_ROWS = Bound("rows of unit length", _are_unit)
DISTRIBUTIONS = Bound("rows of probabilities that add up to one", _are_distributions)
# Their dtype says it all: other bytes than 0 and 1 become 1 when they are copied.
FLAGS = Bound("flags", lambda _: True)
SHARES = Bound("numbers from 0 to 1", lambda tensor: _all_within(tensor, 0.0, LONGEST_MEAN))


def entropies(classes: int) -> Bound:
    """Entropies of distributions over so many classes, in nats."""
    low, high = -_ROUNDING_OF_ENTROPIES, math.log(classes) + _ROUNDING_OF_ENTROPIES
    return Bound(f"entropies from 0 to ln {classes}", lambda tensor: _all_within(tensor, low, high))


def or_empty(scores: Bound) -> Bound:
    """The same, or EMPTY in free slots."""
    return Bound(scores.says, lambda tensor: scores.holds(torch.where(tensor == EMPTY, 0.0, tensor)))


def slots_of(scores: Bound) -> Bound:
    """The scores of a cache: ascending in every class, then EMPTY."""
    may_be_free = or_empty(scores)
    return Bound(
        f"{scores.says} that ascend",
        lambda rows: may_be_free.holds(rows) and bool((rows.diff(dim=-1) >= 0).all()),
    )


def covariances(largest: float) -> Bound:
    """Matrices (of the last two dimensions), symmetric and positive semidefinite, no diagonal entry above `largest`.

    Symmetric is within rounding: 10⁻⁴ of the trace in float32, 10⁻¹² in float64. Positive semidefinite is a matrix that
    has a Cholesky factor once that much is added to its diagonal.
    """

    def holds(tensor: Tensor) -> bool:
        return all(_is_covariance(matrix, largest) for matrix in tensor.reshape(-1, *tensor.shape[-2:]))

    return Bound(f"symmetric, positive semidefinite and at most {largest:.4g} on the diagonal", holds)


def _is_covariance(matrix: Tensor, largest: float) -> bool:
    diagonal = matrix.diagonal()
    slack = (1e-12 if matrix.dtype == torch.float64 else _ROUNDING) * max(1.0, float(diagonal.sum()))
    if not _all_within(diagonal, -slack, largest) or not _all_within(matrix - matrix.T, -slack, slack):
        return False
    wide = matrix.to(torch.float64, copy=True)
    wide.diagonal().add_(slack)
    return int(torch.linalg.cholesky_ex(wide).info) == 0


def _all_within(tensor: Tensor, low: float, high: float) -> bool:
    return bool(((tensor >= low) & (tensor <= high)).all())


def _lengths(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64)
