"""StatA written down a second time: one class at a time, probabilities as such."""

import numpy as np

from pta.reference.transclip import SMALLEST_VARIANCE, TINY, affinity, softmax, unit, z_step


def stata_loop(
    anchors,
    features,
    *,
    scale=100.0,
    alpha=1.0,
    counts="hard",
    neighbours=3,
    iterations=10,
    sweeps=5,
    text_weight=1.0,
    neighbour_weight=1.0,
    temperature=50.0,
    chunked_covariance=True,
    chunk=2500,
):
    """log z of one batch, N×C; of a stream, give it every batch alone."""
    T, F = np.asarray(anchors), np.asarray(features)
    N, C = len(F), len(T)
    y = softmax(scale * F @ T.T)
    z = y.copy()
    sigma0 = first_variance(T, F, y, chunk if chunked_covariance else N)
    mu, sigma = T.copy(), np.array([sigma0] * C)
    W = affinity(F, neighbours)
    for k in range(iterations + 1):
        likelihood = np.empty_like(z)
        for c in range(C):
            likelihood[:, c] = -0.5 * ((F - mu[c]) ** 2 / sigma[c]).sum(axis=1) - 0.5 * np.log(sigma[c]).sum()
        z = z_step(z, y, likelihood, W, neighbours, sweeps, text_weight, temperature, neighbour_weight)
        if k == iterations:
            break
        winners = z.argmax(axis=1)
        for c in range(C):
            total = z[:, c].sum()
            n = np.sum(winners == c) if counts == "hard" else total
            beta = n / (alpha + n) if n > 0 else 0.0
            mean = unit(z[:, c] @ F / total, otherwise=T[c]) if total > 0 else T[c]
            mu[c] = unit(beta * mean + (1 - beta) * T[c], otherwise=T[c])
            observed = z[:, c] @ (F - mu[c]) ** 2 / total if total > 0 else 0.0
            sigma[c] = beta * observed + (1 - beta) * (sigma0 + (T[c] - mu[c]) ** 2)
            sigma[c] = np.maximum(sigma[c], SMALLEST_VARIANCE)
    return np.log(np.maximum(z, TINY))


def first_variance(T, F, y, chunk):
    """The variances around the text that all classes share, divided by N after every chunk."""
    N, d = F.shape
    variance = np.zeros(d, dtype=F.dtype)
    for start in range(0, N, chunk):
        for i in range(start, min(start + chunk, N)):
            variance = variance + y[i] @ (F[i] - T) ** 2
        variance = variance / N
    return np.maximum(variance, SMALLEST_VARIANCE).astype(F.dtype)
