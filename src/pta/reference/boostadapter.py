"""BoostAdapter as a loop: Improving Vision-Language Test-Time Adaptation via Regional Bootstrapping (NeurIPS 2024)."""

from copy import deepcopy
from typing import Any

import numpy as np

from pta.reference.numerics import Array, entropy, shifts_of, softmax
from pta.reference.tda import Cache, Item, insert, tda_loop


def boostadapter_loop(
    anchors: Array,
    features: Array,
    views: Array,
    *,
    scale: float = 100.0,
    bias: float = 0.0,
    log_prior: Array | None = None,
    most_confident: Array | None = None,
    delta: int = 0,
    share: float = 0.1,
    negatives: str = "newest",
    positive_slots: int = 3,
    **of_tda: Any,
) -> Array:
    """Logits N×C of a stream with its views N×V×d: TDA, but each sample is scored with a positive cache of its own."""
    shifts = shifts_of(log_prior, features, anchors)

    def boosted(positive: Cache, t: int) -> Cache:
        # A copy of the positive cache gets the most confident views of the sample.
        copy = deepcopy(positive)
        for label, item in confident_views(anchors, views[t], scale, shifts[t], share):
            insert(copy, label, item, positive_slots + delta)
        return copy

    of_tda |= {"scale": scale, "bias": bias, "log_prior": log_prior}
    of_tda |= {"most_confident": most_confident, "positive_slots": positive_slots}
    insert_negative = insert_newest if negatives == "newest" else insert
    return tda_loop(anchors, features, boosted=boosted, insert_negative=insert_negative, **of_tda)


def confident_views(anchors: Array, views: Array, scale: float, shift: Array, share: float) -> list[tuple[int, Item]]:
    """The views of smallest entropy, the smallest first, each with its own class."""
    candidates = []
    for view in views:
        z = scale * (anchors @ view) + shift
        p = softmax(z)
        candidates.append((int(np.argmax(z)), (view, entropy(p), p)))
    candidates.sort(key=lambda candidate: candidate[1][1])
    return candidates[: int(len(views) * share)]


def insert_newest(cache: Cache, label: int, item: Item, slots: int) -> None:
    """Keep the newest items."""
    kept = [*cache.get(label, []), item]
    cache[label] = kept[len(kept) - min(slots, len(kept)) :]
