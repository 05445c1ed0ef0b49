"""WPTA as a loop: prototypes in the covariance of the images. The rule is this project's own."""

from collections.abc import Mapping

import numpy as np

from pta.reference.balance import balance_gate_loop, gated
from pta.reference.calibration import temperatures_loop
from pta.reference.local_prior import local_prior_loop
from pta.reference.numerics import Array, softmax

SHORTEST = 1e-10


def wpta_loop(
    anchors: Array,
    features: Array,
    *,
    scale: float = 100.0,
    bias: float = 0.0,
    min_probability: float = 0.1,
    text_weight: float = 0.3,
    image_weight: float = 0.4,
    ridge: float = 4.0,
    early_ridge: float = 64.0,
    refresh_every: int = 128,
    first_metric: int = 8,
    least_spread: float = 1e-4,
    depth: int = 1,
    prior: str = "local",
    gate: str = "balance",
    calibration: str = "matched",
    labels: Array | None = None,
    label_weight: float = 1.0,
    forgotten: Mapping[int, list[int]] | None = None,
) -> Array:
    """Logits N×C of a stream, before some samples of which (by position) the sums of some classes are forgotten.

    A sample whose label (−1 if unknown) is a class is answered without it; then that class alone learns from it.
    """
    T, (classes, d) = anchors, anchors.shape
    V = T - T.mean(axis=0)
    sx, G = np.zeros(d), np.zeros((d, d))
    M, n = np.zeros((depth, classes, d)), np.zeros((depth, classes))
    P = [np.eye(d)] * depth
    text = zero_shot = scale * (features @ T.T) + bias
    gates = balance_gate_loop(text, refresh_every) if gate == "balance" else np.ones(len(features))
    if prior == "local":
        zero_shot = text + local_prior_loop(text)
    outputs = []
    for t, (x, z) in enumerate(zip(features, zero_shot, strict=True)):
        for c in (forgotten or {}).get(t, []):
            M[:, c], n[:, c] = 0.0, 0.0
        # 1. Refresh the centre and the metric of each layer.
        if t % refresh_every == 0 or (t < refresh_every and t & (t - 1) == 0):
            m = (T.mean(axis=0) + sx) / (1 + t)
            for layer in range(depth if t >= first_metric else 0):
                S = within_class_covariance(t, sx, G, M[layer], n[layer])
                spread = np.trace(S)
                relative = ridge + early_ridge / t
                enough = spread >= least_spread
                P[layer] = np.linalg.inv(S / (spread / d) + relative * np.eye(d)) if enough else np.eye(d)
        score, before = z, (M.copy(), n.copy())
        for layer in range(depth):
            # 2. Classes that are probable enough learn.
            s = softmax(score)
            w = np.where(s >= min_probability, s, 0.0)
            M[layer] += np.outer(w, x)
            n[layer] += w
            # 3. Prototypes around the centre, with the text as a part of a sample.
            E = M[layer] - n[layer][:, None] * m + text_weight * V
            # 4. Score.
            score = z + image_weight * scale * cosines(x - m, E, P[layer])
        outputs.append(score)
        if labels is not None and labels[t] >= 0:
            M, n = before
            M[:, labels[t]] += label_weight * x
            n[:, labels[t]] += label_weight
        # 5. Sums over all samples.
        sx = sx + x
        G = G + np.outer(x, x)
    scores, factor = np.array(outputs), 1 / (1 + image_weight)
    answers = gated(scores, zero_shot, gates, factor, bias)
    if calibration == "fixed":
        return answers
    # 6. Temperatures, which are those of zero-shot where the gate is closed.
    return answers / (gates * temperatures_loop(scores, text) + (1 - gates) / factor)[:, None]


def within_class_covariance(t: int, sx: Array, G: Array, M: Array, n: Array) -> Array:
    """The covariance of t samples less what lies between the classes."""
    mu = sx / t
    U = M - np.outer(n, mu)
    return G / t - np.outer(mu, mu) - sum(np.outer(u, u) / (weight + 1) for u, weight in zip(U, n, strict=True)) / t


def cosines(y: Array, E: Array, P: Array) -> Array:
    """The cosine of y with each row of E in the metric P; 0 where either has length 0."""
    return np.array([y @ P @ e / (length(y, P) * length(e, P)) for e in E])


def length(v: Array, P: Array) -> float:
    """The length of v in the metric P, and at least SHORTEST: what is shorter is rounding and has no direction."""
    return max(float(v @ P @ v), SHORTEST**2) ** 0.5
