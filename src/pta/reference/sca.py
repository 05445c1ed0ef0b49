"""SCA as a loop that solves the ridge regression for every sample: statistics caching TTA (NeurIPS 2025)."""

import numpy as np

from pta.reference.numerics import Array, entropy, mean_probabilities, shifts_of, softmax


def sca_loop(
    anchors: Array,
    features: Array,
    *,
    scale: float = 100.0,
    bias: float = 0.0,
    log_prior: Array | None = None,
    most_confident: Array | None = None,
    gamma: float = 1e4,
    tau: float = 0.5,
    threshold: str = "uncertainty",
    temperature: float = 1.0,
    beta_f: float = 0.5,
    trust: str = "lower-entropy",
    cache: str = "cosine",
    cache_scale: float | None = None,
    order: str = "update-first",
) -> Array:
    """Logits N×C of a stream."""
    C, d = anchors.shape
    ridge = gamma * np.eye(d, dtype=anchors.dtype)
    gram, cross = np.zeros((d, d), anchors.dtype), np.zeros((d, C), anchors.dtype)
    shifts = shifts_of(log_prior, features, anchors)
    outputs = []
    for t, f in enumerate(features):
        # 1. Zero-shot logits and probabilities.
        z = scale * (anchors @ f) + bias + shifts[t]
        p = softmax(z) if most_confident is None else mean_probabilities(anchors, most_confident[t], scale, shifts[t])
        # 2. Pseudo-label.
        label = pseudo_label(p, tau, threshold, temperature)
        # 3. Statistics, and the classifier that they give.
        grown = gram + np.outer(f, f), cross + np.outer(f, label)
        if order == "update-first":
            gram, cross = grown
        W = np.linalg.solve(gram + ridge, cross)
        gram, cross = grown
        # 4. Cache logits.
        scores = np.zeros(C, anchors.dtype)
        for c in range(C):
            length = np.linalg.norm(W[:, c])
            if cache == "product":
                scores[c] = f @ W[:, c]
            elif length > 0:
                scores[c] = f @ W[:, c] / length
        u = scale * scores + bias if cache_scale is None else cache_scale * scores
        # 5. The branch of lower entropy counts more.
        sign = -1 if trust == "lower-entropy" else 1
        a = softmax(sign * beta_f * np.array([entropy(softmax(u)), entropy(p)], anchors.dtype))
        outputs.append(a[0] * u + a[1] * z)
    return np.array(outputs)


def pseudo_label(p: Array, tau: float, threshold: str, temperature: float) -> Array:
    """p within the fewest classes that reach the threshold, sharpened and scaled to sum one."""
    ranked = sorted(range(len(p)), key=lambda c: -p[c])
    enough = tau * (1 - p[ranked[0]]) if threshold == "uncertainty" else tau
    chosen, reached = [ranked[0]], p[ranked[0]]
    for c in ranked[1:]:
        if reached >= enough - 1e-12:
            break
        chosen.append(c)
        reached += p[c]
    label = np.zeros_like(p)
    label[chosen] = softmax(np.log(p[chosen]) / temperature)
    return label
