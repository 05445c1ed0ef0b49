"""The order-aware prior as a loop over samples, written from its definition."""

import numpy as np

from pta.reference.numerics import Array, softmax


def local_prior_loop(zero_shot_logits: Array, gates: list[float] | None = None) -> Array:
    """What is added to the zero-shot logits of each sample of a stream, N×C; `gates` receives 1 − ρ of each."""
    C = zero_shot_logits.shape[1]
    fast, slow, u, p = np.full(C, 1 / C), np.full(C, 1 / C), 1.0, np.zeros(C)
    A = B = 0.0
    shifts = []
    for t, z in enumerate(zero_shot_logits):
        s = softmax(z)
        A = (1 - 1 / 256) * A + 8 * (s @ fast - u / C)
        B = (1 - 1 / 256) * B + 8 * (1 - u) * (s @ (p + 10 / C)) / (10 + t)
        r = (A + 2) / (B + 2)
        rho = 1 / (1 + (r / 1.7) ** 16)
        shifts.append(1.5 * (1 - rho) * np.log(C * (fast + slow) / 4 + 1 / 2))
        fast = fast + (s - fast) / 8
        slow = slow + (s - slow) / 64
        u *= 7 / 8
        p = p + s
        if gates is not None:
            gates.append(1 - rho)
    return np.array(shifts)
