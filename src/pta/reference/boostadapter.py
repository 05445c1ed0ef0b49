"""BoostAdapter as a loop over samples: a copy of the positive cache for each, enlarged with its own views."""

from copy import deepcopy

import numpy as np

from pta.reference.tda import negative_logits, positive_logits, zero_shot


def boostadapter_loop(
    anchors,
    features,
    views,
    *,
    scale=100.0,
    bias=0.0,
    most_confident=None,
    delta=0,
    share=0.1,
    negatives="newest",
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
):
    positive, negative, classes = {}, {}, len(anchors)
    outputs = []
    for t, f in enumerate(features):
        z, entropy, p = zero_shot(anchors, f, scale, bias, None if most_confident is None else most_confident[t])
        label = int(np.argmax(z))
        of_most = entropy / (np.log2(classes) if entropy_base == "log2" else np.log(classes))

        def learn(f=f, entropy=entropy, p=p, label=label, of_most=of_most):
            append_and_sort(positive, label, (f, entropy), positive_slots)
            if min_entropy < of_most < max_entropy:
                append = append_and_drop if negatives == "newest" else append_and_sort
                append(negative, label, (f, entropy, p), negative_slots)

        if order == "update-first":
            learn()
        boosted = deepcopy(positive)
        for view_label, item in confident_views(anchors, views[t], scale, share):
            append_and_sort(boosted, view_label, item, positive_slots + delta)
        out = z + positive_alpha * positive_logits(f, boosted, positive_beta, classes)
        out -= negative_alpha * negative_logits(f, negative, negative_beta, classes, min_probability, max_probability)
        if order == "predict-first":
            learn()
        outputs.append(out)
    return np.array(outputs)


def confident_views(anchors, views, scale, share):
    candidates = []
    for view in views:
        z, entropy, _ = zero_shot(anchors, view, scale, 0.0, None)
        candidates.append((int(np.argmax(z)), (view, entropy)))
    candidates.sort(key=lambda candidate: candidate[1][1])
    return candidates[: int(len(views) * share)]


def append_and_sort(cache, label, item, slots):
    cache[label] = sorted([*cache.get(label, []), item], key=lambda item: item[1])[:slots]


def append_and_drop(cache, label, item, slots):
    kept = [*cache.get(label, []), item]
    cache[label] = kept[len(kept) - min(slots, len(kept)) :]
