"""StatA as a loop over classes: Realistic Test-Time Adaptation of Vision-Language Models (CVPR 2025)."""

import numpy as np

from pta.reference.numerics import Array, softmax
from pta.reference.transclip import SMALLEST_VARIANCE, TINY, affinity, direction, z_step


def stata_loop(
    anchors: Array,
    features: Array,
    *,
    scale: float = 100.0,
    alpha: float = 1.0,
    counts: str = "hard",
    neighbours: int = 3,
    iterations: int = 10,
    sweeps: int = 5,
    text_weight: float = 1.0,
    neighbour_weight: float = 1.0,
    temperature: float = 50.0,
    chunked_covariance: bool = True,
    chunk: int = 2500,
) -> Array:
    """Logits N×C of one batch, the logarithms of its soft labels; batches of a stream are independent."""
    T, F = anchors, features
    N, C = len(F), len(T)
    # 1. Soft labels at first.
    y = softmax(scale * F @ T.T)
    z = y.copy()
    # 2. The Gaussians that the text alone gives.
    sigma0 = first_variance(T, F, y, chunk if chunked_covariance else N)
    mu, sigma = T.copy(), np.array([sigma0] * C)
    # 3. Neighbours.
    W = affinity(F, neighbours)
    for k in range(iterations + 1):
        # 4. Labels.
        likelihood = np.empty_like(z)
        for c in range(C):
            likelihood[:, c] = -0.5 * ((F - mu[c]) ** 2 / sigma[c]).sum(axis=1) - 0.5 * np.log(sigma[c]).sum()
        z = z_step(z, y, likelihood, W, neighbours, sweeps, text_weight, temperature, neighbour_weight)
        # 7. The last labels are the answer.
        if k == iterations:
            break
        winners = z.argmax(axis=1)
        for c in range(C):
            # 5. Trust in the samples.
            total = z[:, c].sum()
            n = np.sum(winners == c) if counts == "hard" else total
            beta = n / (alpha + n) if n > 0 else 0.0
            # 6. Gaussians.
            mean = direction(z[:, c] @ F / total, otherwise=T[c]) if total > 0 else T[c]
            mu[c] = direction(beta * mean + (1 - beta) * T[c], otherwise=T[c])
            observed = z[:, c] @ (F - mu[c]) ** 2 / total if total > 0 else 0.0
            sigma[c] = beta * observed + (1 - beta) * (sigma0 + (T[c] - mu[c]) ** 2)
            sigma[c] = np.maximum(sigma[c], SMALLEST_VARIANCE)
    return np.log(np.maximum(z, TINY))


def first_variance(T: Array, F: Array, y: Array, chunk: int) -> Array:
    """The variances around the text that all classes share, divided by N after every chunk."""
    N, d = F.shape
    variance = np.zeros(d, dtype=F.dtype)
    for start in range(0, N, chunk):
        for i in range(start, min(start + chunk, N)):
            variance = variance + y[i] @ (F[i] - T) ** 2
        variance = variance / N
    return np.maximum(variance, SMALLEST_VARIANCE).astype(F.dtype)
