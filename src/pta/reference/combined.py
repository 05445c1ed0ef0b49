"""PTA on top of another method as a loop: our rule for the rows "+TDA" and "+MTA" of the PTA paper (ICML 2026)."""

from pta.reference.numerics import Array
from pta.reference.pta import pta_loop


def combined_loop(
    anchors: Array,
    features: Array,
    base_logits: Array,
    *,
    scale: float = 100.0,
    bias: float = 0.0,
    h: float = 20.0,
    w: float = 0.01,
    min_probability: float = 0.1,
) -> Array:
    """Logits N×C of a stream; the other method gave `features` (its modes, if it is MTA) and `base_logits`."""
    # 1. The other method has learned from each sample and answered with base_logits.
    # 2. and 3. PTA learns from their softmax, and adds its logits to them.
    return pta_loop(anchors, features, base_logits, scale=scale, bias=bias, h=h, w=w, min_probability=min_probability)
