"""ZERO as a loop: Frustratingly Easy Test-Time Adaptation of Vision-Language Models (NeurIPS 2024)."""

import numpy as np

from pta.reference.numerics import Array, entropy, softmax


def zero_loop(
    anchors: Array, features: Array, views: Array, *, scale: float = 100.0, keep: float = 0.3, temperature: str = "zero"
) -> Array:
    """Logits N×C from the views N×V×d; the features are not used."""
    outputs = []
    for _, own in zip(features, views, strict=True):
        votes = zero_votes(anchors, own, scale, keep, temperature).astype(anchors.dtype)
        # 4. The logarithm of the shares of votes.
        outputs.append(np.log(np.maximum(votes / votes.sum(), 1e-12)))
    return np.array(outputs)


def zero_votes(anchors: Array, views: Array, scale: float, keep: float, temperature: str) -> Array:
    """The votes for each class from the views of one sample, with the vote that breaks a tie."""
    # 1. Zero-shot probabilities of every view, and their entropy.
    if temperature == "float16":  # the arithmetic of the released program
        views, anchors = (given.astype(np.float16).astype(np.float64) for given in (views, anchors))
        cosines = (views @ anchors.T).astype(np.float16)
    else:
        cosines = views @ anchors.T
    logits = (cosines * np.asarray(scale, cosines.dtype)).astype(np.float64)
    ranked = np.argsort([entropy(softmax(z)) for z in logits], kind="stable")
    # 2. The views of lowest entropy vote.
    voters = ranked[: max(1, int(len(views) * keep))]
    votes = np.zeros(len(anchors), dtype=np.float32)
    for view in voters:
        if temperature == "float16":
            votes += softmax((cosines[view] / np.finfo(np.float16).eps).astype(np.float32))
        else:
            votes[cosines[view].argmax()] += 1
    # 3. Of classes that tie, the first that another view is for gets one more vote.
    tied = np.flatnonzero(votes == votes.max())
    if len(tied) > 1:
        others = [view for view in ranked if view not in voters]
        choices = [cosines[view].argmax() for view in [*others, *voters]]
        votes[next((c for c in choices if c in tied), tied[0])] += 1
    return votes
