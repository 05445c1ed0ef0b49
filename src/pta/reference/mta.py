"""MTA, one sample at a time, as the released program runs it."""

import numpy as np


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def mta_of_views(anchors, views, *, scale=100.0, lambda_y=0.2, lambda_q=4.0, bandwidth_share=0.3):
    """Mode, bandwidths and weights of the views of one sample."""
    count = len(views)
    k = int(bandwidth_share * (count - 1))
    h = np.empty(count, dtype=views.dtype)
    for p in range(count):
        distances = np.sort(np.linalg.norm(views - views[p], axis=1))
        h[p] = np.sqrt(0.5 * np.mean(distances[1 : k + 1] ** 2))
    s = softmax(views @ anchors.T * scale)
    affinity = s @ s.T

    def density(mode):
        return np.exp(-(np.linalg.norm(views - mode, axis=1) ** 2) / (2 * h**2))

    y = np.full(count, 1 / count, dtype=views.dtype)
    mode = views[0]
    for _ in range(5):
        phi = density(mode)
        for _ in range(5):
            before, y = y, softmax((phi + lambda_q * affinity @ y) / lambda_y)
            if np.linalg.norm(before - y) < 1e-6:
                break
        for _ in range(5):
            weights = density(mode) * y
            mean = (weights[:, None] * views).sum(axis=0) / weights.sum()
            before, mode = mode, mean / np.linalg.norm(mean)
            if np.linalg.norm(before - mode) < 1e-6:
                break
    return mode, h, y


def mta_loop(anchors, features, *, views, scale=100.0, **parameters):
    """Logits N×C of the modes; the features themselves are not looked at."""
    modes = [mta_of_views(anchors, own, scale=scale, **parameters)[0] for own in views]
    assert len(modes) == len(features)
    return scale * np.stack(modes) @ anchors.T
