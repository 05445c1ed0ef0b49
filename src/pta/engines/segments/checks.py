"""What makes a segment whole: nothing that `summarise` could not have made may reach a state."""

import math

import numpy as np
import torch
from torch import Tensor

from pta.core.samples import LONGEST_MEAN, SMALLEST_NORM
from pta.engines.pta.rule import Rule
from pta.engines.pta.touches import Touches
from pta.engines.segments.affine import AffineMap
from pta.errors import StateMismatch, shown

_MOST_SAMPLES = 2**53
_LARGEST_SIDE = 2**31
_ROUNDING = 1e-6  # of sums that are one at most


def require_whole(
    head: AffineMap, tail: Tensor, touches: Touches, rule: Rule, shape: tuple[int, int], classifier: str
) -> None:
    """Refuse parts that do not make a segment."""
    sizes = len(shape) == 2 and all(type(size) is int and 0 < size <= _LARGEST_SIDE for size in shape)
    _require(sizes, f"a segment's shape must be the numbers of classes and dimensions, got {shown(shape)}")
    _require(isinstance(classifier, str), f"a classifier's fingerprint must be text, got {shown(classifier)}")
    _require_tail(tail, shape[1])
    _require(0 <= head.count <= _MOST_SAMPLES, f"a segment cannot have {shown(head.count)} samples before its tail")
    kept, count = len(tail), head.count + len(tail)
    whole_tail = kept == min(count, rule.tail)
    _require(whole_tail, f"a segment of {count} samples keeps {rule.tail} in its tail, or all, not {kept}")
    _require_head(head, rule, shape, tail.dtype)
    require_touches(touches, rule, kept, shape[0])


def _require_tail(tail: Tensor, dim: int) -> None:
    rows = tail.dtype in (torch.float32, torch.float64) and tail.ndim == 2 and tail.shape[1] == dim and len(tail) > 0
    wanted = f"a segment's tail must be float32 or float64 rows of {dim} numbers"
    _require(rows, f"{wanted}, got {tuple(tail.shape)} {tail.dtype}")
    norms = torch.linalg.vector_norm(tail, dim=1)
    usable = bool(((norms >= SMALLEST_NORM) & (norms <= LONGEST_MEAN)).all())
    _require(usable, "a feature in the segment's tail is zero, NaN or Inf, or longer than one")


def _require_head(head: AffineMap, rule: Rule, shape: tuple[int, int], dtype: torch.dtype) -> None:
    rows, wide = tuple(head.classes.shape[:1]), torch.float64
    _require_numbers("classes", head.classes, rows, torch.int64, 0, shape[0] - 1)
    _require(bool((head.classes.diff() > 0).all()), "the classes of a segment must be different and ascending")
    _require(
        head.count > 0 or not len(head.classes), "a segment that is all tail cannot have touched a class before it"
    )
    once, every_time = (float(rule.log_decay(np.array(p))) for p in (rule.threshold * (1 - _ROUNDING), 1 + _ROUNDING))
    _require_numbers("log_decay", head.log_decay, rows, wide, head.count * every_time * (1 + _ROUNDING), once)
    _require_rows("offset", head.offset, -torch.expm1(head.log_decay), shape[1], dtype)
    _require_numbers("spread", head.spread, rows, wide, 0.0, math.pi)
    if head.anchored:
        learned = 1 - rule.w**head.count + _ROUNDING  # the share in R of every P since the start
        _require_numbers("from_knowledge", head.anchored.from_knowledge, rows, wide, 0.0, learned)
        _require_rows("anchored offset", head.anchored.offset, learned - head.anchored.from_knowledge, shape[1], dtype)


def _require_numbers(
    name: str, given: Tensor, shape: tuple[int, ...], dtype: torch.dtype, low: float, high: float
) -> None:
    _require_form(name, given, shape, dtype)
    inside = bool(((given >= low) & (given <= high)).all())
    _require(inside, f"{name} of a segment must be numbers from {low:g} to {high:g}")


def _require_rows(name: str, given: Tensor, weights: Tensor, dim: int, dtype: torch.dtype) -> None:
    """Refuse rows that are no sums of features, none longer than one, with weights that add up to so much."""
    _require_form(name, given, (len(weights), dim), dtype)
    inside = bool((torch.linalg.vector_norm(given, dim=1, dtype=torch.float64) <= weights * LONGEST_MEAN).all())
    _require(inside, f"{name} of a segment has rows that are longer than any sum of its features")


def _require_form(name: str, given: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    fits = len(shape) > 0 and tuple(given.shape) == shape and given.dtype == dtype
    _require(fits, f"{name} of a segment must be {shape} {dtype}, got {tuple(given.shape)} {given.dtype}")


def require_touches(touches: Touches, rule: Rule, count: int, classes: int) -> None:
    """Refuse what cannot be the touches of so many samples and classes."""
    samples, touched, p = parts = touches.samples, touches.classes, touches.probabilities
    typed = all(part.ndim == 1 for part in parts) and samples.dtype == touched.dtype == np.int64
    wanted = "a segment's touches must be int64 samples and classes and float64 probabilities"
    _require(typed and p.dtype == np.float64, wanted)
    whole = len(samples) == len(touched) == len(p) and touches.count == count
    _require(whole, "a segment's touches must have as many samples as classes and probabilities")
    inside = ((samples >= 0) & (samples < count) & (touched >= 0) & (touched < classes)).all()
    ordered = ((np.diff(touched) > 0) | ((np.diff(touched) == 0) & (np.diff(samples) > 0))).all()
    wanted = f"a segment's touches must be of {count} samples and {classes} classes, ordered by class, then by sample"
    _require(bool(inside and ordered), wanted)
    enough = (np.fmin(p, 2.0).astype(np.float32) >= np.float32(rule.threshold)) & (p <= 1 + _ROUNDING)
    _require(bool(enough.all()), f"the probabilities of a segment's touches must be from {rule.threshold:g} to 1")


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise StateMismatch(complaint)
