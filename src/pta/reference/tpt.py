"""TPT as a loop: Test-Time Prompt Tuning for Zero-Shot Generalization in Vision-Language Models (NeurIPS 2022).

Slow on purpose: the tests compare `pta.methods.tpt` with it. Gradients are central differences of the loss.
"""

from collections.abc import Callable

import numpy as np

from pta.reference.numerics import Array, entropy, lowest_entropy, softmax

Read = Callable[[Array], Array]
"""Class features C×d of a context n×width, as the text tower gives them."""


def tpt_loop(
    read: Read,
    context: Array,
    views: Array,
    *,
    scale: float = 100.0,
    keep: float = 0.1,
    steps: int = 1,
    lr: float = 5e-3,
    weight_decay: float = 0.01,
    ctpt: float = 0.0,
) -> Array:
    """Logits N×C from the views N×V×d, the plain image first."""
    outputs = []
    for own in views:
        chosen = own[lowest_entropy(scale * own @ read(context).T, max(1, int(len(own) * keep)))]
        tuned = tune(read, context, chosen, scale=scale, steps=steps, lr=lr, weight_decay=weight_decay, ctpt=ctpt)
        outputs.append(scale * read(tuned) @ own[0])
    return np.array(outputs)


def tune(
    read: Read, context: Array, chosen: Array, *, scale: float, steps: int, lr: float, weight_decay: float, ctpt: float
) -> Array:
    """The context after some steps of AdamW."""

    def loss(at: Array) -> float:
        T = read(at)
        spread = np.mean([np.linalg.norm(t - T.mean(axis=0)) for t in T])
        return entropy(softmax(scale * chosen @ T.T).mean(axis=0)) - ctpt * float(spread)

    x, mean, square = context.copy(), np.zeros_like(context), np.zeros_like(context)
    for step in range(1, steps + 1):
        g = central_differences(loss, x)
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g**2
        x = x - lr * weight_decay * x
        x = x - lr * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    return x


def central_differences(loss: Callable[[Array], float], at: Array, width: float = 1e-5) -> Array:
    """The gradient of a loss, a coordinate at a time."""
    gradient = np.zeros_like(at)
    for coordinate in np.ndindex(at.shape):
        step = np.zeros_like(at)
        step[coordinate] = width
        gradient[coordinate] = (loss(at + step) - loss(at - step)) / (2 * width)
    return gradient
