"""The whole step for one sample on the CPU, from feature to logits, as compiled code (optional extra `fast`, needs numba).

The rule is that of `step.py`. Python would cost more than the rule: the two products push its code out of the cache.
"""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from pta.classifier import ZeroShotClassifier
from pta.engines.prototypes import Prototypes
from pta.engines.rule import SMALLEST_DECAY, Rule
from pta.engines.touches import DOUBT
from pta.errors import InvalidSamples
from pta.host_readable import is_host_readable
from pta.plain import plain_tensor
from pta.samples import LARGEST_NORM, SMALLEST_NORM, Samples

_LOWEST_LOG_DECAY = np.log(SMALLEST_DECAY)
_SHORTEST, _LONGEST = 2 * SMALLEST_NORM, LARGEST_NORM / 2  # nearer to the bounds, `Samples.of` decides


class CompiledStep:
    """The step on a state that stays where it is in memory."""

    def __init__(self, classifier: ZeroShotClassifier, prototypes: Prototypes, seen: Tensor, rule: Rule) -> None:
        self.tensors = classifier.anchors, *vars(prototypes).values(), seen
        self._shape, self._dtype = (1, classifier.dim), classifier.anchors.dtype
        numbers = classifier.scale, classifier.bias, rule.threshold, rule.h, rule.w, prototypes.arrived_within
        switches = rule.anchor == "recursive", rule.order == "predict-first", rule.weight == "raw", rule.renormalise
        self._arguments = *(tensor.numpy() for tensor in self.tensors), *numbers, *switches

    def __call__(self, samples: object) -> Tensor | None:
        """Learn one sample and give its logits, 1×C; learn nothing and give None if `Adapter.step` has to do it.

        That is so for several samples, for what must be converted or refused, and where float64 decides what is touched.
        """
        if isinstance(samples, Samples):
            features, is_unit = samples.features, True
        elif isinstance(samples, Tensor):
            features, is_unit = plain_tensor("features", samples, InvalidSamples), False
        else:
            return None
        alike = features.shape == self._shape and features.dtype == self._dtype
        if not (alike and is_host_readable(features) and features.is_contiguous()):
            return None
        logits = np.empty((1, len(self.tensors[0])), self._arguments[0].dtype)
        return torch.from_numpy(logits) if _step(features.numpy(), is_unit, logits, *self._arguments) else None


@njit(cache=True, fastmath={"contract", "reassoc"})
def _product(u, v):  # type: ignore[no-untyped-def]
    total = u.dtype.type(0)
    for j in range(len(u)):
        total += u[j] * v[j]
    return total


@njit(cache=True, fastmath={"contract", "reassoc"})
def _mix(a, u, b, v, mixed):  # type: ignore[no-untyped-def]
    """Write a·u + b·v, and give its length in float64, whose squares do not underflow."""
    square = 0.0
    for j in range(len(u)):
        mixed[j] = a * u[j] + b * v[j]
        square += np.float64(mixed[j]) * np.float64(mixed[j])
    return np.sqrt(square)


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _step(  # type: ignore[no-untyped-def]
    features, is_unit, answers, text, P, R, length, touched, resting, seen,
    scale, bias, threshold, h, w, within, recursive, predict_first, raw, rescale,
):  # fmt: skip
    f, z, real = features[0], answers[0], features.dtype.type
    if not is_unit:
        norm = np.sqrt(_product(f, f))
        if not _SHORTEST <= norm <= _LONGEST:
            return False
        f = f / norm

    for c in range(len(text)):
        z[c] = real(scale) * _product(text[c], f) + real(bias)
    top, total = z.max(), 0.0
    for c in range(len(text)):
        total += np.exp(z[c] - top)
    untouched, certain = top + np.log(threshold * (1 - DOUBT) * total), top + np.log(threshold * (1 + DOUBT) * total)
    for c in range(len(text)):
        if untouched <= z[c] <= certain:
            return False

    mixed = np.empty_like(f)
    for c in range(len(text)):
        cosine = _product(R[c], f) if predict_first else real(0)
        keep, share = real(1), real(0)
        if z[c] > certain:
            p = np.exp(np.float64(z[c] - top)) / total
            log_keep = max(np.log1p(-min(p, 1.0)), _LOWEST_LOG_DECAY) if raw else -p / h
            keep, share = real(np.exp(log_keep)), real(-np.expm1(log_keep))
            touched[c] = True
        if share > 0 or (recursive and not resting[c]):
            size = _mix(keep, P[c], share, f, mixed)
            P[c] = mixed
            anchor, pull = (R[c], w * length[c]) if recursive else (text[c], w)
            if recursive:
                away = _mix(real(1), R[c], real(-1 / size), P[c], mixed)
            norm = _mix(real(pull), anchor, real(1 - w), P[c], mixed)
            if norm > 0:
                for j in range(len(f)):
                    R[c, j] = mixed[j] / real(norm)
            if recursive:
                # The way left to P/‖P‖ shrinks by pull/norm; measured before the step it stands out of the rounding.
                left, goal = away * pull / norm, norm if rescale else size
                resting[c] = size == 0 or (left <= within and abs(norm - goal) <= within * goal)
                if not rescale:
                    length[c] = norm
        elif recursive and not rescale and not touched[c]:
            length[c] *= w
        if not predict_first:
            cosine = _product(R[c], f)
        z[c] += real(scale) * cosine + real(bias)
    seen[()] += 1
    return True
