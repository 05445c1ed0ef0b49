"""FreeTTA, as interpreted, as a loop over samples and classes with the covariance inverted each time."""

import math

import numpy as np


def freetta_loop(
    anchors,
    features,
    *,
    scale=100.0,
    alpha=0.2,
    beta=4.5,
    scaled_text=True,
    covariance="average",
    inverse="plain",
    order="predict-first",
    renormalise=False,
    views=None,
):
    """Logits N×C of a stream; `views` is N×n×d, the views whose mean each feature is."""
    T, F = np.asarray(anchors), np.asarray(features)
    C, d = T.shape
    identity = np.eye(d, dtype=T.dtype)
    mu, N, sigma, heard = T.copy(), np.full(C, 1 / C, T.dtype), identity.copy(), 0.0
    outputs = []

    def gaussian(x):
        if inverse == "plain":
            precision = np.linalg.inv(sigma)
        else:
            precision = d * np.linalg.pinv(heard * sigma + np.trace(sigma) * identity)
        return np.array(
            [mu[y] @ precision @ x - 0.5 * mu[y] @ precision @ mu[y] + np.log(N[y] / (1 + heard)) for y in range(C)]
        )

    for t, x in enumerate(F):
        z = scale * (T @ x)
        p = softmax(z) if views is None else np.mean([softmax(scale * (T @ view)) for view in views[t]], axis=0)
        text = z if scaled_text else T @ x
        g = gaussian(x)
        gamma = softmax(g)
        if order == "predict-first":
            outputs.append(text + alpha * g)
        w = math.exp(-beta * entropy(p))
        before, heard = heard, heard + w
        scatter = np.zeros((d, d), T.dtype)
        for y in range(C):
            a = w * gamma[y]
            mu[y] = (N[y] * mu[y] + a * x) / (N[y] + a)
            N[y] += a
            if renormalise:
                mu[y] /= np.linalg.norm(mu[y])
            scatter += a * np.outer(x - mu[y], x - mu[y])
        weight_of_old, weight_of_all = (1 + before, 1 + heard) if covariance == "average" else (heard, heard)
        sigma = (weight_of_old * sigma + scatter) / weight_of_all
        if order == "update-first":
            outputs.append(text + alpha * gaussian(x))
    return np.array(outputs)


def softmax(z):
    """Probabilities of logits."""
    e = np.exp(z - z.max())
    return e / e.sum()


def entropy(p):
    """In nats."""
    return -sum(float(q) * math.log(q) for q in p if q > 0)
