"""The rule as loops that numba compiles: a chunk class by class, and one sample from its feature to its logits.

The chunk has the algebra of `chunk.py`, but a class is followed from the first sample to the last on its own, so that
its two vectors are changed in place and stay in the processor's cache. The rule for one sample is that of `step.py`:
only what is added up in `_rows_times` and `_mix` may be added up in any order.
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.compiled import compiled
from pta.core.samples import LARGEST_NORM, SMALLEST_NORM
from pta.engines.numba_scores import describe_zero_shot, products
from pta.engines.pta.rule import SMALLEST_DECAY, Prototypes, Rule
from pta.engines.pta.touches import Touches

Array = NDArray[np.floating]
_LOWEST_LOG_DECAY = np.log(SMALLEST_DECAY)
_SHORTEST, _LONGEST = 2 * SMALLEST_NORM, LARGEST_NORM / 2  # nearer to the bounds, `Samples.of` decides


def advance_by_numba(prototypes: Prototypes, anchors: Tensor, features: Tensor, touches: Touches, rule: Rule) -> Tensor:
    """Learn all samples; give each one's cosine with every class's R as it was at that sample's turn, B×C."""
    cosines = features @ prototypes.anchored.T
    moving = _moving(prototypes, touches, rule)
    along = np.ascontiguousarray(cosines.numpy().T[moving])
    gram = (features @ features.T).numpy()
    _follow(prototypes, anchors, moving, touches, rule, features.numpy(), gram, along)
    cosines.numpy().T[moving] = along
    return cosines


def learn_by_numba(
    prototypes: Prototypes, classifier: ZeroShotClassifier, F: Array, touches: Touches, rule: Rule, logits: Array | None
) -> None:
    """Learn all samples and add to their zero-shot logits, if they are given, the scores against R.

    Rows of R that neither move nor have to be scored are not read. The state has the same bits with and without logits.
    """
    R, moving = prototypes.anchored.numpy(), _moving(prototypes, touches, rule)
    gram, along = np.empty((len(F), len(F)), F.dtype), np.empty((len(moving), len(F)), F.dtype)
    products(F, F, np.arange(len(F)), gram)
    products(R[moving], F, np.arange(len(F)), along)
    if logits is not None:
        zero_shot, still = logits[:, moving], prototypes.touched.numpy().copy()
        still[moving] = False
        add_scores(F, R, still, classifier.scale, classifier.bias, logits)
    _follow(prototypes, classifier.anchors, moving, touches, rule, F, gram, along)
    if logits is not None:
        logits[:, moving] = zero_shot + (F.dtype.type(classifier.scale) * along.T + F.dtype.type(classifier.bias))


def _moving(prototypes: Prototypes, touches: Touches, rule: Rule) -> NDArray[np.int64]:
    """The classes whose P or R changes."""
    moves = ~prototypes.resting.numpy() if rule.anchor == "recursive" else np.zeros(len(prototypes.resting), np.bool_)
    moves[touches.classes] = True
    return np.flatnonzero(moves)


def _follow(
    prototypes: Prototypes, anchors: Tensor, moving: NDArray[np.int64], touches: Touches, rule: Rule, *arrays: Array
) -> None:
    """Move the classes that move. Arrays are F, F·Fᵀ, and M×B the cosines with R before, then those at each turn."""
    recursive = rule.anchor == "recursive"
    begin = np.searchsorted(touches.classes, np.append(moving, len(anchors)))
    state = prototypes.knowledge, prototypes.anchored, prototypes.length, prototypes.resting, anchors
    log_keep, late = rule.log_decay(touches.probabilities), 1 if rule.order == "predict-first" else 0
    switches = rule.w, recursive, rule.renormalise, late, prototypes.arrived_within
    tensors = (tensor.numpy() for tensor in state)
    _follow_classes(moving, begin, touches.samples, log_keep, *arrays, *tensors, *switches)
    prototypes.touched.numpy()[touches.classes] = True
    if rule.fades_linearly:
        prototypes.length[~prototypes.touched] *= rule.w**touches.count


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
    rows, begin, samples, log_keep, F, gram, along, P, R, length, resting, text, w, recursive, rescale, late, within
):
    B, d = F.shape
    real = F.dtype.type
    for m in range(len(rows)):
        c = rows[m]
        anchor = R[c] if recursive else text[c]
        moved = recursive and not resting[c]
        square = _product(P[c], P[c])
        along_r = along[m].copy() if recursive else _products(F, anchor)
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
                    along[m, t + late] = a * along_r[t + late] + b * along_p[t + late]
                t += 1
            if moved:
                for i in range(t + late, min(until + late, B)):
                    along[m, i] = real(a) * along_r[i] + real(b) * along_p[i]
            t = until

        for j in range(d):
            R[c, j] = real(a) * anchor[j] + real(b) * P[c, j]
        R[c] /= real(np.sqrt(_product(R[c], R[c])))
        length[c] = size
        resting[c] = still


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
    features, normalise, z, text, P, R, length, touched, resting, seen,
    scale, bias, threshold, h, w, within, recursive, predict_first, raw, rescale,
):  # fmt: skip
    """Learn one sample from its feature alone and write its logits; or give False, with nothing learned."""
    if normalise:
        f = np.empty_like(features)
        norm = _mix(f.dtype.type(1), features[0], f.dtype.type(0), features[0], f[0])
        if not _SHORTEST <= norm <= _LONGEST:
            return False
        features = features / f.dtype.type(norm)
    unused = np.empty(1)
    touches = describe_zero_shot(features, text, scale, bias, threshold, z, unused, unused, unused)
    learn_one(
        features, touches[0], touches[1], z, True, text, P, R, length, touched, resting, seen,
        scale, bias, threshold, h, w, within, recursive, predict_first, raw, rescale,
    )  # fmt: skip
    return True


@compiled(error_model="numpy", fastmath={"contract"})
def learn_one(  # type: ignore[no-untyped-def]
    features, classes, probabilities, z, answer, text, P, R, length, touched, resting, seen,
    scale, bias, threshold, h, w, within, recursive, predict_first, raw, rescale,
):  # fmt: skip
    """Learn one sample by its touches, and if it is to be answered, add its scores to its zero-shot logits."""
    f, real, k = features[0], features.dtype.type, 0
    mixed = np.empty_like(f)
    if answer and predict_first:
        add_scores(features, R, touched, scale, bias, z)
    for c in range(len(text)):
        keep, share = real(1), real(0)
        if k < len(classes) and classes[k] == c:
            p = probabilities[k]
            log_keep = max(np.log1p(-min(p, 1.0)), _LOWEST_LOG_DECAY) if raw else -p / h
            keep, share = real(np.exp(log_keep)), real(-np.expm1(log_keep))
            touched[c] = True
            k += 1
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
    if answer and not predict_first:
        add_scores(features, R, touched, scale, bias, z)
    seen[()] += 1


@compiled(nogil=True, fastmath={"contract"})
def add_scores(F, R, touched, scale, bias, z):  # type: ignore[no-untyped-def]
    """Add to zero-shot logits the scores against R, which of an untouched class is the text anchor."""
    real, cosines = z.dtype.type, np.empty_like(z)
    products(F, R, np.flatnonzero(touched), cosines)
    for i in range(len(F)):
        for c in range(len(R)):
            z[i, c] += real(scale) * cosines[i, c] + real(bias) if touched[c] else z[i, c]
