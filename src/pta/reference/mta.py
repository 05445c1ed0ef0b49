"""MTA as a loop: On the Test-Time Zero-Shot Generalization of Vision-Language Models (CVPR 2024)."""

import numpy as np

from pta.reference.numerics import Array, softmax, unit


def mta_loop(
    anchors: Array,
    features: Array,
    views: Array,
    *,
    scale: float = 100.0,
    bias: float = 0.0,
    lambda_y: float = 0.2,
    lambda_q: float = 4.0,
    bandwidth_share: float = 0.3,
) -> Array:
    """Logits N×C of the modes of the views N×V×d; the features are not used."""
    outputs = []
    for _, own in zip(features, views, strict=True):
        mode, _, _ = mta_of_views(anchors, own, scale, lambda_y, lambda_q, bandwidth_share)
        # 5. Score the mode.
        outputs.append(scale * (anchors @ mode) + bias)
    return np.array(outputs)


def mta_of_views(
    anchors: Array, views: Array, scale: float, lambda_y: float, lambda_q: float, bandwidth_share: float
) -> tuple[Array, Array, Array]:
    """Mode, bandwidths and weights of the views of one sample."""
    # 1. Bandwidths.
    count = len(views)
    k = int(bandwidth_share * (count - 1))
    h = np.empty(count, dtype=views.dtype)
    for p in range(count):
        distances = np.sort(np.linalg.norm(views - views[p], axis=1))
        h[p] = np.sqrt(0.5 * np.mean(distances[1 : k + 1] ** 2))
    # 2. Affinities.
    s = softmax(views @ anchors.T * scale)
    affinity = s @ s.T

    def density(mode: Array) -> Array:
        return np.exp(-(np.linalg.norm(views - mode, axis=1) ** 2) / (2 * h**2))

    # 3. Start with equal weights at the plain image.
    y = np.full(count, 1 / count, dtype=views.dtype)
    mode = views[0]
    # 4. Five rounds.
    for _ in range(5):
        phi = density(mode)
        for _ in range(5):  # (a)
            old_y, y = y, softmax((phi + lambda_q * affinity @ y) / lambda_y)
            if np.linalg.norm(old_y - y) < 1e-6:
                break
        for _ in range(5):  # (b)
            weights = density(mode) * y
            old_mode, mode = mode, unit((weights[:, None] * views).sum(axis=0) / weights.sum())
            if np.linalg.norm(old_mode - mode) < 1e-6:
                break
    return mode, h, y
