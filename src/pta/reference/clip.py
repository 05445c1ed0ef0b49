"""CLIP as a loop: Learning Transferable Visual Models From Natural Language Supervision (ICML 2021)."""

import numpy as np

from pta.reference.numerics import Array


def clip_loop(anchors: Array, features: Array, *, scale: float = 100.0, bias: float = 0.0) -> Array:
    """Logits N×C of a stream, from which nothing is learnt."""
    # 1. Score the feature against the text anchor of every class.
    return np.array([scale * (anchors @ f) + bias for f in features])
