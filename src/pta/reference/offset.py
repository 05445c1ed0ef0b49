"""The offset in front of a method as loops: the centre of the images, and Panda's negative images."""

from collections.abc import Callable

import numpy as np

from pta.reference.numerics import Array

Encode = Callable[[Array], Array]
"""One picture, channels×height×width, to its feature."""


def shifted(feature: Array, mean: Array, share: float) -> Array:
    """A feature without a share of a mean; not longer than one, and as it was if nothing would be left."""
    moved = feature - share * mean
    length = float(np.linalg.norm(moved))
    if length < 1e-6:
        return feature
    return moved / max(length, 1.0)


def centre_loop(features: Array, share: float) -> Array:
    """Each feature without a share of the mean of those before it, from the 31st on."""
    total, moved = np.zeros(features.shape[1]), []
    for t, feature in enumerate(features.astype(np.float64)):
        moved.append(feature if t < 30 else shifted(feature, total / t, share))
        total = total + feature
    return np.array(moved)


def patch_size(height: int, width: int) -> int:
    """32 pixels, or a seventh of a small picture."""
    return min(32, max(1, min(height, width) // 7))


def compose(base: Array, sources: list[Array], patch: int) -> Array:
    """The base with every patch of the grid from a source, row by row, at its own place."""
    picture, rest = base.copy(), iter(sources)
    for row in range(base.shape[1] // patch):
        for column in range(base.shape[2] // patch):
            y, x = slice(row * patch, (row + 1) * patch), slice(column * patch, (column + 1) * patch)
            picture[:, y, x] = next(rest)[:, y, x]
    return picture


def negatives_of_batch(pictures: Array, seed: int) -> list[Array]:
    """⌈B/10⌉ negatives: of each a base, and for every patch one of the other pictures."""
    count, patch = len(pictures), patch_size(*pictures.shape[2:])
    places = (pictures.shape[2] // patch) * (pictures.shape[3] // patch)
    rng, negatives = np.random.default_rng((seed, 0)), []
    for _ in range(-(-count // 10)):
        base = int(rng.integers(count))
        drawn = rng.integers(count - 1, size=places)
        others = [number for number in range(count) if number != base]
        negatives.append(compose(pictures[base], [pictures[others[one]] for one in drawn], patch))
    return negatives


def panda_batch(features: Array, pictures: Array, encode: Encode, share: float, seed: int = 0) -> Array:
    """The authors' rule: every feature of the batch without a share of the mean feature of the batch's negatives."""
    mean = np.mean([encode(picture) for picture in negatives_of_batch(pictures, seed)], axis=0)
    return np.array([shifted(feature, mean, share) for feature in features.astype(np.float64)])


def panda_loop(features: Array, pictures: Array, labels: Array, encode: Encode, share: float) -> Array:
    """The rule for a stream: every tenth sample one negative is made of the last 64 pictures.

    `labels` are the zero-shot classes. Each patch is of a class drawn from those of the 64, and of a picture drawn from
    those of the class. The mean counts from the third negative on, and about the last ten weigh.
    """
    patch = patch_size(*pictures.shape[2:])
    places = (pictures.shape[2] // patch) * (pictures.shape[3] // patch)
    mean, made, moved = np.zeros(features.shape[1]), 0, []
    for t, feature in enumerate(features.astype(np.float64)):
        moved.append(feature if made < 3 else shifted(feature, mean, share))
        if (t + 1) % 10:
            continue
        made += 1
        rng, last = np.random.default_rng((t + 1, 1)), np.arange(max(0, t - 63), t + 1)
        classes, sources = np.unique(labels[last]), []
        chosen, uniform = rng.integers(len(classes), size=places), rng.random(places)
        for number, u in zip(chosen, uniform, strict=True):
            members = last[labels[last] == classes[number]]
            sources.append(pictures[members[int(u * len(members))]])
        mean = mean + (encode(compose(pictures[t], sources, patch)) - mean) / min(made, 10)
    return np.array(moved)
