"""OnZeta as a loop: Online Zero-Shot Classification with CLIP (ECCV 2024)."""

import math

import numpy as np

from pta.reference.numerics import Array, shifts_of, softmax


def onzeta_loop(
    anchors: Array,
    features: Array,
    *,
    length: int,
    scale: float = 100.0,
    log_prior: Array | None = None,
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

    def labels(x: Array, shift: Array) -> tuple[Array, Array]:
        p = softmax(x @ anchors.T * scale + shift) * np.exp(rho - rho.max())
        return p / p.sum(), softmax(x @ w / temperature)

    answers = []
    shifts = shifts_of(log_prior, features, anchors)
    for i, (x, shift) in enumerate(zip(features, shifts, strict=True), start=1):
        # 1. and 3. Text label and vision label.
        p, v = labels(x, shift)
        # 2. Dual step.
        rho = np.maximum(0, rho - dual_step / math.sqrt(i) * (p - alpha / classes))
        # 5. Proxy step.
        w = w - proxy_step / math.sqrt(i) / temperature * np.outer(x, v - p)
        w = w / np.linalg.norm(w, axis=0)
        # 4. The answer, whose logarithm is taken below.
        if order == "update-first":
            p, v = labels(x, shift)
        b = beta * math.sqrt(min(i, length) / length)
        answers.append(b * v + (1 - b) * p)
    with np.errstate(divide="ignore"):
        return np.log(np.array(answers))
