"""OGA as a plain loop in NumPy."""

import numpy as np

SAME_ENTROPY = 1e-12  # entropies closer than this are equal
NO_SPREAD = 1e-12  # covariances with a smaller trace are zero


def log_softmax(z):
    """Logarithms of probabilities."""
    shifted = z - z.max()
    return shifted - np.log(np.exp(shifted).sum())


def oga_loop(
    anchors,
    features,
    *,
    scale=100.0,
    slots=8,
    tau=0.05,
    mean="capacity",
    renormalise=False,
    order="update-first",
    views=None,
):
    """Logits N×C of a stream: the logarithm of prior times likelihood; with `views` (N×n×d), of their means."""
    T = np.asarray(anchors)
    F = np.asarray(features)
    classes, d = T.shape
    memory = [[None] * slots for _ in range(classes)]
    entropies = np.full((classes, slots), np.log(classes))
    means = T.copy()
    precision = d * np.eye(d, dtype=T.dtype)
    outputs = []
    for t, x in enumerate(F):
        log_prior = log_softmax(scale * (T @ x))
        own = int(log_prior.argmax())
        if views is not None:
            log_prior = np.log(np.mean([np.exp(log_softmax(scale * (T @ view))) for view in views[t]], axis=0))
        s = np.exp(log_prior)
        e = float(-sum(p * np.log(p) for p in s.astype(np.float64) if p > 0))
        before = log_prior + log_softmax(tau * log_likelihoods(x, means, precision))
        worst = int(entropies[own].argmax())
        if e < entropies[own, worst] - SAME_ENTROPY:
            memory[own][worst], entropies[own, worst] = x, e
            for c in range(classes):
                items = [item for item in memory[c] if item is not None]
                if len(items) >= 2:
                    means[c] = sum(items) / (slots if mean == "capacity" else len(items))
                    if renormalise:
                        means[c] /= np.linalg.norm(means[c])
            counts = [sum(item is not None for item in items) for items in memory]
            if max(counts) > 2:
                residuals = [item - means[c] for c in range(classes) for item in memory[c] if item is not None]
                precision = precision_of(np.array(residuals))
        after = log_prior + log_softmax(tau * log_likelihoods(x, means, precision))
        outputs.append(after if order == "update-first" else before)
    return np.array(outputs)


def log_likelihoods(x, means, precision):
    """−½(x−μ)Λ(x−μ) of every class."""
    return np.array([x @ precision @ mu - 0.5 * mu @ precision @ mu - 0.5 * x @ precision @ x for mu in means])


def precision_of(residuals):
    """The shrunk precision of few residuals, the pseudo-inverse of many, cut where float32 would cut it."""
    n, d = residuals.shape
    S = np.cov(residuals.T, dtype=residuals.dtype)
    if np.trace(S) * (n - 1) <= NO_SPREAD * n:
        return np.zeros_like(S)
    if n <= 4 * d:
        return d * np.linalg.pinv((n - 1) * S + np.trace(S) * np.eye(d, dtype=S.dtype))
    return np.linalg.pinv(S, rcond=d * np.finfo(np.float32).eps, hermitian=True)
