"""PTA as a loop: Prototype-Based Test-Time Adaptation of Vision-Language Models (ICML 2026)."""

import math

import numpy as np

from pta.reference.numerics import Array, log_softmax, softmax

SMALLEST_PROBABILITY = 1e-15  # without a mask, a class less probable than this still learns nothing


def pta_loop(
    anchors: Array,
    features: Array,
    base_logits: Array | None = None,
    *,
    scale: float = 100.0,
    bias: float = 0.0,
    h: float = 20.0,
    w: float = 0.01,
    min_probability: float = 0.1,
    anchor: str = "recursive",
    fusion: str = "logits",
    order: str = "update-first",
    weight: str = "saturating",
    renormalise: bool = True,
    probabilities: Array | None = None,
    labels: Array | None = None,
    label_weight: float = 1.0,
    learned: dict[str, Array] | None = None,
) -> Array:
    """Outputs N×C of a stream, by default those of the released program.

    `base_logits` (N×C) replace the zero-shot logits, and `probabilities` (N×C) the softmax that decides what is
    learned. A sample whose label (−1 if unknown) is a class is answered without it; then that class alone learns from
    it. `learned` receives the knowledge prototypes P and the directions R of the anchored prototypes.
    """
    T, classes = anchors, len(anchors)
    P, R, log_length = np.zeros_like(T), T.copy(), np.zeros(classes)

    def learn(s: Array, f: Array, enough: float) -> None:
        for c in range(classes):
            # 2. A class that is probable enough learns.
            if touches(s[c], enough):
                beta = s[c] if weight == "raw" else -math.expm1(-s[c] / h)
                P[c] = (1 - beta) * P[c] + beta * f
            # 3. Every class refreshes.
            if anchor == "fixed":
                R[c], _ = mixture(w, T[c], 0.0, P[c], otherwise=R[c])
            else:
                R[c], log_length[c] = mixture(w, R[c], log_length[c], P[c], otherwise=R[c])
                if renormalise:
                    log_length[c] = 0.0

    outputs = []
    for t, f in enumerate(features):
        # 1. Zero-shot logits and probabilities.
        z = scale * (T @ f) + bias if base_logits is None else base_logits[t]
        s = softmax(z) if probabilities is None else probabilities[t].astype(np.float64)
        before = P.copy(), R.copy(), log_length.copy()
        learn(s, f, min_probability)
        # 4. Score.
        prototype = scale * ((R if order == "update-first" else before[1]) @ f) + bias
        outputs.append(z + prototype if fusion == "logits" else log_mean(z, prototype))
        # 5. Where the label is given, it is learned in the place of s.
        if labels is not None and labels[t] >= 0:
            P[:], R[:], log_length[:] = before
            learn(label_weight * (np.arange(classes) == labels[t]), f, 0.0)
    if learned is not None:
        learned.update(P=P, R=R)
    return np.array(outputs)


def log_mean(z: Array, prototype: Array) -> Array:
    """ln((softmax z + softmax prototype)/2), without underflow."""
    return np.logaddexp(log_softmax(z), log_softmax(prototype)) - math.log(2)


def touches(probability: float, min_probability: float) -> bool:
    """Whether a class of this probability learns; float32 draws the line."""
    return bool(np.float32(probability) >= np.float32(max(min_probability, SMALLEST_PROBABILITY)))


def mixture(w: float, direction: Array, log_length: float, P: Array, *, otherwise: Array) -> tuple[Array, float]:
    """Direction and log-length of w·A + (1−w)·P, with A = e^log_length·direction, however short A has become.

    A mixture of length zero has no direction and keeps the one it had.
    """
    norm_p = float(np.linalg.norm(P))
    log_a = log_length + (math.log(w) if w > 0 else -math.inf)
    log_p = math.log(1 - w) + math.log(norm_p) if w < 1 and norm_p > 0 else -math.inf
    if log_p == -math.inf:
        return (direction if log_a > -math.inf else otherwise), log_a
    longer = max(log_a, log_p)
    mixed = math.exp(log_a - longer) * direction + math.exp(log_p - longer) * (P / norm_p)
    norm = float(np.linalg.norm(mixed))
    if norm == 0:
        return otherwise, -math.inf
    return mixed / norm, longer + math.log(norm)
