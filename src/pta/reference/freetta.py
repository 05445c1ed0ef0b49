"""FreeTTA, as interpreted, as a loop: Free on the Fly, flexible test-time adaptation with online EM (CVPR 2025)."""

import math

import numpy as np

from pta.reference.numerics import Array, entropy, mean_probabilities, shifts_of, softmax, unit


def freetta_loop(
    anchors: Array,
    features: Array,
    *,
    scale: float = 100.0,
    bias: float = 0.0,
    log_prior: Array | None = None,
    most_confident: Array | None = None,
    alpha: float = 0.2,
    beta: float = 4.5,
    scaled_text: bool = True,
    covariance: str = "average",
    inverse: str = "plain",
    order: str = "predict-first",
    renormalise: bool = False,
) -> Array:
    """Logits N×C of a stream."""
    T, (C, d) = anchors, anchors.shape
    identity = np.eye(d, dtype=T.dtype)
    mu, N, sigma = T.copy(), np.full(C, 1 / C, T.dtype), identity.copy()
    heard = 0.0  # n − 1, the sum of the weights of all samples

    def gaussian(x: Array) -> Array:
        if inverse == "plain":
            precision = np.linalg.inv(sigma)
        else:
            precision = d * np.linalg.pinv(heard * sigma + np.trace(sigma) * identity)
        return np.array([m @ precision @ x - 0.5 * m @ precision @ m for m in mu]) + np.log(N / (1 + heard))

    shifts = shifts_of(log_prior, features, T)
    outputs = []
    for t, x in enumerate(features):
        z = scale * (T @ x) + bias + shifts[t]
        text = z if scaled_text else (z - bias) / scale
        p = softmax(z) if most_confident is None else mean_probabilities(T, most_confident[t], scale, shifts[t])
        # 1. Gaussian scores and posterior.
        g = gaussian(x)
        gamma = softmax(g)
        # 2. Answer.
        if order == "predict-first":
            outputs.append(text + alpha * g)
        # 3. Weight of the sample.
        w = math.exp(-beta * entropy(p))
        before, heard = heard, heard + w
        scatter = np.zeros((d, d), T.dtype)
        for y in range(C):
            # 4. Mean and count.
            a = w * gamma[y]
            mu[y] = (N[y] * mu[y] + a * x) / (N[y] + a)
            N[y] += a
            if renormalise:
                mu[y] = unit(mu[y])
            scatter += a * np.outer(x - mu[y], x - mu[y])
        # 5. Covariance.
        weight_of_old, weight_of_all = (1 + before, 1 + heard) if covariance == "average" else (heard, heard)
        sigma = (weight_of_old * sigma + scatter) / weight_of_all
        if order == "update-first":
            outputs.append(text + alpha * gaussian(x))
    return np.array(outputs)
