"""ADAPT as a loop, online and for a whole set: probabilistic Gaussian alignment (NeurIPS 2025)."""

import numpy as np

from pta.reference.numerics import Array, entropy, log_softmax, mean_probabilities, shifts_of, softmax

SAME_ENTROPY = 1e-12  # entropies closer than this are equal
NO_SPREAD = 1e-12  # covariances with a smaller trace are zero


def adapt_loop(
    anchors: Array,
    features: Array,
    *,
    scale: float = 100.0,
    bias: float = 0.0,
    log_prior: Array | None = None,
    most_confident: Array | None = None,
    slots: int = 16,
    alpha: float = 0.9,
    temperature: float = 100.0,
    count_current: str = "twice",
    similarity: str = "stale",
    order: str = "update-first",
) -> Array:
    """Logits N×C of a stream."""
    T, (classes, d) = anchors, anchors.shape
    bank: list[list[tuple[Array, Array, float]]] = [[] for _ in range(classes)]  # features, probabilities, entropies
    means = T.copy()
    W, b = T.T, -np.log(classes) - 0.5 * (T**2).sum(axis=1)
    stored, S, V = np.zeros((1, d), T.dtype), np.zeros(1, T.dtype), np.zeros((1, classes), T.dtype)

    def score(f: Array, z: Array) -> Array:
        similarities = S if similarity == "stale" else f @ stored.T
        return weighed(f, z, W, b, similarities, V, temperature) + bias

    shifts = shifts_of(log_prior, features, T)
    outputs = []
    for t, f in enumerate(features):
        z = scale * (T @ f) + shifts[t]
        p = softmax(z) if most_confident is None else mean_probabilities(T, most_confident[t], scale, shifts[t])
        own, e = int(z.argmax()), entropy(p)
        if order == "predict-first":
            outputs.append(score(f, z))
        # 1. The sample enters the bank of its class.
        items = bank[own]
        worst = int(np.argmax([item[2] for item in items])) if items else 0
        entered = len(items) < slots or e < items[worst][2] - SAME_ENTROPY
        if len(items) < slots:
            items.append((f, p, e))
        elif entered:
            items[worst] = (f, p, e)
        if entered:
            # 2. Mean.
            counted = [*items, (f, p, e)] if count_current == "twice" else items
            total = np.sum([q[own] * x for x, q, _ in counted], axis=0)
            means[own] = alpha * (total / sum(q[own] for _, q, _ in counted)) + (1 - alpha) * T[own]
            # 3. Precision.
            rows = [(c, x, q) for c in range(classes) for x, q, _ in bank[c]]
            W, b = discriminant(np.array([x - means[c] for c, x, _ in rows]), means)
            stored = np.array([x for _, x, _ in rows])
            S = f @ stored.T
            V = np.array([q * (np.arange(classes) == c) for c, _, q in rows])
        # 4. and 5. Evidence and score.
        if order == "update-first":
            outputs.append(score(f, z))
    return np.array(outputs)


def adapt_transductive_loop(
    anchors: Array,
    features: Array,
    *,
    scale: float = 100.0,
    bias: float = 0.0,
    slots: int = 6,
    alpha: float = 0.9,
    temperature: float = 100.0,
) -> Array:
    """Logits N×C of a whole set."""
    T, F = anchors, features
    Z = np.array([scale * (T @ f) for f in F])
    P = softmax(Z)
    # The bank: the most confident samples of each class.
    bank = []
    for c in range(len(T)):
        own = [i for i in range(len(F)) if Z[i].argmax() == c]
        bank.append(sorted(own, key=lambda i: entropy(P[i]))[:slots])
    # Means of the classes that have any: of these samples, and of all.
    means = T.copy()
    for c, chosen in enumerate(bank):
        if chosen:
            counted = [*chosen, *range(len(F))]
            total = np.sum([P[i, c] * F[i] for i in counted], axis=0)
            means[c] = alpha * (total / P[counted, c].sum()) + (1 - alpha) * T[c]
    # 3. to 5. Precision, evidence and score.
    rows = [(c, i) for c, chosen in enumerate(bank) for i in chosen]
    W, b = discriminant(np.array([F[i] - means[c] for c, i in rows]), means)
    stored = np.array([F[i] for _, i in rows])
    V = np.array([P[i] * (np.arange(len(T)) == c) for c, i in rows])
    return np.array([weighed(f, z, W, b, f @ stored.T, V, temperature) + bias for f, z in zip(F, Z, strict=True)])


def discriminant(residuals: Array, means: Array) -> tuple[Array, Array]:
    """W = Λμᵀ and b = −ln C − ½μΛμ of the class Gaussians, with Λ from the residuals of the bank."""
    n, d = residuals.shape
    identity = np.eye(d, dtype=means.dtype)
    covariance = identity if n == 1 else np.cov(residuals.T, dtype=means.dtype)
    if np.trace(covariance) * (n - 1) <= NO_SPREAD * n and n > 1:
        covariance = np.zeros_like(covariance)
    W = d * np.linalg.pinv((n - 1) * covariance + np.trace(covariance) * identity) @ means.T
    return W, -np.log(len(means)) - 0.5 * np.einsum("cd,dc->c", means, W)


def weighed(f: Array, z: Array, W: Array, b: Array, similarities: Array, V: Array, temperature: float) -> Array:
    """Steps 4 and 5: z weighed by the evidence, with n similarities to the bank and its n×C probabilities V."""
    u = log_softmax(f @ W + b) + temperature / (2 * len(V)) * (similarities @ V)
    return z * np.exp((u - u.max()) / temperature)
