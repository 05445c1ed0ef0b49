"""DOTA as a loop over samples, views and classes, with every class's covariance and a pseudo-inverse each time."""

import numpy as np


def dota_loop(
    anchors,
    features,
    *,
    scale=100.0,
    epsilon=1e-4,
    eta=0.3,
    rho=0.02,
    sigma=0.002,
    omega=0.001,
    initial_count=1.0,
    growth="mean-count",
    covariance="per-class",
    scoring="full",
    order="predict-first",
    views=None,
):
    """Logits N×C of a stream; `views` is N×n×d, the kept views of each sample."""
    T, F = np.asarray(anchors), np.asarray(features)
    C, d = T.shape
    mu = np.full((C, d), omega, T.dtype)
    counts = np.full(C, initial_count, T.dtype)
    sigmas = np.stack([sigma * np.eye(d, dtype=T.dtype)] * C)
    outputs = []

    def gaussian(x, learnt):
        if covariance == "per-class" or not learnt:
            pooled = sigmas.mean(axis=0)
        else:
            pooled = np.tensordot(counts / counts.sum(), sigmas, axes=1)
        if learnt:
            pooled = (1 - epsilon) * pooled + epsilon * np.eye(d, dtype=T.dtype)
        precision, means = np.linalg.pinv(pooled, hermitian=True, rcond=0), mu
        if scoring == "float16":
            precision = precision.astype(np.float16).astype(T.dtype)
            means = mu.astype(np.float16).astype(T.dtype)
        return means @ precision @ x - 0.5 * np.diag(means @ precision @ means.T)

    for t, f in enumerate(F):
        xs = [f] if views is None else list(views[t])
        n = len(xs)
        zs = [scale * (T @ x) for x in xs]
        ys = [softmax(z) for z in zs]

        def score(learnt, xs=xs, zs=zs, n=n):
            g = gaussian(np.mean(xs, axis=0), learnt)
            grown = counts.mean() / n if growth == "mean-count" else learnt
            outputs.append(np.mean(zs, axis=0) + min(rho * grown, eta) * g)

        if order == "predict-first":
            score(t)
        for c in range(C):
            total = counts[c] + sum(y[c] for y in ys)
            residuals = [x - mu[c] for x in xs]
            scatter = sum(y[c] * np.outer(r, r) for y, r in zip(ys, residuals, strict=True))
            sigmas[c] = (counts[c] * sigmas[c] + scatter) / total
            mu[c] = (counts[c] * mu[c] + sum(y[c] * x for y, x in zip(ys, xs, strict=True))) / total
            counts[c] = total
        if order == "update-first":
            score(t + 1)
    return np.array(outputs)


def softmax(z):
    """Probabilities of logits."""
    e = np.exp(z - z.max())
    return e / e.sum()
