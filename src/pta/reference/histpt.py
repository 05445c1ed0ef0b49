"""HisTPT as a loop: Historical Test-time Prompt Tuning for Vision Foundation Models (NeurIPS 2024).

Slow on purpose: the tests compare `pta.methods.histpt` with it. Gradients are central differences of the loss.
"""

import numpy as np

from pta.reference.numerics import Array, entropy, log_softmax, lowest_entropy, softmax
from pta.reference.tpt import Read, central_differences


def histpt_loop(
    read: Read,
    context: Array,
    views: Array,
    *,
    scale: float = 100.0,
    keep: float = 0.1,
    lr: float = 5e-3,
    weight_decay: float = 0.01,
    slots: int = 32,
    uncertain: int = 16,
    momentum: float = 0.99,
    answer: str = "tuned",
) -> Array:
    """Logits N×C from the views N×V×d, the plain image first."""
    outputs, x = [], context.copy()
    mean, square = np.zeros_like(x), np.zeros_like(x)
    local: list[tuple[Array, float]] = []
    hard: list[Array] = []
    for n, own in enumerate(views, start=1):
        # 1. Class features of the present context; the most confident views.
        T = read(x)
        chosen = own[lowest_entropy(scale * own @ T.T, max(1, int(len(own) * keep)))]
        e = entropy(softmax(scale * chosen @ T.T).mean(axis=0))
        if n == 1:
            local, hard, overall = [(T, e)] * slots, [T] * slots, T
        # 2. The local memory.
        local = [(T, e), *local[:-1]]
        # 3. The hard memory.
        ranked = sorted(local, key=lambda entry: -entry[1])[:uncertain]
        hard = [np.mean([features for features, _ in ranked], axis=0), *hard[:-1]]
        # 4. The global memory.
        overall = momentum * overall + (1 - momentum) * (local[-1][0] + hard[-1]) / 2
        # 5. The fused answer.
        memories = np.mean([features for features, _ in local], axis=0), np.mean(hard, axis=0), overall
        answers = [scale * memory @ own[0] for memory in memories]
        weights = softmax(np.array([-entropy(softmax(z)) for z in answers]))
        fused = sum(weight * z for weight, z in zip(weights, answers, strict=True))
        label = int(np.argmax(fused))

        # 6. The loss.
        def loss(at: Array, chosen: Array = chosen, label: int = label) -> float:
            return float(np.mean([-log_softmax(scale * read(at) @ f)[label] for f in chosen]))

        # 7. One step of AdamW, whose moments go on.
        g = central_differences(loss, x)
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g**2
        x = x - lr * weight_decay * x
        x = x - lr * (mean / (1 - 0.9**n)) / (np.sqrt(square / (1 - 0.999**n)) + 1e-8)
        # 8. The answer.
        outputs.append(fused if answer == "fused" else scale * read(x) @ own[0])
    return np.array(outputs)
