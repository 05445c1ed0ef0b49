"""The balance gate as a loop over samples, written from its definition."""

import numpy as np

from pta.reference.numerics import Array, softmax


def balance_gate_loop(zero_shot_logits: Array, refresh_every: int = 128) -> Array:
    """How far the gate is open at each sample of a stream, N, from the zero-shot logits without prior, N×C."""
    s = np.array([softmax(z) for z in zero_shot_logits])
    C, f, found = s.shape[1], 1.0, []
    for t in range(len(s)):
        if t % refresh_every == 0 or (t < refresh_every and t & (t - 1) == 0):
            f = openness(s[:t], C)
        found.append(f)
    return np.array(found)


def openness(s: Array, C: int) -> float:
    """f after the samples with these probabilities."""
    agreement = s @ s.T
    alone = np.trace(agreement)
    t = len(s)
    E = max(0.0, (C * (agreement.sum() - alone) + 10) / (t * (t - 1) + 10) - 1)
    A = alone / max(t, 1)
    leak, dominance = E * (1 - A), E / max(C * A - 1, 1e-9)
    return 1 / (1 + (leak / 0.2) ** 8 + (dominance / 0.12) ** 8)


def gated(logits: Array, zero_shot_logits: Array, gates: Array, logit_factor: float, bias: float = 0.0) -> Array:
    """A method's answers behind the gate, N×C; the zero-shot logits have the prior, if there is one."""
    alike = (zero_shot_logits - bias) / logit_factor + bias
    return gates[:, None] * logits + (1 - gates[:, None]) * alike
