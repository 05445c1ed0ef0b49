"""SCA as a loop over samples that solves the ridge regression anew each time."""

import math

import numpy as np


def sca_loop(
    anchors,
    features,
    *,
    scale=100.0,
    gamma=1e4,
    tau=0.5,
    threshold="unsureness",
    temperature=1.0,
    beta_f=0.5,
    trust="surer",
    cache="cosine",
    cache_scale=None,
    order="update-first",
    views=None,
):
    """Logits N×C of a stream; `views` is N×n×d, the views whose mean each feature is."""
    T, F = np.asarray(anchors), np.asarray(features)
    C, d = T.shape
    gram, cross = np.zeros((d, d), T.dtype), np.zeros((d, C), T.dtype)
    outputs = []
    for t, f in enumerate(F):
        z = scale * (T @ f)
        p = softmax(z) if views is None else np.mean([softmax(scale * (T @ view)) for view in views[t]], axis=0)
        label = pseudo_label(p, tau, threshold, temperature)
        if order == "update-first":
            gram, cross = gram + np.outer(f, f), cross + np.outer(f, label)
        W = np.linalg.solve(gram + gamma * np.eye(d, dtype=T.dtype), cross)
        if order == "predict-first":
            gram, cross = gram + np.outer(f, f), cross + np.outer(f, label)
        scores = np.zeros(C, T.dtype)
        for c in range(C):
            length = np.linalg.norm(W[:, c])
            if cache == "product":
                scores[c] = f @ W[:, c]
            elif length > 0:
                scores[c] = f @ W[:, c] / length
        u = (scale if cache_scale is None else cache_scale) * scores
        sign = -1 if trust == "surer" else 1
        a = softmax(sign * beta_f * np.array([entropy(softmax(u)), entropy(p)], T.dtype))
        outputs.append(a[0] * u + a[1] * z)
    return np.array(outputs)


def pseudo_label(p, tau, threshold, temperature):
    """p within the fewest classes that reach the threshold, sharpened and scaled to sum one."""
    ranked = sorted(range(len(p)), key=lambda c: -p[c])
    enough = tau * (1 - p[ranked[0]]) if threshold == "unsureness" else tau
    chosen, reached = [ranked[0]], p[ranked[0]]
    for c in ranked[1:]:
        if reached >= enough - 1e-12:
            break
        chosen.append(c)
        reached += p[c]
    label = np.zeros_like(p)
    label[chosen] = softmax(np.log(p[chosen]) / temperature)
    return label


def softmax(z):
    """Probabilities of logits."""
    e = np.exp(z - z.max())
    return e / e.sum()


def entropy(p):
    """In nats."""
    return -sum(float(q) * math.log(q) for q in p if q > 0)
