"""TransCLIP (zero-shot) as a loop over classes: Boosting Vision-Language Models with Transduction (NeurIPS 2024)."""

import numpy as np

from pta.reference.numerics import Array, softmax

TINY = float(np.finfo(np.float32).tiny)
SMALLEST_VARIANCE = 1e-10


def transclip_loop(
    anchors: Array,
    features: Array,
    *,
    scale: float = 100.0,
    neighbours: int = 3,
    iterations: int = 10,
    sweeps: int = 5,
    text_weight: float = 1.0,
    temperature: float = 50.0,
    seeds: int = 8,
) -> Array:
    """Logits N×C of a whole set, the logarithms of its soft labels."""
    T, F = anchors, features
    (N, d), C = F.shape, len(T)
    # 1. Soft labels at first.
    y = softmax(scale * F @ T.T)
    z = y.copy()
    # 2. Means and variances at first.
    mu = np.array([first_mean(F, z[:, c], seeds, otherwise=T[c]) for c in range(C)])
    sigma = np.full(d, 1 / d, dtype=F.dtype)
    # 3. Neighbours.
    W = affinity(F, neighbours)
    for k in range(iterations + 1):
        # 4. Labels.
        likelihood = np.empty_like(z)
        for c in range(C):
            likelihood[:, c] = -0.5 * ((F - mu[c]) ** 2 / sigma).sum(axis=1)
        z = z_step(z, y, likelihood, W, neighbours, sweeps, text_weight, temperature)
        # 6. The last labels are the answer.
        if k == iterations:
            break
        # 5. Gaussians.
        for c in range(C):
            if z[:, c].sum() > TINY:
                mu[c] = direction(z[:, c] @ F / z[:, c].sum(), otherwise=mu[c])
        sigma = np.sum([z[:, c] @ (F - mu[c]) ** 2 for c in range(C)], axis=0) / N
        sigma = np.maximum(sigma, SMALLEST_VARIANCE).astype(F.dtype)
    return np.log(np.maximum(z, TINY))


def first_mean(F: Array, z: Array, seeds: int, otherwise: Array) -> Array:
    """Direction of the mean of z_i·f_i over the samples of largest z."""
    top = np.argsort(-z, kind="stable")[:seeds]
    return direction((z[top, None] * F[top]).mean(axis=0) / z[top].max(), otherwise)


def affinity(F: Array, neighbours: int) -> Array:
    """W: the cosines of every sample with its nearest others; of equal ones, the earlier."""
    length = np.linalg.norm(F.astype(np.float64), axis=1, keepdims=True)
    cosine = (F / length) @ (F / length).T
    W = np.zeros_like(cosine)
    for i, row in enumerate(cosine):
        others = [j for j in np.argsort(-np.round(row * 2**32), kind="stable") if j != i]
        for j in others[:neighbours]:
            W[i, j] = row[j]
    return W.astype(F.dtype)


def z_step(
    z: Array,
    y: Array,
    likelihood: Array,
    W: Array,
    neighbours: int,
    sweeps: int,
    text_weight: float,
    temperature: float,
    neighbour_weight: float = 1.0,
) -> Array:
    """All samples' labels, renewed together, several times."""
    for _ in range(sweeps):
        u = likelihood + neighbour_weight * temperature / (2 * neighbours) * (W.T @ z + W @ z)
        u = u - u.max(axis=1, keepdims=True)
        z = y**text_weight * np.exp(u / temperature)
        z = z / z.sum(axis=1, keepdims=True)
    return z


def direction(v: Array, otherwise: Array) -> Array:
    """v scaled to unit length, if it is not too short to have a direction."""
    length = np.linalg.norm(v)
    return v / length if length > 1e-6 else otherwise
