"""DPE as a loop: Dual Prototype Evolving for Test-Time Generalization of Vision-Language Models (NeurIPS 2024).

Slow on purpose: gradients are products of explicit Jacobians, one prototype after the other, and the cache is sorted
lists. The tests compare `pta.methods.dpe` with it.
"""

import math

import numpy as np

from pta.reference.numerics import Array, entropy, lowest_entropy, softmax, unit

Cache = dict[int, list[tuple[Array, float]]]  # by class: features with their entropies, the smallest entropy first


def dpe_loop(
    anchors: Array,
    features: Array,
    views: Array | None = None,
    *,
    scale: float = 100.0,
    bias: float = 0.0,
    alpha: float = 6.0,
    beta: float = 5.0,
    align: float = 0.5,
    lr_text: float = 5e-4,
    lr_image: float = 5e-4,
    temperature: float = 0.01,
    slots: int = 3,
    max_entropy: float = 0.1,
    first_views: int = 1,
    keep: float = 0.1,
    answer: str = "plain",
) -> Array:
    """Logits N×C of a stream."""
    W, n, cache, outputs = anchors.copy(), 0, Cache(), []
    for t, f0 in enumerate(features):
        own = f0[None] if first_views == 1 or views is None else views[t, :first_views]
        # 1. What the most confident views say together.
        W_unit = np.stack([unit(w) for w in W])
        f, z, e = looked_at(own, W_unit, scale, bias, keep)
        # 2. The sample enters the cache.
        kept = cache.setdefault(int(np.argmax(z)), [])
        if len(kept) < slots:
            kept.append((f, e))
        elif e < kept[-1][1]:
            kept[-1] = (f, e)
        kept.sort(key=lambda item: item[1])
        # 3. Visual prototypes.
        present = sorted(cache)
        K = np.stack([np.mean([item[0] for item in cache[c]], axis=0) for c in present])
        # 4. One step of AdamW from zero.
        by_text, by_visual = gradients(W, K, present, f, scale, bias, alpha, beta, align, temperature)
        W_moved = np.stack([unit(w) for w in W + first_adamw_step(by_text, lr_text)])
        K_moved = np.stack([unit(k) for k in K + first_adamw_step(by_visual, lr_image)])
        # 5. Score.
        if answer == "views":
            f, z, _ = looked_at(own, W_moved, scale, bias, keep)
        else:
            f, z = f0, scale * (W_moved @ f0) + bias
        out = with_affinities(z, f, K_moved, present, alpha, beta)
        outputs.append(out)
        # 6. A confident sample enters the mean.
        if entropy(softmax(out)) < max_entropy * math.log2(len(anchors)):
            n += 1
            W = W * n / (n + 1) + W_moved / (n + 1)
    return np.array(outputs)


def looked_at(views: Array, W_unit: Array, scale: float, bias: float, keep: float) -> tuple[Array, Array, float]:
    """Mean feature, mean logits and entropy of the mean probabilities of the most confident views."""
    z = scale * views @ W_unit.T + bias
    chosen = lowest_entropy(z, max(1, int(len(views) * keep)))
    return views[chosen].mean(axis=0), z[chosen].mean(axis=0), entropy(softmax(z[chosen]).mean(axis=0))


def with_affinities(z: Array, f: Array, K_unit: Array, present: list[int], alpha: float, beta: float) -> Array:
    """Logits with what the visual prototypes of the present classes add."""
    out = z.copy()
    for k, c in zip(K_unit, present, strict=True):
        out[c] += alpha * np.exp(-beta * (1 - k @ f))
    return out


def loss(
    W: Array,
    K: Array,
    present: list[int],
    f: Array,
    scale: float,
    bias: float,
    alpha: float,
    beta: float,
    align: float,
    temperature: float,
) -> float:
    """What step 4 descends, as a function of W + R_t and K + R_v."""
    W_unit, K_unit = (np.stack([unit(row) for row in rows]) for rows in (W, K))
    out = with_affinities(scale * (W_unit @ f) + bias, f, K_unit, present, alpha, beta)
    info_nce = 0.0
    for i, k in enumerate(K_unit):
        info_nce -= np.log(softmax(W_unit[present] @ k / temperature)[i]) / len(present)
    return entropy(softmax(out)) + align * info_nce


def gradients(
    W: Array,
    K: Array,
    present: list[int],
    f: Array,
    scale: float,
    bias: float,
    alpha: float,
    beta: float,
    align: float,
    temperature: float,
) -> tuple[Array, Array]:
    """The gradients of `loss` by W and by K."""
    W_unit, K_unit = (np.stack([unit(row) for row in rows]) for rows in (W, K))
    p = softmax(with_affinities(scale * (W_unit @ f) + bias, f, K_unit, present, alpha, beta))
    by_p = -(np.log(np.maximum(p, np.finfo(np.float64).tiny)) + 1)
    by_logit = (np.diag(p) - np.outer(p, p)) @ by_p  # through the Jacobian of softmax
    by_W_unit = np.outer(by_logit, scale * f)
    by_K_unit = np.zeros_like(K)
    for i, c in enumerate(present):
        affinity = alpha * np.exp(-beta * (1 - K_unit[i] @ f))
        by_K_unit[i] = by_logit[c] * affinity * beta * f
    for i, k in enumerate(K_unit):  # InfoNCE, one visual prototype after the other
        by_similarity = softmax(W_unit[present] @ k / temperature)
        by_similarity[i] -= 1
        by_similarity *= align / (len(present) * temperature)
        by_K_unit[i] += by_similarity @ W_unit[present]
        for j, c in enumerate(present):
            by_W_unit[c] += by_similarity[j] * k
    by_W = np.stack([normalising(w) @ g for w, g in zip(W, by_W_unit, strict=True)])
    by_K = np.stack([normalising(k) @ g for k, g in zip(K, by_K_unit, strict=True)])
    return by_W, by_K


def normalising(v: Array) -> Array:
    """The Jacobian of v/|v|, d×d."""
    return (np.eye(len(v)) - np.outer(unit(v), unit(v))) / np.linalg.norm(v)


def first_adamw_step(gradient: Array, rate: float) -> Array:
    """What AdamW with ε = 10⁻³ makes of zeros: the moments, corrected for their start, are g and g²."""
    first, second = 0.1 * gradient / (1 - 0.9), 0.001 * gradient**2 / (1 - 0.999)
    return -rate * first / (np.sqrt(second) + 1e-3)
