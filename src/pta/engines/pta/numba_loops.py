"""The rule as loops that numba compiles: scores and touches, a chunk class by class, and one sample.

What is scored of a sample depends on that sample alone, to the last bit: every pair of a sample and a row is added up
by the same loop, whatever the batch and the place in it.

The chunk has the algebra of `chunk.py`, but a class is followed from the first sample to the last on its own, so that
its two vectors are changed in place and stay in the processor's cache. The rule for one sample is that of `step.py`.

All is in one file, because numba's cache does not notice that a function in another file has changed.
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pta.core.classifier import ZeroShotClassifier
from pta.core.samples import LARGEST_NORM, SMALLEST_NORM
from pta.door.compiled import compiled
from pta.engines.pta.rule import DOUBT, SMALLEST_DECAY, Prototypes, Rule
from pta.engines.pta.touches import Touches

Array = NDArray[np.floating]
_LOWEST_LOG_DECAY = np.log(SMALLEST_DECAY)
_SHORTEST, _LONGEST = 2 * SMALLEST_NORM, LARGEST_NORM / 2  # nearer to the bounds, `Samples.of` decides


# -- scores ----------------------------------------------------------------------------------------------------------


@compiled(nogil=True, fastmath={"contract", "reassoc"})
def products(F, M, rows, z):  # type: ignore[no-untyped-def]
    """F·Mᵀ for some rows of M, in their columns of z.

    M is read once, eight rows at a time: memory is read faster in several places at once.
    """
    last, zero = len(rows) - len(rows) % 8, F.dtype.type(0)
    for k in range(0, last, 8):
        a0, a1, a2, a3 = M[rows[k]], M[rows[k + 1]], M[rows[k + 2]], M[rows[k + 3]]
        b0, b1, b2, b3 = M[rows[k + 4]], M[rows[k + 5]], M[rows[k + 6]], M[rows[k + 7]]
        for i in range(len(F)):
            f, own = F[i], z[i]
            p0, p1, p2, p3, q0, q1, q2, q3 = zero, zero, zero, zero, zero, zero, zero, zero
            for j in range(len(f)):
                p0 += a0[j] * f[j]
                p1 += a1[j] * f[j]
                p2 += a2[j] * f[j]
                p3 += a3[j] * f[j]
                q0 += b0[j] * f[j]
                q1 += b1[j] * f[j]
                q2 += b2[j] * f[j]
                q3 += b3[j] * f[j]
            own[rows[k]], own[rows[k + 1]], own[rows[k + 2]], own[rows[k + 3]] = p0, p1, p2, p3
            own[rows[k + 4]], own[rows[k + 5]], own[rows[k + 6]], own[rows[k + 7]] = q0, q1, q2, q3
    for k in range(last, len(rows)):
        for i in range(len(F)):
            p0 = zero
            for j in range(F.shape[1]):
                p0 += M[rows[k], j] * F[i, j]
            z[i, rows[k]] = p0


@compiled(fastmath={"contract"})
def _exp(x):  # type: ignore[no-untyped-def]
    """e^x in float32 for x ≤ 0 (Cephes' polynomial, within 1e-7), which unlike a call of np.exp becomes vector code."""
    real = np.float32
    x = max(real(x), real(-87))
    n = np.floor(x * real(1.44269504) + real(0.5))
    r = x - n * real(0.693359375) + n * real(2.12194440e-4)  # ln 2 in two parts
    y = real(1.9875691500e-4) * r + real(1.3981999507e-3)
    y = y * r + real(8.3334519073e-3)
    y = y * r + real(4.1665795894e-2)
    y = y * r + real(1.6666665459e-1)
    y = y * r + real(5.0000001201e-1)
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)  # 2ⁿ
    return (y * (r * r) + r + real(1)) * power


@compiled(error_model="numpy", fastmath={"contract", "reassoc"})
def softmax(z, factor, chances):  # type: ignore[no-untyped-def]
    """Write the softmax of one sample's logits times a factor; the label, its probability and the entropy."""
    real, label = chances.dtype.type, z.argmax()
    top, total, mixed = z[label], 0.0, 0.0  # chances may be written into the logits
    for c in range(len(z)):
        below = real(factor * (z[c] - top))
        weight = _exp(below) if chances.itemsize == 4 else np.exp(below)
        chances[c] = weight
        total += weight
        mixed += weight * below
    for c in range(len(z)):
        chances[c] *= real(1 / total)
    return label, chances[label], np.log(total) - mixed / total


