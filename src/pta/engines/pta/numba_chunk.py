"""The chunk's recursion as one loop per class that numba compiles.

The same algebra as `chunk.py`, but a class is followed from the first sample to the last on its own, so that its two
vectors are changed in place and stay in the processor's cache.
"""

import numpy as np
from torch import Tensor

from pta.core.compiled import compiled
from pta.engines.pta.prototypes import Prototypes
from pta.engines.pta.rule import Rule
from pta.engines.pta.touches import Touches


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
