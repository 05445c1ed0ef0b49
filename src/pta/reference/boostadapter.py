"""BoostAdapter as a loop: Improving Vision-Language Test-Time Adaptation via Regional Bootstrapping (NeurIPS 2024)."""

from copy import deepcopy

import numpy as np

from pta.reference.numerics import Array, entropy, mean_probabilities, softmax
from pta.reference.tda import Cache, Item, entropy_unit, insert, negative_logits, positive_logits


def boostadapter_loop(
    anchors: Array,
    features: Array,
    views: Array,
    *,
    scale: float = 100.0,
    bias: float = 0.0,
    most_confident: Array | None = None,
    delta: int = 0,
    share: float = 0.1,
    negatives: str = "newest",
    positive_alpha: float = 2.0,
    positive_beta: float = 5.0,
    positive_slots: int = 3,
    negative_alpha: float = 0.117,
    negative_beta: float = 1.0,
    negative_slots: int = 2,
    min_entropy: float = 0.2,
    max_entropy: float = 0.5,
    entropy_base: str = "log2",
    min_probability: float = 0.03,
    max_probability: float = 1.0,
    order: str = "update-first",
) -> Array:
    """Logits N×C of a stream with its views N×V×d."""
    classes = len(anchors)
    positive: Cache = {}
    negative: Cache = {}

    def score(z: Array, f: Array, own_views: Array) -> Array:
        # 3. A copy of the positive cache gets the most confident views of the sample.
        boosted = deepcopy(positive)
        for label, item in confident_views(anchors, own_views, scale, share):
            insert(boosted, label, item, positive_slots + delta)
        # 4. Score as in TDA.
        out = z + positive_alpha * positive_logits(f, boosted, positive_beta, classes)
        against = negative_logits(f, negative, negative_beta, classes, min_probability, max_probability)
        return out - negative_alpha * against

    outputs = []
    for t, f in enumerate(features):
        z = scale * (anchors @ f) + bias
        p = softmax(z) if most_confident is None else mean_probabilities(anchors, most_confident[t], scale)
        e, label = entropy(p), int(np.argmax(z))
        if order == "predict-first":
            outputs.append(score(z, f, views[t]))
        # 1. The sample enters the positive cache.
        insert(positive, label, (f, e, p), positive_slots)
        # 2. A sample in doubt enters the negative cache.
        if min_entropy < e / entropy_unit(classes, entropy_base) < max_entropy:
            keep = insert_newest if negatives == "newest" else insert
            keep(negative, label, (f, e, p), negative_slots)
        if order == "update-first":
            outputs.append(score(z, f, views[t]))
    return np.array(outputs)


def confident_views(anchors: Array, views: Array, scale: float, share: float) -> list[tuple[int, Item]]:
    """The views of smallest entropy, the smallest first, each with its own class."""
    candidates = []
    for view in views:
        z = scale * (anchors @ view)
        p = softmax(z)
        candidates.append((int(np.argmax(z)), (view, entropy(p), p)))
    candidates.sort(key=lambda candidate: candidate[1][1])
    return candidates[: int(len(views) * share)]


def insert_newest(cache: Cache, label: int, item: Item, slots: int) -> None:
    """Keep the newest items."""
    kept = [*cache.get(label, []), item]
    cache[label] = kept[len(kept) - min(slots, len(kept)) :]
