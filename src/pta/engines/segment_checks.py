"""What makes a segment whole: nothing that `summarise` could not have made may reach a state."""

import math

import numpy as np
import torch
from torch import Tensor

from pta.engines.affine import AffineMap
from pta.engines.rule import Rule
from pta.engines.touches import Touches
from pta.errors import StateMismatch
from pta.samples import SMALLEST_NORM

_MOST_SAMPLES = 2**53
_SMALLEST = float(np.finfo(np.float64).tiny)
_ROUNDING = 1e-6  # of sums that are one at most


def require_whole(
    head: AffineMap, tail: Tensor, touches: Touches, rule: Rule, shape: tuple[int, int], classifier: str
) -> None:
    """Refuse parts that do not make a segment."""
    sizes = len(shape) == 2 and all(type(size) is int and size > 0 for size in shape)
    _require(sizes, f"a segment's shape must be the numbers of classes and dimensions, got {shape!r}")
    _require(isinstance(classifier, str), f"a classifier's fingerprint must be text, got {classifier!r}")
    kept, count = len(tail), head.count + len(tail)
    possible = type(head.count) is int and 0 <= head.count <= _MOST_SAMPLES
    _require(possible, f"a segment cannot have {count} samples, {kept} of them in its tail")
    _require_tail(tail, shape[1])
    whole_tail = kept == min(count, rule.tail)
    _require(whole_tail, f"a segment of {count} samples keeps {rule.tail} in its tail, or all, not {kept}")
    _require_head(head, rule, shape, tail.dtype)
    _require_touches(touches, rule, kept, shape[0])


def _require_tail(tail: Tensor, dim: int) -> None:
    rows = tail.dtype in (torch.float32, torch.float64) and tail.ndim == 2 and tail.shape[1] == dim and len(tail) > 0
    wanted = f"a segment's tail must be float32 or float64 rows of {dim} numbers"
    _require(rows, f"{wanted}, got {tuple(tail.shape)} {tail.dtype}")
    norms = torch.linalg.vector_norm(tail, dim=1)
    usable = bool((torch.isfinite(norms) & (norms >= SMALLEST_NORM)).all())
    _require(usable, "a feature in the segment's tail is zero, NaN or Inf")


def _require_head(head: AffineMap, rule: Rule, shape: tuple[int, int], dtype: torch.dtype) -> None:
    rows, wide = tuple(head.classes.shape[:1]), torch.float64
    matrix = (*rows, shape[1])
    _require_numbers("classes", head.classes, rows, torch.int64)
    _require_numbers("log_decay", head.log_decay, rows, wide, high=-_SMALLEST)
    _require_numbers("offset", head.offset, matrix, dtype)
    _require_numbers("spread", head.spread, rows, wide, 0.0, math.pi)
    linear = (head.anchored is not None) == rule.fades_linearly
    _require(linear, "a segment maps R exactly if its rule is recursive without renormalising")
    if head.anchored:
        _require_numbers("from_knowledge", head.anchored.from_knowledge, rows, wide, 0.0, 1 + _ROUNDING)
        _require_numbers("anchored offset", head.anchored.offset, matrix, dtype)
    ascending = bool(((head.classes >= 0) & (head.classes < shape[0])).all() and (head.classes.diff() > 0).all())
    _require(ascending, f"the classes of a segment must be different ascending numbers from 0 to {shape[0] - 1}")
    possible = head.count > 0 or not len(head.classes)
    _require(possible, "a segment without samples before its tail cannot have touched a class there")


def _require_numbers(
    name: str, given: Tensor, shape: tuple[int, ...], dtype: torch.dtype, low: float = -math.inf, high: float = math.inf
) -> None:
    fits = len(shape) > 0 and tuple(given.shape) == shape and given.dtype == dtype
    _require(fits, f"{name} of a segment must be {shape} {dtype}, got {tuple(given.shape)} {given.dtype}")
    inside = bool((torch.isfinite(given) & (given >= low) & (given <= high)).all())
    _require(inside, f"{name} of a segment must be finite numbers from {low:g} to {high:g}")


def _require_touches(touches: Touches, rule: Rule, count: int, classes: int) -> None:
    samples, touched, p = touches.samples, touches.classes, touches.probabilities
    typed = all(part.ndim == 1 for part in (samples, touched, p)) and samples.dtype == touched.dtype == np.int64
    wanted = "a segment's touches must be int64 samples and classes and float64 probabilities"
    _require(typed and p.dtype == np.float64, wanted)
    whole = len(samples) == len(touched) == len(p) and touches.count == count
    _require(whole, "a segment's touches must have as many samples as classes and probabilities")
    inside = ((samples >= 0) & (samples < count) & (touched >= 0) & (touched < classes)).all()
    ordered = ((np.diff(touched) > 0) | ((np.diff(touched) == 0) & (np.diff(samples) > 0))).all()
    wanted = f"a segment's touches must be of {count} samples and {classes} classes, ordered by class, then by sample"
    _require(bool(inside and ordered), wanted)
    enough = (p.astype(np.float32) >= np.float32(rule.threshold)) & (p <= 1 + _ROUNDING)
    _require(bool(enough.all()), f"the probabilities of a segment's touches must be from {rule.threshold:g} to 1")


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise StateMismatch(complaint)
