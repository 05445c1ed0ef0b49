"""ETTA as a loop: efficient test-time adaptation with running class means and a choice of prompts (BMVC 2025)."""

import numpy as np

from pta.reference.numerics import Array, lowest_entropy, softmax, unit


def etta_loop(
    anchors: Array,
    features: Array,
    prompt_features: Array | None = None,
    views: Array | None = None,
    *,
    scale: float = 100.0,
    bias: float = 0.0,
    prompts: str = "all",
    share: float = 0.2,
    first_views: int = 1,
    keep: float = 0.1,
    order: str = "update-first",
) -> Array:
    """Logits N×C of a stream; the prompts are C×P×d, the views N×V×d."""
    bank = anchors[:, None] if prompts == "one" or prompt_features is None else prompt_features
    r = int(bank.shape[1] * share) if prompts == "all" else 1
    m = np.zeros_like(anchors)
    S = np.zeros(len(anchors), anchors.dtype)

    def score(f: Array, z: Array) -> Array:
        if not S.any():
            return z
        # 4. Cosines with the class means.
        c = m @ f / (np.linalg.norm(m, axis=1) + 1e-6)
        # 5. Entropies of both.
        h_c, h_z = raised_entropy(scale * c), raised_entropy(scale * z)
        # 6. Each is weighed by the entropy of the other.
        return (h_z * c + h_c * z) / (h_z + h_c)

    outputs = []
    for n, f in enumerate(features):
        own = f[None] if first_views == 1 or views is None else views[n, :first_views]
        # 1. The mean of the prompts nearest to the plain image, for each class.
        t = np.stack([unit(E[np.argsort(-(E @ own[0]), kind="stable")[:r]].mean(axis=0)) for E in bank])
        # 2. Cosines of the most confident views, and their mean feature.
        Z = own @ t.T
        kept = lowest_entropy(scale * Z, max(1, int(len(own) * keep)))
        f, z = own[kept].mean(axis=0), Z[kept].mean(axis=0)
        if order == "predict-first":
            outputs.append(score(f, z))
        # 3. The mean of the zero-shot class.
        label = int(np.argmax(z))
        e = np.exp(t[label] @ f)
        m[label] = (S[label] * m[label] + e * f) / (S[label] + e)
        S[label] += e
        if order == "update-first":
            outputs.append(score(f, z))
    return scale * np.array(outputs) + bias


def raised_entropy(z: Array) -> float:
    """−Σ p ln p of probabilities to which 10⁻⁶ is added."""
    p = softmax(z) + 1e-6
    return float(-np.sum(p * np.log(p)))
