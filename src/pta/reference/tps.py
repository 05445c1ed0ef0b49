"""TPS as a loop: Just Shift It: Test-Time Prototype Shifting (WACV 2025)."""

import numpy as np

from pta.reference.numerics import Array, lowest_entropy, softmax


def tps_loop(
    anchors: Array,
    features: Array,
    views: Array,
    *,
    scale: float = 100.0,
    bias: float = 0.0,
    lr: float = 5e-3,
    steps: int = 1,
    keep: float = 0.1,
    selection: str = "every-step",
    weight_decay: float = 0.01,
    least_gradient: float = 0.0,
) -> Array:
    """Logits N×C from the views N×V×d, the plain image first; the features are not used."""
    outputs = []
    for _, own in zip(features, views, strict=True):
        S, m, v = (np.zeros_like(anchors) for _ in range(3))
        kept = np.arange(0)
        for step in range(1, steps + 1):
            # 1. The shifted prototypes, and the logits of the views.
            u, lengths = shifted(anchors, S)
            z = scale * own @ u.T + bias
            # 2. The most confident views.
            if step == 1 or selection == "every-step":
                kept = lowest_entropy(z, max(1, int(len(own) * keep)))
            # 3. The gradient of the entropy of their mean probabilities.
            g = gradient(u, lengths, own[kept], z[kept], scale)
            g[np.abs(g) <= least_gradient] = 0.0
            # 4. One step of AdamW.
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            unbiased_m, unbiased_v = m / (1 - 0.9**step), v / (1 - 0.999**step)
            S = S * (1 - lr * weight_decay) - lr * unbiased_m / (np.sqrt(unbiased_v) + 1e-8)
        # 5. Score the plain image.
        outputs.append(scale * shifted(anchors, S)[0] @ own[0] + bias)
    return np.array(outputs)


def shifted(anchors: Array, S: Array) -> tuple[Array, Array]:
    """The directions of the shifted prototypes, and their lengths."""
    rows = anchors + S
    lengths = np.linalg.norm(rows, axis=1)
    return rows / lengths[:, None], lengths


def gradient(u: Array, lengths: Array, f: Array, z: Array, scale: float) -> Array:
    """∂H(mean of softmax(z_i))/∂S, C×d, of kept views with features f and logits z."""
    q = softmax(z)
    log_mean = np.log(np.maximum(q.mean(axis=0), np.finfo(q.dtype).tiny))
    g = np.zeros_like(u)
    for q_i, f_i in zip(q, f, strict=True):
        by_logit = q_i * (q_i @ log_mean - log_mean) / len(q)
        across = f_i - (u @ f_i)[:, None] * u  # what of f_i is not along the prototype
        g += scale * by_logit[:, None] * across / lengths[:, None]
    return g
