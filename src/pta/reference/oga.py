"""OGA as a loop: Online Gaussian Test-Time Adaptation of Vision-Language Models (CVPR Workshops 2025)."""

import numpy as np

from pta.reference.adapt import NO_SPREAD, SAME_ENTROPY
from pta.reference.numerics import Array, entropy, log_softmax, mean_probabilities, shifts_of, unit


def oga_loop(
    anchors: Array,
    features: Array,
    *,
    scale: float = 100.0,
    log_prior: Array | None = None,
    most_confident: Array | None = None,
    slots: int = 8,
    tau: float = 0.05,
    mean: str = "capacity",
    renormalise: bool = False,
    order: str = "update-first",
) -> Array:
    """Logits N×C of a stream: the logarithm of prior times likelihood."""
    T, (classes, d) = anchors, anchors.shape
    memory: list[dict[int, Array]] = [{} for _ in range(classes)]  # of each class, by slot
    entropies = np.full((classes, slots), np.log(classes))
    means = T.copy()
    precision = d * np.eye(d, dtype=T.dtype)
    shifts = shifts_of(log_prior, features, T)
    outputs = []
    for t, x in enumerate(features):
        log_s = log_softmax(scale * (T @ x) + shifts[t])
        own = int(log_s.argmax())
        if most_confident is not None:
            log_s = np.log(mean_probabilities(T, most_confident[t], scale, shifts[t]))
        e = entropy(np.exp(log_s))
        if order == "predict-first":
            outputs.append(log_s + log_softmax(tau * log_likelihoods(x, means, precision)))
        # 1. The sample takes the slot of the largest entropy.
        worst = int(entropies[own].argmax())
        if e < entropies[own, worst] - SAME_ENTROPY:
            memory[own][worst], entropies[own, worst] = x, e
            # 2. Means.
            for c, items in enumerate(memory):
                if len(items) >= 2:
                    total = np.sum([items[slot] for slot in sorted(items)], axis=0)
                    means[c] = total / (slots if mean == "capacity" else len(items))
                    if renormalise:
                        means[c] = unit(means[c])
            # 3. Precision.
            if max(len(items) for items in memory) > 2:
                residuals = [items[slot] - means[c] for c, items in enumerate(memory) for slot in sorted(items)]
                precision = precision_of(np.array(residuals))
        # 4. and 5. Likelihood and posterior.
        if order == "update-first":
            outputs.append(log_s + log_softmax(tau * log_likelihoods(x, means, precision)))
    return np.array(outputs)


def log_likelihoods(x: Array, means: Array, precision: Array) -> Array:
    """−½(x−μ)Λ(x−μ) of every class."""
    return np.array([x @ precision @ mu - 0.5 * mu @ precision @ mu - 0.5 * x @ precision @ x for mu in means])


def precision_of(residuals: Array) -> Array:
    """The shrunk precision of few residuals, the pseudo-inverse of many, cut where float32 would cut it."""
    n, d = residuals.shape
    S = np.cov(residuals.T, dtype=residuals.dtype)
    if np.trace(S) * (n - 1) <= NO_SPREAD * n:
        return np.zeros_like(S)
    if n <= 4 * d:
        return d * np.linalg.pinv((n - 1) * S + np.trace(S) * np.eye(d, dtype=S.dtype))
    return np.linalg.pinv(S, rcond=d * np.finfo(np.float32).eps, hermitian=True)
