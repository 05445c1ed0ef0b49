"""CLIP as a loop: Learning Transferable Visual Models From Natural Language Supervision (ICML 2021)."""

import numpy as np

from pta.reference.numerics import Array, shifts_of


def clip_loop(
    anchors: Array, features: Array, *, scale: float = 100.0, bias: float = 0.0, log_prior: Array | None = None
) -> Array:
    """Logits N×C of a stream, from which nothing is learned."""
    # 1. Score the feature against the text anchor of every class.
    shifts = shifts_of(log_prior, features, anchors)
    return np.array([scale * (anchors @ f) + bias + shift for f, shift in zip(features, shifts, strict=True)])
