"""OnZeta as a loop: Online Zero-Shot Classification with CLIP (ECCV 2024)."""

import math

import numpy as np

from pta.reference.numerics import Array, softmax


def onzeta_loop(
    anchors: Array,
    features: Array,
    *,
    length: int,
    scale: float = 100.0,
    temperature: float = 0.04,
    proxy_step: float = 0.5,
    dual_step: float = 20.0,
    alpha: float = 1.0,
    beta: float = 0.8,
    order: str = "predict-first",
) -> Array:
    """Logits N×C of a stream that was announced to have `length` samples."""
    classes = len(anchors)
    w = anchors.T.copy()
    rho = np.zeros(classes, dtype=anchors.dtype)

    def labels(x: Array) -> tuple[Array, Array]:
        p = softmax(x @ anchors.T * scale) * np.exp(rho - rho.max())
        return p / p.sum(), softmax(x @ w / temperature)

    answers = []
    for i, x in enumerate(features, start=1):
        # 1. and 3. Text label and vision label.
        p, v = labels(x)
        # 2. Dual step.
        rho = np.maximum(0, rho - dual_step / math.sqrt(i) * (p - alpha / classes))
        # 5. Proxy step.
        w = w - proxy_step / math.sqrt(i) / temperature * np.outer(x, v - p)
        w = w / np.linalg.norm(w, axis=0)
        # 4. The answer, whose logarithm is taken below.
        if order == "update-first":
            p, v = labels(x)
        b = beta * math.sqrt(min(i, length) / length)
        answers.append(b * v + (1 - b) * p)
    with np.errstate(divide="ignore"):
        return np.log(np.array(answers))
