"""TDA as a loop over samples: dictionaries of lists, sorted at every insertion, stacked again for every sample."""

import numpy as np


def tda_loop(
    anchors,
    features,
    *,
    scale=100.0,
    bias=0.0,
    most_confident=None,
    positive_alpha=2.0,
    positive_beta=5.0,
    positive_slots=3,
    negative_alpha=0.117,
    negative_beta=1.0,
    negative_slots=2,
    min_entropy=0.2,
    max_entropy=0.5,
    entropy_base="log2",
    min_probability=0.03,
    max_probability=1.0,
    order="update-first",
    caches=None,
):
    """Logits N×C; `caches`, a pair of dictionaries, goes on from there and is changed."""
    positive, negative = ({}, {}) if caches is None else caches
    classes = len(anchors)
    outputs = []
    for t, f in enumerate(features):
        z, entropy, p = zero_shot(anchors, f, scale, bias, None if most_confident is None else most_confident[t])
        label = int(np.argmax(z))
        share = entropy / (np.log2(classes) if entropy_base == "log2" else np.log(classes))

        def learn(f=f, entropy=entropy, p=p, label=label, share=share):
            insert(positive, label, (f, entropy), positive_slots)
            if min_entropy < share < max_entropy:
                insert(negative, label, (f, entropy, p), negative_slots)

        if order == "update-first":
            learn()
        out = z + positive_alpha * positive_logits(f, positive, positive_beta, classes)
        out -= negative_alpha * negative_logits(f, negative, negative_beta, classes, min_probability, max_probability)
        if order == "predict-first":
            learn()
        outputs.append(out)
    return np.array(outputs)


def softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


def entropy_of(p):
    return -np.sum(p[p > 0] * np.log(p[p > 0]))


def zero_shot(anchors, f, scale, bias, most_confident):
    z = scale * (anchors @ f) + np.asarray(bias, dtype=f.dtype)
    views = (
        [softmax(scale * (anchors @ view)) for view in most_confident] if most_confident is not None else [softmax(z)]
    )
    p = np.mean(views, axis=0)
    return z, entropy_of(p), p


def insert(cache, label, item, slots):
    """Append if there is room, else replace the last one if it is worse; then sort."""
    kept = cache.setdefault(label, [])
    if len(kept) < slots:
        kept.append(item)
    elif slots and item[1] < kept[-1][1]:
        kept[-1] = item
    kept.sort(key=lambda item: item[1])


def affinities(f, items, beta):
    keys = np.stack([item[0] for item in items])
    return np.exp(-beta * (1 - keys @ f))


def positive_logits(f, cache, beta, classes):
    items = [(item, label) for label in sorted(cache) for item in cache[label]]
    if not items:
        return np.zeros(classes, dtype=f.dtype)
    one_hot = np.zeros((len(items), classes), dtype=f.dtype)
    one_hot[np.arange(len(items)), [label for _, label in items]] = 1
    return affinities(f, [item for item, _ in items], beta) @ one_hot


def negative_logits(f, cache, beta, classes, low, high):
    items = [item for label in sorted(cache) for item in cache[label]]
    if not items:
        return np.zeros(classes, dtype=f.dtype)
    q = np.stack([item[2] for item in items])
    return affinities(f, items, beta) @ ((q > low) & (q < high)).astype(f.dtype)
