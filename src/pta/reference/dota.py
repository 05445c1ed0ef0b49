"""DOTA as a loop over samples and classes: distributional test-time adaptation (NeurIPS 2025)."""

import numpy as np

from pta.reference.numerics import Array, shifts_of, softmax


def dota_loop(
    anchors: Array,
    features: Array,
    *,
    scale: float = 100.0,
    bias: float = 0.0,
    log_prior: Array | None = None,
    most_confident: Array | None = None,
    epsilon: float = 1e-4,
    eta: float = 0.3,
    rho: float = 0.02,
    sigma: float = 0.002,
    omega: float = 0.001,
    initial_count: float = 1.0,
    growth: str = "mean-count",
    covariance: str = "per-class",
    scoring: str = "full",
    order: str = "predict-first",
) -> Array:
    """Logits N×C of a stream; `most_confident` is N×V×d, the kept views of each sample."""
    T, (C, d) = anchors, anchors.shape
    identity = np.eye(d, dtype=T.dtype)
    mu = np.full((C, d), omega, T.dtype)
    counts = np.full(C, initial_count, T.dtype)
    sigmas = np.stack([sigma * identity] * C)

    def score(xs: Array, zs: Array, samples: int) -> Array:
        # 1. Scores of the Gaussians.
        if covariance == "per-class" or not samples:
            pooled = sigmas.mean(axis=0)
        else:
            pooled = np.tensordot(counts / counts.sum(), sigmas, axes=1)
        if samples:
            pooled = (1 - epsilon) * pooled + epsilon * identity
        precision, means = np.linalg.pinv(pooled, hermitian=True, rcond=0), mu
        if scoring == "float16":
            precision, means = (given.astype(np.float16).astype(T.dtype) for given in (precision, means))
        g = means @ precision @ xs.mean(axis=0) - 0.5 * np.diag(means @ precision @ means.T)
        # 2. Answer.
        grown = counts.mean() / len(xs) if growth == "mean-count" else samples
        return zs.mean(axis=0) + min(rho * grown, eta) * g

    shifts = shifts_of(log_prior, features, T)
    outputs = []
    for t, f in enumerate(features):
        xs = f[None] if most_confident is None else most_confident[t]
        zs = np.array([scale * (T @ x) + bias + shifts[t] for x in xs])
        ys = softmax(zs)
        if order == "predict-first":
            outputs.append(score(xs, zs, t))
        for c in range(C):
            total = counts[c] + ys[:, c].sum()
            # 3. Covariance, with the mean from before.
            scatter = np.sum([y[c] * np.outer(x - mu[c], x - mu[c]) for x, y in zip(xs, ys, strict=True)], axis=0)
            sigmas[c] = (counts[c] * sigmas[c] + scatter) / total
            # 4. Mean and count.
            mu[c] = (counts[c] * mu[c] + ys[:, c] @ xs) / total
            counts[c] = total
        if order == "update-first":
            outputs.append(score(xs, zs, t + 1))
    return np.array(outputs)
