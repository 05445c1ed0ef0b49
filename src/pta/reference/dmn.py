"""DMN as a loop: Dual Memory Networks: A Versatile Adaptation Approach for Vision-Language Models (CVPR 2024)."""

import numpy as np

from pta.reference.numerics import Array, log_softmax, softmax


def dmn_loop(
    anchors: Array,
    features: Array,
    *,
    scale: float = 100.0,
    most_confident: Array | None = None,
    views: Array | None = None,
    version: str = "official",
    slots: int = 50,
    beta: float = 5.5,
    memory_weight: float = 1.0,
    first_views: int = 1,
    keep: float = 0.1,
) -> Array:
    """Logits N×C of a stream: the logarithm of q + λp."""
    memory: list[list[tuple[Array, float]]] = [[] for _ in anchors]  # features and entropies
    outputs = []
    for t, f in enumerate(features):
        # 1. and 2. Probabilities of the views.
        z = scale * anchors @ f
        if first_views > 1:
            assert views is not None
            rows = scale * views[t, :first_views] @ anchors.T
            kept = np.argsort(entropy(softmax(rows), 1e-6), kind="stable")[: max(1, int(first_views * keep))]
            rows = rows[kept]
        else:
            rows = z[None] if most_confident is None else scale * most_confident[t] @ anchors.T
        p = softmax(rows).mean(axis=0) if version == "official" else softmax(rows.mean(axis=0))
        e = float(entropy(p, 1e-8 if version == "official" else 1e-5))
        # 3. The memory of the most probable class.
        own = memory[int(p.argmax())]
        worst = max(range(len(own)), key=lambda slot: own[slot][1], default=0)
        if len(own) < slots:
            own.append((f, e))
        elif version == "tta-vlm" or own[worst][1] > e:
            own[worst] = (f, e)
        # 4. and 5. Read-out.
        cosines = np.array(
            [recalled(f, [*(k for k, _ in items), T], beta) for items, T in zip(memory, anchors, strict=True)]
        )
        out = log_softmax(z)
        if memory_weight:
            out = np.logaddexp(out, np.log(memory_weight) + log_softmax(scale * cosines))
        outputs.append(out)
    return np.array(outputs)


def entropy(p: Array, shift: float) -> Array:
    """−Σ p ln(p + shift) over the last axis."""
    return -(p * np.log(p + shift)).sum(axis=-1)


def recalled(f: Array, keys: list[Array], beta: float) -> float:
    """The cosine of a sample with the mean of keys, weighted by their affinities to it; 0 if that has no length."""
    stacked = np.stack(keys)
    mean = np.exp(-beta * (1 - stacked @ f)) @ stacked
    length = float(np.linalg.norm(mean))
    return float(mean @ f) / length if length else 0.0
