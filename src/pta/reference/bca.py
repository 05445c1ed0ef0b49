"""BCA as a loop: Bayesian Test-Time Adaptation for Vision-Language Models (CVPR 2025)."""

import numpy as np

from pta.reference.numerics import Array, shifts_of, softmax, unit


def bca_loop(
    anchors: Array,
    features: Array,
    *,
    scale: float = 100.0,
    log_prior: Array | None = None,
    centre_threshold: float = 0.05,
    centre_count: float = 20000,
    prior_threshold: float = 0.65,
    prior_count: float = 1,
    update: str = "posterior",
    order: str = "predict-first",
) -> Array:
    """Logits N×C of a stream."""
    centres = anchors.copy()
    table = np.eye(len(anchors), dtype=anchors.dtype)
    n1 = [centre_count] * len(anchors)
    n2 = [prior_count] * len(anchors)

    def beliefs(f: Array, shift: Array) -> tuple[Array, Array]:
        q = softmax(scale * (centres @ f) + shift)
        return q, (q[:, None] * table).sum(axis=0)

    answers = []
    for f, shift in zip(features, shifts_of(log_prior, features, anchors), strict=True):
        # 1. Likelihood of the centres and posterior of the classes.
        q, r = beliefs(f, shift)
        # 2. The answer, whose logarithm is taken below.
        if order == "predict-first":
            answers.append(r)
        # 3. The class that learns, and how sure it is.
        m, v = int(np.argmax(r if update == "posterior" else q)), r.max()
        # 4. Its centre.
        if v > centre_threshold:
            centres[m] = unit((n1[m] * centres[m] + f) / (n1[m] + 1))
            n1[m] += 1
        # 5. Its row of the table.
        if v > prior_threshold:
            table[m] = (n2[m] * table[m] + r) / (n2[m] + 1)
            n2[m] += 1
        if order == "update-first":
            answers.append(beliefs(f, shift)[1])
    with np.errstate(divide="ignore"):
        return np.log(np.array(answers))
