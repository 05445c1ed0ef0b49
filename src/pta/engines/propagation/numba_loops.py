"""The propagation as loops that numba compiles."""

import numpy as np

from pta.door.compiled import compiled

CLASSES_AT_ONCE = 128  # whose Y stay in the cache


@compiled(nogil=True, fastmath={"contract"})
def sweep(targets, similar, classes, text, labels, seeds, C, gamma, iterations, grid):  # type: ignore[no-untyped-def]
    """The label of every row, its Y, and Y of the last row, C (`pta.engines.propagation.propagation`)."""
    (N, k), K = targets.shape, classes.shape[1]
    w, t = similar**gamma, text**gamma
    a, b, degrees = np.zeros(N), np.zeros(C), np.zeros(N, np.int64)
    for i in range(N):
        for e in range(k):
            j = targets[i, e]
            if w[i, e] == 0:
                continue
            if j == i:
                w[i, e] *= 2
            else:
                if j > i:
                    for o in range(k):  # a pair that is listed both ways becomes one
                        if targets[j, o] == i:
                            w[i, e] += w[j, o]
                            w[j, o] = 0
                a[j] += w[i, e]
                degrees[j] += 1
            a[i] += w[i, e]
            degrees[i] += 1
        for e in range(K):
            a[i] += t[i, e]
            b[classes[i, e]] += t[i, e]
    a, b = 1 / (np.sqrt(a) + 1e-6), 1 / (np.sqrt(b) + 1e-6)
    begins = np.zeros(N + 1, np.int64)
    begins[1:] = np.cumsum((degrees + 3) // 4 * 4)  # neighbours are added four at a time; beyond the last, shares are 0
    near, shares, ends = np.zeros(begins[-1], np.int64), np.zeros(begins[-1]), begins[:-1].copy()
    for i in range(N):
        for e in range(k):
            if w[i, e] > 0:
                j, share = targets[i, e], w[i, e] * a[i] * a[targets[i, e]]
                near[ends[i]], shares[ends[i]] = j, share
                ends[i] += 1
                if j != i:
                    near[ends[j]], shares[ends[j]] = i, share
                    ends[j] += 1
        for e in range(K):
            t[i, e] *= a[i] * b[classes[i, e]]
    found, most, above, last = np.zeros(N, np.int64), np.zeros(N), np.full(N, -1.0), np.empty(C)
    width = min(C, CLASSES_AT_ONCE)
    Y, before = np.empty((N, width)), np.empty((N, width))
    for first in range(0, C, width):  # classes do not depend on each other
        end = min(first + width, C)
        for number in range(iterations):
            Y, before = before, Y
            for i in range(N):
                y = Y[i]
                y[:] = 0.0
                for e in range(begins[i], begins[i + 1], 4):
                    if number == 0:
                        for o in range(e, e + 4):
                            if first <= labels[near[o]] < end:
                                y[labels[near[o]] - first] += shares[o] * seeds[near[o]]
                    else:
                        s0, s1, s2, s3 = shares[e], shares[e + 1], shares[e + 2], shares[e + 3]
                        y0, y1, y2, y3 = before[near[e]], before[near[e + 1]], before[near[e + 2]], before[near[e + 3]]
                        for c in range(width):
                            y[c] += s0 * y0[c] + s1 * y1[c] + s2 * y2[c] + s3 * y3[c]
                for e in range(K):
                    if first <= classes[i, e] < end:
                        y[classes[i, e] - first] += t[i, e]
                if number == iterations - 1:
                    for c in range(end - first):
                        if y[c] > above[i]:
                            found[i], most[i] = first + c, y[c]
                            above[i] = (np.round(y[c] * grid) + 0.5) / grid
        last[first:end] = Y[N - 1, : end - first]
    return found, most, last
