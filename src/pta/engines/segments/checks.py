"""What makes a segment whole: nothing that `summarise` could not have made may reach a state."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pta.core.samples import LONGEST_MEAN, SMALLEST_NORM
from pta.engines.pta.rule import Rule
from pta.engines.pta.touches import Touches
from pta.engines.segments.affine import AffineMap
from pta.errors import StateMismatch

_MOST_SAMPLES = 2**53
_LARGEST_SIDE = 2**31
_ROUNDING = 1e-6  # of sums that are one at most


def require_whole(
    head: AffineMap, tail: Tensor, touches: Touches, rule: Rule, shape: tuple[int, int], classifier: str
) -> None:
    """Refuse parts that do not make a segment."""
    sizes = len(shape) == 2 and all(type(size) is int and 0 < size <= _LARGEST_SIDE for size in shape)
    _require(
        sizes and isinstance(classifier, str), "its shape must be the classes and dimensions, its classifier a text"
    )
    (C, d), n, wide = shape, head.count, torch.float64
    rows = tail.ndim == 2 and tail.shape[1] == d and len(tail) > 0 and tail.dtype in (torch.float32, wide)
    _require(rows, "its tail must be float32 or float64 rows, as long as an anchor")
    norms = torch.linalg.vector_norm(tail, dim=1)
    usable = ((norms >= SMALLEST_NORM) & (norms <= LONGEST_MEAN)).all()
    _require(usable, "a feature in its tail is zero, NaN or Inf, or longer than one")
    whole = 0 <= n <= _MOST_SAMPLES and len(tail) == min(n + len(tail), rule.tail)
    _require(whole, "its tail must hold as many samples as its rule asks for, or all")
    K = head.classes.numel()
    _require_numbers("classes", head.classes, K, torch.int64, 0, C - 1)
    ascending = (head.classes.diff() > 0).all() and (n > 0 or not K)
    _require(ascending, "its classes must be different and ascending, and none if it is all tail")
    once, every_time = (float(rule.log_decay(np.array(p))) for p in (rule.threshold * (1 - _ROUNDING), 1 + _ROUNDING))
    _require_numbers("log_decay", head.log_decay, K, wide, n * every_time * (1 + _ROUNDING), once)
    _require_rows("offset", head.offset, -torch.expm1(head.log_decay), d, tail.dtype)
    _require_numbers("spread", head.spread, K, wide, 0.0, math.pi)
    if head.anchored:
        learned = 1 - rule.w**n + _ROUNDING  # the share in R of every P since the start
        _require_numbers("from_knowledge", head.anchored.from_knowledge, K, wide, 0.0, learned)
        _require_rows("anchored offset", head.anchored.offset, learned - head.anchored.from_knowledge, d, tail.dtype)
    require_touches(touches, rule, len(tail), C)


def _require_numbers(name: str, given: Tensor, count: int, dtype: torch.dtype, low: float, high: float) -> None:
    inside = given.shape == (count,) and given.dtype == dtype and ((given >= low) & (given <= high)).all()
    _require(inside, f"its {name} must be {count} numbers of {dtype} from {low:g} to {high:g}")


def _require_rows(name: str, given: Tensor, weights: Tensor, dim: int, dtype: torch.dtype) -> None:
    """Refuse rows that are not sums of features, none longer than one, with weights that add up to so much."""
    _require(
        given.shape == (len(weights), dim) and given.dtype == dtype, f"its {name} must be rows like those of its tail"
    )
    longest = torch.linalg.vector_norm(given, dim=1, dtype=torch.float64) <= weights * LONGEST_MEAN
    _require(longest.all(), f"its {name} has rows that are longer than any sum of its features")


def require_touches(touches: Touches, rule: Rule, count: int, classes: int) -> None:
    """Refuse what cannot be the touches of so many samples and classes."""
    samples, touched, p = touches.samples, touches.classes, touches.probabilities
    typed = samples.dtype == touched.dtype == np.int64 and p.dtype == np.float64
    whole = samples.ndim == 1 and samples.shape == touched.shape == p.shape and touches.count == count
    _require(
        typed and whole, "its touches must be int64 samples and classes and float64 probabilities, of each as many"
    )
    inside = ((samples >= 0) & (samples < count) & (touched >= 0) & (touched < classes)).all()
    ordered = ((np.diff(touched) > 0) | ((np.diff(touched) == 0) & (np.diff(samples) > 0))).all()
    _require(inside and ordered, "its touches must be of its samples and classes, ordered by class, then by sample")
    enough = (np.fmin(p, 2.0).astype(np.float32) >= np.float32(rule.threshold)) & (p <= 1 + _ROUNDING)
    _require(enough.all(), f"the probabilities of its touches must be from {rule.threshold:g} to 1")


def _require(holds: Any, complaint: str) -> None:
    if not holds:
        raise StateMismatch(complaint)
