"""Scores, touches and answers as loops that numba compiles.

What is computed of a sample depends on that sample alone, to the last bit: every pair of a sample and a row is added up
by the same loop, whatever the batch and the place in it.
"""

import numpy as np

from pta.core.compiled import compiled
from pta.engines.pta.rule import DOUBT


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
