"""OnZeta, one sample at a time, as the released program runs it."""

import math

import numpy as np


def softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


def onzeta_loop(
    anchors,
    features,
    *,
    length,
    scale=100.0,
    temperature=0.04,
    proxy_step=0.5,
    dual_step=20.0,
    alpha=1.0,
    beta=0.8,
    order="predict-first",
):
    """Logits N×C, the logarithm of the mixture of text and vision labels."""
    w = anchors.T.copy()
    rho = np.zeros(len(anchors), dtype=anchors.dtype)

    def labels(x):
        p = softmax(x @ anchors.T * scale) * np.exp(rho - rho.max())
        return p / p.sum(), softmax(x @ w / temperature)

    answers = []
    for i, x in enumerate(features, start=1):
        p, v = labels(x)
        rho = rho - dual_step / math.sqrt(i) * (p - alpha / len(anchors))
        rho[rho < 0] = 0
        w = w - proxy_step / math.sqrt(i) / temperature * np.outer(x, v - p)
        w = w / np.linalg.norm(w, axis=0)
        if order == "update-first":
            p, v = labels(x)
        b = beta * math.sqrt(min(i, length) / length)
        answers.append(b * v + (1 - b) * p)
    with np.errstate(divide="ignore"):
        return np.log(np.stack(answers))
