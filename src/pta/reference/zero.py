"""ZERO, one sample at a time: the paper's algorithm, and the released program's arithmetic."""

import numpy as np


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def entropies(logits):
    p = softmax(logits)
    return -(p * np.log(np.maximum(p, np.finfo(p.dtype).tiny))).sum(axis=-1)


def zero_votes(anchors, views, *, scale=100.0, keep=0.3, temperature="zero"):
    """The votes for each class from the views of one sample, the one that breaks a tie among them."""
    if temperature == "float16":
        halves = views.astype(np.float16).astype(np.float64) @ anchors.astype(np.float16).astype(np.float64).T
        cosines = halves.astype(np.float16)
        order = np.argsort(entropies((cosines * np.float16(scale)).astype(np.float64)), kind="stable")
    else:
        cosines = views @ anchors.T
        order = np.argsort(entropies(cosines * scale), kind="stable")
    voters = order[: max(1, int(len(views) * keep))]

    votes = np.zeros(len(anchors), dtype=np.float32)
    for view in voters:
        if temperature == "float16":
            votes += softmax((cosines[view] / np.finfo(np.float16).eps).astype(np.float32))
        else:
            votes[cosines[view].argmax()] += 1

    tied = np.flatnonzero(votes == votes.max())
    if len(tied) > 1:
        others = [view for view in order if view not in voters]
        for view in [*others, *voters]:
            if cosines[view].argmax() in tied:
                votes[cosines[view].argmax()] += 1
                break
        else:
            votes[tied[0]] += 1
    return votes


def zero_loop(anchors, features, *, views, **parameters):
    """Logits N×C, the logarithm of the shares of votes; the features themselves are not looked at."""
    votes = np.stack([zero_votes(anchors, own, **parameters) for own in views]).astype(anchors.dtype)
    assert len(votes) == len(features)
    return np.log(np.maximum(votes / votes.sum(axis=1, keepdims=True), 1e-12))
