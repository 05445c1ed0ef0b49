"""ADAPT, online and for a whole set, as a plain loop in NumPy."""

import numpy as np

SAME_ENTROPY = 1e-12  # entropies closer than this are equal
NO_SPREAD = 1e-12  # covariances with a smaller trace are zero


def softmax(z):
    """Probabilities of logits, over the last axis."""
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def entropy(p):
    """−Σ p ln p in nats."""
    return float(-sum(value * np.log(value) for value in p.astype(np.float64) if value > 0))


def most_confident_mean(T, views, scale):
    """The mean of views, their mean probabilities, and the zero-shot logits of the mean."""
    f = views.mean(axis=0)
    return f, softmax(scale * (views @ T.T)).mean(axis=0), scale * (T @ f)


def discriminant(residuals, means, T):
    """W and b of the class Gaussians, from the residuals of the bank."""
    n, d = residuals.shape
    covariance = np.eye(d, dtype=T.dtype) if n == 1 else np.cov(residuals.T, dtype=T.dtype)
    if np.trace(covariance) * (n - 1) <= NO_SPREAD * n and n > 1:
        covariance = np.zeros_like(covariance)
    precision = d * np.linalg.pinv((n - 1) * covariance + np.trace(covariance) * np.eye(d, dtype=T.dtype))
    W = precision @ means.T
    b = -np.log(len(T)) - 0.5 * np.einsum("cd,dc->c", means, W)
    return W, b


def final(f, z, W, b, similarity, values, temperature):
    """Logits of one sample, given its n similarities to the bank and the n×C values of the bank."""
    g = f @ W + b
    g = g - g.max()
    g = g - np.log(np.exp(g).sum())
    u = g + temperature / (2 * len(values)) * (similarity @ values)
    return z * np.exp((u - u.max()) / temperature)


def adapt_loop(
    anchors,
    features,
    *,
    scale=100.0,
    slots=16,
    alpha=0.9,
    temperature=100.0,
    count_current="twice",
    similarity="stale",
    order="update-first",
    views=None,
):
    """Logits N×C of a stream; with `views` (N×n×d) the features are their means."""
    T = np.asarray(anchors)
    F = np.asarray(features)
    classes = len(T)
    bank = [[] for _ in range(classes)]  # of [feature, probabilities, entropy]
    means = T.copy()
    W, b = T.T, -np.log(classes) - 0.5 * (T**2).sum(axis=1)
    stored, S, V = np.zeros((1, T.shape[1]), T.dtype), np.zeros(1, T.dtype), np.zeros((1, classes), T.dtype)
    outputs = []
    for t, f in enumerate(F):
        if views is None:
            z = scale * (T @ f)
            p = softmax(z)
        else:
            f, p, z = most_confident_mean(T, np.asarray(views[t]), scale)
        own, e = int(z.argmax()), entropy(p)
        before = final(f, z, W, b, S if similarity == "stale" else f @ stored.T, V, temperature)
        entries = bank[own]
        if len(entries) < slots:
            entries.append([f, p, e])
            entered = True
        else:
            worst = int(np.argmax([entry[2] for entry in entries]))
            entered = e < entries[worst][2] - SAME_ENTROPY
            if entered:
                entries[worst] = [f, p, e]
        if entered:
            weights = [entry[1][own] for entry in entries]
            vectors = [entry[0] for entry in entries]
            if count_current == "twice":
                weights, vectors = [*weights, p[own]], [*vectors, f]
            mean = sum(q * x for q, x in zip(weights, vectors, strict=True)) / sum(weights)
            means[own] = alpha * mean + (1 - alpha) * T[own]
            rows = [(c, *entry) for c in range(classes) for entry in bank[c]]
            stored = np.array([x for _, x, _, _ in rows])
            W, b = discriminant(np.array([x - means[c] for c, x, _, _ in rows]), means, T)
            S = f @ stored.T
            V = np.array([q * (np.arange(classes) == c) for c, _, q, _ in rows])
        after = final(f, z, W, b, S if similarity == "stale" else f @ stored.T, V, temperature)
        outputs.append(after if order == "update-first" else before)
    return np.array(outputs)


def adapt_transductive_loop(anchors, features, *, scale=100.0, slots=6, alpha=0.9, temperature=100.0):
    """Logits N×C of a whole set."""
    T, F = np.asarray(anchors), np.asarray(features)
    Z = np.array([scale * (T @ f) for f in F])
    P = softmax(Z)
    bank = []
    for c in range(len(T)):
        own = [i for i in range(len(F)) if Z[i].argmax() == c]
        bank.append(sorted(own, key=lambda i: entropy(P[i]))[:slots])
    means = T.copy()
    for c, chosen in enumerate(bank):
        if chosen:
            total = sum(P[i, c] * F[i] for i in chosen) + sum(P[i, c] * F[i] for i in range(len(F)))
            mean = total / (sum(P[i, c] for i in chosen) + P[:, c].sum())
            means[c] = alpha * mean + (1 - alpha) * T[c]
    rows = [(c, i) for c, chosen in enumerate(bank) for i in chosen]
    W, b = discriminant(np.array([F[i] - means[c] for c, i in rows]), means, T)
    stored = np.array([F[i] for _, i in rows])
    V = np.array([P[i] * (np.arange(len(T)) == c) for c, i in rows])
    return np.array([final(f, z, W, b, f @ stored.T, V, temperature) for f, z in zip(F, Z, strict=True)])
