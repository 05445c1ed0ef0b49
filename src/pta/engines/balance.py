"""The balance gate: how much of a method's answer counts, where classes come in unequal numbers.

Samples of common classes leak into what a method learns about rare and absent ones, because zero-shot gives these a
part of their probability. The gate measures from zero-shot probabilities s alone how unequal the numbers are.

Kept, with C classes and t samples: Σs and Σ‖s‖² over all samples, and how far the gate was open at the last refresh.

At a refresh:
1. Two samples agree by s·s′. E is how much more often than with equal numbers:
   E = (C·(‖Σs‖² − Σ‖s‖²) + 10)/(t·(t−1) + 10) − 1, at least 0. It starts with ten pairs that agree as by chance.
2. A = Σ‖s‖²/t is the mean of ‖s‖²: 1 where zero-shot is sure, 1/C where it knows nothing.
3. What leaks is L = E·(1−A). How far one class dominates is D = E/(C·A−1): 1 where all samples are alike.
4. The gate is open by f = 1/(1 + (L/0.2)⁸ + (D/0.12)⁸).

The answer is f·(the method's logits) + (1−f)·(zero-shot logits of the same scale, with the prior if there is one). What
is learned does not change.

All that is kept are sums, which can be learned apart and added. The rule is ours. Its constants were chosen on
development sets (`benchmarks/balance.py`).
"""

from torch import Tensor

PAIRS = 10
LEAK, DOMINANCE, _SHARPNESS = 0.2, 0.12, 8


def openness(t: Tensor, total: Tensor, squares: Tensor) -> Tensor:
    """f after t samples with the sums Σs (C) and Σ‖s‖², in float64."""
    t, classes = t.double(), len(total)
    agreeing = classes * (total.square().sum() - squares)
    excess = ((agreeing + PAIRS) / (t * (t - 1) + PAIRS) - 1).clamp_min(0)
    with_itself = squares / t.clamp_min(1)
    leak, dominance = excess * (1 - with_itself), excess / (classes * with_itself - 1).clamp_min(1e-9)
    return 1 / (1 + (leak / LEAK) ** _SHARPNESS + (dominance / DOMINANCE) ** _SHARPNESS)
