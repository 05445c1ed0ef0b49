"""GS-Bias as a loop: Global-Spatial Bias Learner for Single-Image Test-Time Adaptation (ICML 2025).

Slow on purpose: gradients are products of explicit Jacobians, step by step from the loss to the bias. The tests compare
`pta.methods.gs_bias` with it.
"""

import numpy as np

from pta.reference.numerics import Array, entropy, lowest_entropy, softmax


def gs_bias_loop(
    anchors: Array,
    features: Array,
    views: Array,
    patches: Array,
    *,
    scale: float = 100.0,
    bias: float = 0.0,
    alpha: float = 1.0,
    beta: float = 1.0,
    steps: int = 5,
    keep: float = 0.5,
    r_g: float = 0.9,
    r_s: float = 0.9,
    early_stop: float = 0.25,
    first_views: int = 8,
    top_patches: int = 16,
) -> Array:
    """Logits N×C from the first views of N×V×d and the best patches of N×P×d."""
    outputs = []
    for f, own_views, own_patches in zip(features, views, patches, strict=True):
        # 1. Logits of the views and of the patches.
        z = scale * own_views[:first_views] @ anchors.T
        s = scale * own_patches @ anchors.T
        # 2. The patches with the highest scores.
        scores = softmax(s.T).sum(axis=0)  # softmax over the patches for each class
        s = s[np.argsort(-scores, kind="stable")[:top_patches]]
        # 3. No bias yet.
        b_g = h_g = np.zeros(len(anchors))
        b_s = h_s = np.zeros(len(anchors))
        losses: list[float] = []
        # 4. Gradient descent.
        for t in range(steps):
            c_g = r_g * b_g + (1 - r_g) * h_g
            c_s = r_s * b_s + (1 - r_s) * h_s
            rows = z + c_g
            rows = rows[lowest_entropy(rows, max(1, int(len(rows) * keep)))]
            losses.append(entropy(softmax(rows).mean(axis=0)))
            if losses[0] == 0 or (t > 0 and abs(losses[t] - losses[0]) / abs(losses[0]) > early_stop):
                break
            h_g, h_s = c_g, c_s
            b_g = b_g - alpha * (1 if t == 0 else r_g) * gradient_by_a_bias(rows)
            b_s = b_s - beta * (1 if t == 0 else r_s) * gradient_by_a_bias(s + c_s)
        # 5. Both biases are added to the logits of the plain image.
        learned = r_g * b_g + (1 - r_g) * h_g + r_s * b_s + (1 - r_s) * h_s
        outputs.append(scale * (anchors @ f) + bias + learned)
    return np.array(outputs)


def gradient_by_a_bias(rows: Array) -> Array:
    """The gradient of H(mean of softmax) of rows by what is added to all of them."""
    mean = softmax(rows).mean(axis=0)
    by_mean = -(np.log(np.maximum(mean, np.finfo(np.float64).tiny)) + 1)
    total = np.zeros(rows.shape[1])
    for p in softmax(rows):
        jacobian = np.diag(p) - np.outer(p, p)  # of softmax, by its logits
        total += jacobian @ by_mean / len(rows)
    return total
