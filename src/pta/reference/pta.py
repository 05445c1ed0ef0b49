"""PTA written down a second time: one sample, one class at a time, in float64, from the paper and the released rule.

It shares no code with `pta`. Slow and literal on purpose: what the tests compare everything else with.
"""

import math

import numpy as np

SMALLEST_PROBABILITY = 1e-15  # without a mask, a class less probable than this still learns nothing


def pta_loop(
    anchors,
    features,
    *,
    scale,
    h,
    w,
    min_probability,
    anchor,
    fusion,
    order,
    weight,
    renormalise,
    probabilities=None,
):
    """What the whole stream gives: outputs B×C, knowledge prototypes P and directions of the anchored prototypes R.

    Given `probabilities` (B×C), they decide what is learnt; otherwise the softmax of the zero-shot logits does.
    """
    T = np.asarray(anchors, dtype=np.float64)
    F = np.asarray(features, dtype=np.float64)
    classes = len(T)
    P, R, log_length = np.zeros_like(T), T.copy(), np.zeros(classes)
    outputs = []
    for t, f in enumerate(F):
        z = scale * (T @ f)
        s = softmax(z) if probabilities is None else np.asarray(probabilities[t])
        before = R.copy()
        for c in range(classes):
            if touches(s[c], min_probability):
                beta = share(float(s[c]), h, weight)
                P[c] = (1 - beta) * P[c] + beta * f
            if anchor == "fixed":
                R[c], _ = mixture(w, T[c], 0.0, P[c], otherwise=R[c])
            else:
                R[c], log_length[c] = mixture(w, R[c], log_length[c], P[c], otherwise=R[c])
                if renormalise:
                    log_length[c] = 0.0
        proto = scale * ((R if order == "update-first" else before) @ f)
        outputs.append(z + proto if fusion == "logits" else softmax(z) + softmax(proto))
    return np.array(outputs), P, R


def softmax(z):
    """Probabilities of logits."""
    e = np.exp(z - z.max())
    return e / e.sum()


def touches(probability, min_probability):
    """Whether a class of this probability learns; float32 draws the line."""
    return np.float32(probability) >= np.float32(max(min_probability, SMALLEST_PROBABILITY))


def share(s, h, weight):
    """β: how much of P the sample replaces."""
    return s if weight == "raw" else -math.expm1(-s / h)


def mixture(w, direction, log_length, P, *, otherwise):
    """Direction and log-length of w·A + (1−w)·P, with A = e^log_length·direction, however short A has become.

    A mixture of length zero has no direction and keeps the one it had.
    """
    norm_p = np.linalg.norm(P)
    log_a = log_length + (math.log(w) if w > 0 else -math.inf)
    log_p = math.log(1 - w) + math.log(norm_p) if w < 1 and norm_p > 0 else -math.inf
    if log_p == -math.inf:
        return (direction if log_a > -math.inf else otherwise), log_a
    longer = max(log_a, log_p)
    mixed = math.exp(log_a - longer) * direction + math.exp(log_p - longer) * (P / norm_p)
    norm = np.linalg.norm(mixed)
    if norm == 0:
        return otherwise, -math.inf
    return mixed / norm, longer + math.log(norm)
