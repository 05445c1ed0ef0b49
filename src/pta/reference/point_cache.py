"""Point-Cache as a loop: Test-time Dynamic and Hierarchical Cache for Point Cloud Analysis (CVPR 2025)."""

import math
from collections.abc import Sequence

import numpy as np

from pta.reference.numerics import Array, entropy, mean_probabilities, softmax

Item = tuple[float, Array, Array, Array]  # entropy, feature, local features, probabilities
Cache = dict[int, list[Item]]  # by predicted class


def point_cache_loop(
    anchors: Array,
    features: Array,
    patches: Array | None = None,
    *,
    scale: float = 100.0,
    bias: float = 0.0,
    most_confident: Array | None = None,
    positive_alpha: float = 4.0,
    positive_beta: float = 3.0,
    positive_slots: int = 3,
    local_features: int = 3,
    prefill: bool = False,
    preview: Sequence[int] = (),
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
    """Logits N×C of a stream of features N×d with their local features N×P×d.

    With `prefill`, `preview` are the numbers of the samples that are looked at before the first is answered, in order.
    """
    classes = len(anchors)
    positive: Cache = {}
    negative: Cache = {}

    def judge(t: int) -> tuple[Array, int, Item]:
        f = features[t]
        z = scale * (anchors @ f) + bias
        p = softmax(z) if most_confident is None else mean_probabilities(anchors, most_confident[t], scale)
        local = f[:0].reshape(0, len(f)) if patches is None else patches[t, :local_features]
        return z, int(np.argmax(z)), (round(entropy(p), 10), f, local, p)  # equal ones stay equal

    def score(z: Array, item: Item) -> Array:
        _, f, local, _ = item
        out = z.copy()
        for label, items in positive.items():
            for _, key, local_keys, _ in items:
                out[label] += positive_alpha * math.exp(-positive_beta * (1 - key @ f))
                for local_key in local_keys:
                    out[label] += positive_alpha * math.exp(-positive_beta * (1 - local_key @ local.mean(axis=0)))
        for items in negative.values():
            for _, key, _, q in items:
                possible = (q > min_probability) & (q < max_probability)
                out[possible] -= negative_alpha * math.exp(-negative_beta * (1 - key @ f))
        return out

    # Before the test: the first samples of each predicted class, as they come.
    for t in preview if prefill else ():
        _, label, item = judge(t)
        if len(positive.setdefault(label, [])) < positive_slots:
            positive[label].append(item)

    outputs = []
    for t in range(len(features)):
        z, label, item = judge(t)
        if order == "predict-first":
            outputs.append(score(z, item))
        # 1. The sample enters the positive cache.
        update(positive.setdefault(label, []), item, positive_slots)
        # 2. A sample in doubt enters the negative cache.
        unit = math.log2(classes) if entropy_base == "log2" else math.log(classes)
        if min_entropy < item[0] / unit < max_entropy:
            update(negative.setdefault(label, []), item, negative_slots)
        # 3. Score.
        if order == "update-first":
            outputs.append(score(z, item))
    return np.array(outputs)


def update(items: list[Item], item: Item, slots: int) -> None:
    """Add an item while there is room, else in the place of the last one if its entropy is smaller; then sort."""
    if len(items) < slots:
        items.append(item)
    elif items and item[0] < items[-1][0]:
        items[-1] = item
    items.sort(key=lambda one: one[0])
