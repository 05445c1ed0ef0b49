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
    if len(shape) != 2 or not all(type(size) is int and size > 0 for size in shape):
        raise StateMismatch(f"a segment's shape must be the numbers of classes and dimensions, got {shape!r}")
    if not isinstance(classifier, str):
        raise StateMismatch(f"a classifier's fingerprint must be text, got {classifier!r}")
    _require_tail(tail, shape[1])
    if head.count < 0 or head.count > _MOST_SAMPLES:
        raise StateMismatch(f"a segment cannot have {head.count + len(tail)} samples, {len(tail)} of them in its tail")
    if len(tail) != min(head.count + len(tail), rule.tail):
        raise StateMismatch(
            f"a segment of {head.count + len(tail)} samples keeps {rule.tail} in its tail, or all, not {len(tail)}"
        )
    _require_head(head, rule, shape, tail.dtype)
    _require_touches(touches, rule, len(tail), shape[0])


def _require_tail(tail: Tensor, dim: int) -> None:
    if tail.dtype not in (torch.float32, torch.float64) or tail.ndim != 2 or tail.shape[1] != dim or not len(tail):
        raise StateMismatch(
            f"a segment's tail must be float32 or float64 rows of {dim} numbers, got {tuple(tail.shape)} {tail.dtype}"
        )
    norms = torch.linalg.vector_norm(tail, dim=1)
    if not bool((torch.isfinite(norms) & (norms >= SMALLEST_NORM)).all()):
        raise StateMismatch("a feature in the segment's tail is zero, NaN or Inf")


def _require_head(head: AffineMap, rule: Rule, shape: tuple[int, int], dtype: torch.dtype) -> None:
    rows = (head.classes.shape[0],) if head.classes.ndim else ()
    matrix = (*rows, shape[1])
    _require_tensor("classes", head.classes, rows, torch.int64)
    _require_tensor("log_decay", head.log_decay, rows, torch.float64, high=-_SMALLEST)
    _require_tensor("offset", head.offset, matrix, dtype)
    _require_tensor("spread", head.spread, rows, torch.float64, 0.0, math.pi)
    if (head.anchored is not None) != rule.fades_linearly:
        raise StateMismatch("a segment maps R exactly if its rule is recursive without renormalising")
    if head.anchored:
        _require_tensor("from_knowledge", head.anchored.from_knowledge, rows, torch.float64, 0.0, 1 + _ROUNDING)
        _require_tensor("anchored offset", head.anchored.offset, matrix, dtype)
    numbers = head.classes.numpy()
    if len(numbers) and not (numbers[0] >= 0 and numbers[-1] < shape[0] and (np.diff(numbers) > 0).all()):
        raise StateMismatch(f"the classes of a segment must be different ascending numbers from 0 to {shape[0] - 1}")
    if len(numbers) and not head.count:
        raise StateMismatch("a segment without samples before its tail cannot have touched a class there")


def _require_tensor(
    name: str,
    tensor: Tensor,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    low: float = -math.inf,
    high: float = math.inf,
) -> None:
    if not shape or tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise StateMismatch(f"{name} of a segment must be {shape} {dtype}, got {tuple(tensor.shape)} {tensor.dtype}")
    if not bool((torch.isfinite(tensor) & (tensor >= low) & (tensor <= high)).all()):
        raise StateMismatch(f"{name} of a segment must be finite numbers from {low:g} to {high:g}")


def _require_touches(touches: Touches, rule: Rule, count: int, classes: int) -> None:
    parts = touches.samples, touches.classes, touches.probabilities
    types = np.int64, np.int64, np.float64
    if any(part.ndim != 1 or part.dtype != type_ for part, type_ in zip(parts, types, strict=True)):
        raise StateMismatch("a segment's touches must be int64 samples and classes and float64 probabilities")
    if len({len(part) for part in parts}) != 1 or touches.count != count:
        raise StateMismatch("a segment's touches must have as many samples as classes and probabilities")
    later, other = np.diff(touches.samples) > 0, np.diff(touches.classes)
    inside = (touches.samples >= 0) & (touches.samples < count) & (touches.classes >= 0) & (touches.classes < classes)
    if not inside.all() or not ((other > 0) | ((other == 0) & later)).all():
        raise StateMismatch(
            f"a segment's touches must be of {count} samples and {classes} classes, ordered by class, then by sample"
        )
    enough = touches.probabilities.astype(np.float32) >= np.float32(rule.threshold)
    if not (enough & (touches.probabilities <= 1 + _ROUNDING)).all():
        raise StateMismatch(f"the probabilities of a segment's touches must be from {rule.threshold:g} to 1")
