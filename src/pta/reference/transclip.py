"""TransCLIP written down a second time: one sample, one class at a time, probabilities as such."""

import numpy as np

TINY = float(np.finfo(np.float32).tiny)
SMALLEST_VARIANCE = 1e-10


def transclip_loop(
    anchors,
    features,
    *,
    scale=100.0,
    neighbours=3,
    iterations=10,
    sweeps=5,
    text_weight=1.0,
    temperature=50.0,
    seeds=8,
):
    """log z of all samples, N×C, after the whole set was seen at once."""
    T, F = np.asarray(anchors), np.asarray(features)
    (N, d), C = F.shape, len(T)
    y = softmax(scale * F @ T.T)
    z = y.copy()
    mu = np.array([first_mean(F, z[:, c], seeds, otherwise=T[c]) for c in range(C)])
    sigma = np.full(d, 1 / d, dtype=F.dtype)
    W = affinity(F, neighbours)
    for k in range(iterations + 1):
        likelihood = np.empty_like(z)
        for c in range(C):
            likelihood[:, c] = -0.5 * ((F - mu[c]) ** 2 / sigma).sum(axis=1)
        z = z_step(z, y, likelihood, W, neighbours, sweeps, text_weight, temperature)
        if k == iterations:
            break
        for c in range(C):
            if z[:, c].sum() > TINY:
                mu[c] = unit(z[:, c] @ F / z[:, c].sum(), otherwise=mu[c])
        sigma = sum(z[:, c] @ (F - mu[c]) ** 2 for c in range(C)) / N
        sigma = np.maximum(sigma, SMALLEST_VARIANCE).astype(F.dtype)
    return np.log(np.maximum(z, TINY))


def first_mean(F, z, seeds, otherwise):
    """Direction of the mean of z_i·f_i over the samples of largest z."""
    top = np.argsort(-z, kind="stable")[:seeds]
    return unit((z[top, None] * F[top]).mean(axis=0) / z[top].max(), otherwise)


def affinity(F, neighbours):
    """W: the cosines of every sample with its nearest others; of equal ones, the earlier."""
    length = np.linalg.norm(F.astype(np.float64), axis=1, keepdims=True)
    cosine = (F / length) @ (F / length).T
    W = np.zeros_like(cosine)
    for i, row in enumerate(cosine):
        others = [j for j in np.argsort(-np.round(row * 2**32), kind="stable") if j != i]
        for j in others[:neighbours]:
            W[i, j] = row[j]
    return W.astype(F.dtype)


def z_step(z, y, likelihood, W, neighbours, sweeps, text_weight, temperature, neighbour_weight=1.0):
    """All samples' labels, renewed together, several times."""
    for _ in range(sweeps):
        u = likelihood + neighbour_weight * temperature / (2 * neighbours) * (W.T @ z + W @ z)
        u = u - u.max(axis=1, keepdims=True)
        z = y**text_weight * np.exp(u / temperature)
        z = z / z.sum(axis=1, keepdims=True)
    return z


def unit(v, otherwise):
    """The direction of v, if it has one."""
    length = np.linalg.norm(v)
    return v / length if length > 1e-6 else otherwise


def softmax(z):
    """Probabilities of rows of logits."""
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
