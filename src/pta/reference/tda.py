"""TDA as a loop over samples: Efficient Test-Time Adaptation of Vision-Language Models (CVPR 2024)."""

import math
from collections.abc import Callable

import numpy as np

from pta.reference.numerics import Array, entropy, mean_probabilities, shifts_of, softmax

Item = tuple[Array, float, Array]  # feature, entropy, probabilities
Cache = dict[int, list[Item]]  # by class, the smallest entropy first


def insert(cache: Cache, label: int, item: Item, slots: int) -> None:
    """Keep the items of smallest entropy, of equal ones the older."""
    cache[label] = sorted([*cache.get(label, []), item], key=lambda item: item[1])[:slots]


def tda_loop(
    anchors: Array,
    features: Array,
    *,
    scale: float = 100.0,
    bias: float = 0.0,
    log_prior: Array | None = None,
    most_confident: Array | None = None,
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
    labels: Array | None = None,
    boosted: Callable[[Cache, int], Cache] = lambda positive, t: positive,
    insert_negative: Callable[[Cache, int, Item, int], None] = insert,
) -> Array:
    """Logits N×C of a stream.

    A sample whose label (−1 if unknown) is a class is answered without it; then it is in the positive cache of that
    class, with entropy 0, and in no other.

    BoostAdapter scores sample t with a `boosted` positive cache, and has its own way to insert into the negative one.
    """
    classes, shifts = len(anchors), shifts_of(log_prior, features, anchors)
    positive: Cache = {}
    negative: Cache = {}

    def score(z: Array, f: Array, t: int) -> Array:
        out = z + positive_alpha * positive_logits(f, boosted(positive, t), positive_beta, classes)
        against = negative_logits(f, negative, negative_beta, classes, min_probability, max_probability)
        return out - negative_alpha * against

    outputs = []
    for t, f in enumerate(features):
        # 1. Zero-shot logits, probabilities and their entropy.
        z = scale * (anchors @ f) + bias + shifts[t]
        p = softmax(z) if most_confident is None else mean_probabilities(anchors, most_confident[t], scale, shifts[t])
        e, label = entropy(p), int(np.argmax(z))
        if order == "predict-first":
            outputs.append(score(z, f, t))
        before = dict(positive), dict(negative)
        # 2. The sample enters the positive cache.
        insert(positive, label, (f, e, p), positive_slots)
        # 3. A sample in doubt enters the negative cache.
        if min_entropy < e / entropy_unit(classes, entropy_base) < max_entropy:
            insert_negative(negative, label, (f, e, p), negative_slots)
        # 4. Score.
        if order == "update-first":
            outputs.append(score(z, f, t))
        if labels is not None and labels[t] >= 0:
            positive, negative = before
            insert(positive, int(labels[t]), (f, 0.0, p), positive_slots)
    return np.array(outputs)


def entropy_unit(classes: int, base: str) -> float:
    """What entropies, which are in nats, are divided by; the released program has log₂C."""
    return math.log2(classes) if base == "log2" else math.log(classes)


def affinities(f: Array, items: list[Item], beta: float) -> Array:
    """e^(−β(1−⟨f,k⟩)) of every key."""
    keys = np.stack([item[0] for item in items])
    return np.exp(-beta * (1 - keys @ f))


def positive_logits(f: Array, cache: Cache, beta: float, classes: int) -> Array:
    """The sum of the affinities to the items of each class."""
    items = [(item, label) for label in sorted(cache) for item in cache[label]]
    if not items:
        return np.zeros(classes, dtype=f.dtype)
    one_hot = np.zeros((len(items), classes), dtype=f.dtype)
    one_hot[np.arange(len(items)), [label for _, label in items]] = 1
    return affinities(f, [item for item, _ in items], beta) @ one_hot


def negative_logits(f: Array, cache: Cache, beta: float, classes: int, low: float, high: float) -> Array:
    """For each class, the sum of the affinities to the items that may belong to it, whatever their own class."""
    items = [item for label in sorted(cache) for item in cache[label]]
    if not items:
        return np.zeros(classes, dtype=f.dtype)
    q = np.stack([item[2] for item in items])
    return affinities(f, items, beta) @ ((q > low) & (q < high)).astype(f.dtype)