@compiled()
def _find_touches(chances, threshold, doubt, classes, probabilities):  # type: ignore[no-untyped-def]
    """Write the classes that a sample touches and their probabilities; their number, or −1 where there is doubt."""
    count = 0
    for c in range(len(chances)):
        if np.float32(chances[c]) >= threshold * (1 - doubt):
            if doubt > 0 and chances[c] <= threshold * (1 + doubt):
                return -1
            classes[count], probabilities[count] = c, chances[c]
            count += 1
    return count


@compiled(fastmath={"contract", "reassoc"})
def _exact_chances(f, text, scale, bias):  # type: ignore[no-untyped-def]
    z = np.zeros(len(text))
    for c in range(len(text)):
        for j in range(len(f)):
            z[c] += np.float64(text[c, j]) * np.float64(f[j])
        z[c] = scale * z[c] + bias
    softmax(z, 1.0, z)
    return z


@compiled(nogil=True)
def describe_zero_shot(F, text, scale, bias, threshold, z, labels, sure, entropies):  # type: ignore[no-untyped-def]
    """Fill logits and answers of unit features; their touches, sample by sample: classes, probabilities, beginnings."""
    real = z.dtype.type
    products(F, text, np.arange(len(text)), z)
    most, chances = min(len(text), int(1 / (threshold * (1 - DOUBT)))), np.empty(len(text), z.dtype)
    classes, probabilities = np.empty(len(F) * most, np.int64), np.empty(len(F) * most)
    begin = np.zeros(len(F) + 1, np.int64)
    for i in range(len(F)):
        for c in range(len(text)):
            z[i, c] = real(scale) * z[i, c] + real(bias)
        labels[i], sure[i], entropies[i] = softmax(z[i], 1.0, chances)
        own, likely = classes[begin[i] : begin[i] + most], probabilities[begin[i] : begin[i] + most]
        count = _find_touches(chances, threshold, DOUBT, own, likely)
        if count < 0:  # float64 decides
            count = _find_touches(_exact_chances(F[i], text, scale, bias), threshold, 0.0, own, likely)
        begin[i + 1] = begin[i] + count
    return classes[: begin[-1]], probabilities[: begin[-1]], begin


@compiled(nogil=True)
def describe(logits, factor, chances, labels, sure, entropies):  # type: ignore[no-untyped-def]
    """Fill the softmax of logits times a factor, and of each sample the label, its probability and the entropy."""
    for i in range(len(logits)):
        labels[i], sure[i], entropies[i] = softmax(logits[i], factor, chances[i])


# -- a batch ----------------------------------------------------------------------------------------------------------


def advance_by_numba(prototypes: Prototypes, anchors: Tensor, features: Tensor, touches: Touches, rule: Rule) -> Tensor:
    """Learn all samples; give each one's cosine with every class's R as it was at that sample's turn, B×C."""
    cosines = features @ prototypes.anchored.T
    moving, gram = _moving(prototypes, touches, rule), features @ features.T
    _follow(prototypes, anchors, moving, touches, rule, features.numpy(), gram.numpy(), cosines.numpy())
    return cosines


def learn_by_numba(
    prototypes: Prototypes, classifier: ZeroShotClassifier, F: Array, touches: Touches, rule: Rule, logits: Array | None
) -> None:
    """Learn all samples and add to their zero-shot logits, if they are given, the scores against R.

    Rows of R that neither move nor have to be scored are not read. The state has the same bits with and without logits.
    """
    R, moving, touched = prototypes.anchored.numpy(), _moving(prototypes, touches, rule), prototypes.touched.numpy()
    gram, cosines = np.empty((len(F), len(F)), F.dtype), np.empty((len(F), len(R)), F.dtype)
    products(F, F, np.arange(len(F)), gram)
    products(F, R, moving, cosines)  # apart from the others, on which the last bits would depend
    if logits is not None:
        products(F, R, np.setdiff1d(np.flatnonzero(touched), moving), cosines)
    _follow(prototypes, classifier.anchors, moving, touches, rule, F, gram, cosines)
    if logits is not None:
        _add(cosines, touched, classifier.scale, classifier.bias, logits)


