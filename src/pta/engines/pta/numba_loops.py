"""The rule as loops that numba compiles: a chunk class by class, and one sample from its feature to its logits.

The chunk has the algebra of `chunk.py`, but a class is followed from the first sample to the last on its own, so that
its two vectors are changed in place and stay in the processor's cache. The rule for one sample is that of `step.py`:
only what is added up in `_rows_times` and `_mix` may be added up in any order.
"""

import numpy as np
from torch import Tensor

from pta.core.compiled import compiled
from pta.core.samples import LARGEST_NORM, SMALLEST_NORM
from pta.engines.pta.rule import DOUBT, SMALLEST_DECAY, Prototypes, Rule
from pta.engines.pta.touches import Touches

_LOWEST_LOG_DECAY = np.log(SMALLEST_DECAY)
_SHORTEST, _LONGEST = 2 * SMALLEST_NORM, LARGEST_NORM / 2  # nearer to the bounds, `Samples.of` decides


def advance_by_numba(prototypes: Prototypes, anchors: Tensor, features: Tensor, touches: Touches, rule: Rule) -> Tensor:
    """Learn all samples; give each one's cosine with every class's R as it was at that sample's turn, B×C."""
    cosines = features @ prototypes.anchored.T
    recursive = rule.anchor == "recursive"
    touched = np.bincount(touches.classes, minlength=len(anchors))
    moving = np.flatnonzero(touched | (recursive & ~prototypes.resting.numpy()))
    begin = np.searchsorted(touches.classes, np.append(moving, len(anchors)))
    state = prototypes.knowledge, prototypes.anchored, prototypes.length, prototypes.resting
    arrays = (tensor.numpy() for tensor in (features, features @ features.T, cosines, *state, anchors))
    log_keep, late = rule.log_decay(touches.probabilities), 1 if rule.order == "predict-first" else 0
    switches = rule.w, recursive, rule.renormalise, late, prototypes.arrived_within
    _follow_classes(moving, begin, touches.samples, log_keep, *arrays, *switches)
    prototypes.touched[touches.classes] = True
    if recursive and not rule.renormalise:
        prototypes.length[~prototypes.touched] *= rule.w ** len(features)
    return cosines


@compiled(fastmath={"contract", "reassoc"})
def _product(u, v):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(len(u)):
        total += u[j] * v[j]
    return total


@compiled()
def _products(F, v):  # type: ignore[no-untyped-def]
    products = np.empty(len(F), F.dtype)
    for i in range(len(F)):
        products[i] = _product(F[i], v)
    return products


@compiled(error_model="numpy", fastmath={"contract", "reassoc"})
def _follow_classes(  # type: ignore[no-untyped-def]
    rows, begin, samples, log_keep, F, gram, cosines, P, R, length, resting, text, w, recursive, rescale, late, within
):
    B, d = F.shape
    real = F.dtype.type
    for m in range(len(rows)):
        c = rows[m]
        anchor = R[c] if recursive else text[c]
        moved = recursive and not resting[c]
        square = _product(P[c], P[c])
        along_r = cosines[:, c].copy() if recursive else _products(F, anchor)
        if recursive and resting[c]:  # R is P/‖P‖, or P is zero
            overlap = np.sqrt(square)
            along_p = along_r * real(overlap)
        else:
            overlap = _product(P[c], anchor)
            along_p = _products(F, P[c])

        # R is a·anchor + b·P, and its products with the features are a·along_r + b·along_p.
        a, b, size, still = 1.0, 0.0, length[c], not moved or square == 0
        t = 0
        for k in range(begin[m] - 1, begin[m + 1]):
            if k >= begin[m]:
                if not recursive:
                    a, b = 1.0, 0.0
                elif square == 0 and not rescale:
                    size *= w**t
                elif b != 0:  # write R down before P changes under it
                    for j in range(d):
                        R[c, j] = real(a) * R[c, j] + real(b) * P[c, j]
                    for i in range(t, B):
                        along_r[i] = real(a) * along_r[i] + real(b) * along_p[i]
                    overlap = a * overlap + b * square
                    a, b = 1.0, 0.0
                keep, share = np.exp(log_keep[k]), -np.expm1(log_keep[k])
                square = keep * keep * square + 2 * keep * share * along_p[t] + share * share * gram[t, t]
                overlap = keep * overlap + share * along_r[t]
                for j in range(d):
                    P[c, j] = real(keep) * P[c, j] + real(share) * F[t, j]
                for i in range(t, B):
                    along_p[i] = real(keep) * along_p[i] + real(share) * gram[t, i]
                moved, still = True, False
            until = samples[k + 1] if k + 1 < begin[m + 1] else B
            while t < until and not still:
                pull = w * size if recursive else w
                from_a, from_p = pull * a, pull * b + (1 - w)
                norm = np.sqrt(max(from_a * from_a + 2 * from_a * from_p * overlap + from_p * from_p * square, 0.0))
                if norm > 0:
                    a, b = from_a / norm, from_p / norm
                if recursive and not rescale:
                    size = norm
                goal = norm if rescale else np.sqrt(square)
                still = not recursive or (a <= within and abs(norm - goal) <= within * goal)
                if t + late < B:
                    cosines[t + late, c] = a * along_r[t + late] + b * along_p[t + late]
                t += 1
            if moved:
                for i in range(t + late, min(until + late, B)):
                    cosines[i, c] = real(a) * along_r[i] + real(b) * along_p[i]
            t = until

        for j in range(d):
            R[c, j] = real(a) * anchor[j] + real(b) * P[c, j]
        R[c] /= real(np.sqrt(_product(R[c], R[c])))
        length[c] = size
        resting[c] = still


@compiled(fastmath={"contract", "reassoc"})
def _rows_times(M, f, products):  # type: ignore[no-untyped-def]
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

    _rows_times(text, f, z)
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
        _rows_times(R, f, cosines)
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
        _rows_times(R, f, cosines)
    for c in range(len(text)):
        z[c] += real(scale) * cosines[c] + real(bias)
    seen[()] += 1
    return True
