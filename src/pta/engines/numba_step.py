"""The whole step for one sample, from its feature to its logits, as one compiled loop (extra `fast`, needs numba).

The rule is that of `step.py`. Only what is added up in `_product` and `_mix` may be added up in any order.
"""

import numpy as np
from numba import njit

from pta.engines.rule import SMALLEST_DECAY
from pta.engines.touches import DOUBT
from pta.samples import LARGEST_NORM, SMALLEST_NORM

_LOWEST_LOG_DECAY = np.log(SMALLEST_DECAY)
_SHORTEST, _LONGEST = 2 * SMALLEST_NORM, LARGEST_NORM / 2  # nearer to the bounds, `Samples.of` decides


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
def step(  # type: ignore[no-untyped-def]
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