def _moving(prototypes: Prototypes, touches: Touches, rule: Rule) -> NDArray[np.int64]:
    """The classes whose P or R changes."""
    moves = ~prototypes.resting.numpy() if rule.anchor == "recursive" else np.zeros(len(prototypes.resting), np.bool_)
    moves[touches.classes] = True
    return np.flatnonzero(moves)


def _follow(
    prototypes: Prototypes, anchors: Tensor, moving: NDArray[np.int64], touches: Touches, rule: Rule, *arrays: Array
) -> None:
    """Move the classes that move. Arrays are F, F·Fᵀ, and the cosines with R before, then those at each turn, B×C."""
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


@compiled(fastmath={"contract"})
def _blend(a, u, b, v):  # type: ignore[no-untyped-def]
    """Write a·u + b·v in the place of u."""
    a, b = u.dtype.type(a), u.dtype.type(b)
    for j in range(len(u)):
        u[j] = a * u[j] + b * v[j]


@compiled(error_model="numpy", fastmath={"contract", "reassoc"})
def _follow_classes(  # type: ignore[no-untyped-def]
    rows, begin, samples, log_keep, F, gram, cosines, P, R, length, resting, text, w, recursive, rescale, late, within
):
    B, real = len(F), F.dtype.type
    others = rows[~resting[rows]] if recursive else rows  # whose P is not along R
    with_p, with_text = np.empty((len(others), B), F.dtype), np.empty((len(others), B), F.dtype)
    products(P[others], F, np.arange(B), with_p)
    if not recursive:
        products(text[others], F, np.arange(B), with_text)
    along_r, along_p, other = np.empty(B, F.dtype), np.empty(B, F.dtype), 0
    for m in range(len(rows)):
        c = rows[m]
        knowledge, anchored, scored = P[c], R[c], cosines[:, c]
        moved = recursive and not resting[c]
        square = _product(knowledge, knowledge)
        if recursive and resting[c]:  # R is P/‖P‖, or P is zero
            overlap = np.sqrt(square)
            for i in range(B):
                along_r[i] = scored[i]
                along_p[i] = scored[i] * real(overlap)
        else:
            for i in range(B):
                along_r[i] = scored[i] if recursive else with_text[other, i]
                along_p[i] = with_p[other, i]
            if not recursive:
                anchored[:] = text[c]
            overlap = _product(knowledge, anchored)
            other += 1

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
                    _blend(a, anchored, b, knowledge)
                    _blend(a, along_r[t:], b, along_p[t:])
                    overlap = a * overlap + b * square
                    a, b = 1.0, 0.0
                keep, share = np.exp(log_keep[k]), -np.expm1(log_keep[k])
                square = keep * keep * square + 2 * keep * share * along_p[t] + share * share * gram[t, t]
                overlap = keep * overlap + share * along_r[t]
                _blend(keep, knowledge, share, F[t])
                _blend(keep, along_p[t:], share, gram[t, t:])
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
                    scored[t + late] = a * along_r[t + late] + b * along_p[t + late]
                t += 1
            if moved:
                for i in range(t + late, min(until + late, B)):
                    scored[i] = real(a) * along_r[i] + real(b) * along_p[i]
            t = until

        _blend(a, anchored, b, knowledge)
        norm = real(np.sqrt(_product(anchored, anchored)))
        for j in range(len(anchored)):  # faster than a division of the whole row
            anchored[j] /= norm
        length[c] = size
        resting[c] = still


# -- one sample -------------------------------------------------------------------------------------------------------


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


@compiled(nogil=True)
def add_scores(F, R, touched, scale, bias, z):  # type: ignore[no-untyped-def]
    """Add to zero-shot logits the scores against R, which of an untouched class is the text anchor."""
    cosines = np.empty_like(z)
    products(F, R, np.flatnonzero(touched), cosines)
    _add(cosines, touched, scale, bias, z)


@compiled(nogil=True, fastmath={"contract"})
def _add(cosines, touched, scale, bias, z):  # type: ignore[no-untyped-def]
    real = z.dtype.type
    for i in range(len(z)):
        for c in range(len(touched)):
            z[i, c] += real(scale) * cosines[i, c] + real(bias) if touched[c] else z[i, c]
