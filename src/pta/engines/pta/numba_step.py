"""The whole step for one sample, from its feature to its logits, as one loop that numba compiles.

The rule is that of `step.py`. Only what is added up in `_products` and `_mix` may be added up in any order.
"""

import numpy as np

from pta.core.compiled import compiled
from pta.core.samples import LARGEST_NORM, SMALLEST_NORM
from pta.engines.pta.rule import SMALLEST_DECAY
from pta.engines.pta.touches import DOUBT

_LOWEST_LOG_DECAY = np.log(SMALLEST_DECAY)
_SHORTEST, _LONGEST = 2 * SMALLEST_NORM, LARGEST_NORM / 2  # nearer to the bounds, `Samples.of` decides


@compiled(fastmath={"contract", "reassoc"})
def _products(M, f, products):  # type: ignore[no-untyped-def]
    """M·f, four rows at a time: memory is read faster in several places at once."""
    last, zero = len(M) - len(M) % 4, f.dtype.type(0)
    for c in range(0, last, 4):
        p0, p1, p2, p3 = zero, zero, zero, zero
        for j in range(len(f)):
            p0 += M[c, j] * f[j]
            p1 += M[c + 1, j] * f[j]
            p2 += M[c + 2, j] * f[j]
            p3 += M[c + 3, j] * f[j]
        products[c], products[c + 1], products[c + 2], products[c + 3] = p0, p1, p2, p3
    for c in range(last, len(M)):
        products[c] = zero
        for j in range(len(f)):
            products[c] += M[c, j] * f[j]


@compiled(fastmath={"contract", "reassoc"})
def _mix(a, u, b, v, mixed):  # type: ignore[no-untyped-def]
    """Write a·u + b·v, and give its length in float64, whose squares do not underflow."""
    square = 0.0
    for j in range(len(u)):
        mixed[j] = a * u[j] + b * v[j]
        square += np.float64(mixed[j]) * np.float64(mixed[j])
    return np.sqrt(square)


@compiled(error_model="numpy", fastmath={"contract"})
def step(  # type: ignore[no-untyped-def]
    features, normalise, answers, text, P, R, length, touched, resting, seen,
    scale, bias, threshold, h, w, within, recursive, predict_first, raw, rescale,
):  # fmt: skip
    f, z, real = features[0], answers[0], features.dtype.type
    cosines, mixed = np.empty_like(z), np.empty_like(f)
    if normalise:
        norm = _mix(real(1), f, real(0), f, mixed)
        if not _SHORTEST <= norm <= _LONGEST:
            return False
        f = f / real(norm)

    _products(text, f, z)
    for c in range(len(text)):
        z[c] = real(scale) * z[c] + real(bias)
    top, total = z.max(), 0.0
    for c in range(len(text)):
        total += np.exp(z[c] - top)
    untouched, certain = top + np.log(threshold * (1 - DOUBT) * total), top + np.log(threshold * (1 + DOUBT) * total)
    for c in range(len(text)):
        if untouched <= z[c] <= certain:
            return False

    if predict_first:
        _products(R, f, cosines)
    for c in range(len(text)):
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
        _products(R, f, cosines)
    for c in range(len(text)):
        z[c] += real(scale) * cosines[c] + real(bias)
    seen[()] += 1
    return True
