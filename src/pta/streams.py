"""Orders in which samples arrive: pure functions from labels to sample numbers; equal seeds give equal orders."""

import math
from collections.abc import Iterator
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pta.errors import InvalidParameter

Order = NDArray[np.int64]


def iid(count: int, seed: int) -> Order:
    """All samples in random order.

    >>> iid(5, seed=1).tolist()
    [4, 0, 1, 2, 3]
    """
    return _rng(seed).permutation(count)


def dirichlet(labels: ArrayLike, gamma: float, seed: int, *, batch: int = 128, slots: int | None = None) -> Order:
    """Classes unevenly spread over time: the smaller `gamma`, the fewer classes at a time (StatA's protocol).

    Time is cut into slots. Each class draws from Dirichlet(γ, …, γ) which share of its samples, taken in the order of
    the dataset, falls into which slot; inside a slot everything is shuffled. Batches may straddle slots.

    In the paper γ is 0.1, 0.01 and 0.001. The batch that methods will see decides the number of slots and nothing else:
    unless `slots` is given, it is the `slot_count` of the classes that occur. Less than two batches of samples make one
    slot, and that is an i.i.d. stream.
    """
    members = _by_class(labels)
    if not 0 < gamma < math.inf:
        raise InvalidParameter(f"gamma must be a number above 0, not {gamma!r}; separate(...) is its limit at 0")
    if slots is None:
        slots = slot_count(sum(map(len, members)), len(members), batch)
    rng = _rng(seed)
    shares = rng.dirichlet(np.full(_positive("slots", slots), gamma), size=len(members))
    parts: list[list[Order]] = [[] for _ in range(slots)]
    for own, share in zip(members, shares, strict=True):
        cuts = np.floor(np.cumsum(share)[:-1] * len(own)).astype(np.int64)
        slot_of = np.searchsorted(cuts, np.arange(len(own)), side="right")
        for slot in np.unique(slot_of):
            parts[slot].append(own[slot_of == slot])
    return np.concatenate([rng.permutation(np.concatenate(part)) for part in parts if part])


def slot_count(samples: int, classes: int, batch: int = 128) -> int:
    """How many slots the protocol cuts a stream into: one per whole batch, at most one per class, at least one.

    >>> slot_count(1692, classes=47), slot_count(8100, classes=10)
    (13, 10)
    """
    return max(1, min(samples // _positive("batch", batch), classes))


def separate(labels: ArrayLike, seed: int) -> Order:
    """One class after the other, classes and the samples of each in random order."""
    rng = _rng(seed)
    members = _by_class(labels)
    return np.concatenate([rng.permutation(members[row]) for row in rng.permutation(len(members))])


def drifting(segments: ArrayLike, seed: int) -> Order:
    """One condition after the other, by ascending segment number, each in random order."""
    rng = _rng(seed)
    members = _by_class(segments)
    return np.concatenate([rng.permutation(own) for own in members])


def poisoned(
    order: Order, labels: ArrayLike, probabilities: ArrayLike, *, prefix: int | None, confidence: float = 0.8
) -> Order:
    """The same order, but it begins with samples that zero-shot gives a wrong class more than `confidence`.

    `probabilities` are zero-shot's, one row per sample. The first `prefix` such samples of the order are moved to its
    front; None, or more than there are, moves all.
    """
    classes, given = np.asarray(labels), np.asarray(probabilities)
    if given.ndim != 2 or classes.shape != given.shape[:1]:
        raise InvalidParameter(
            f"probabilities must have a row for each of the {classes.size} labels, got shape {given.shape}"
        )
    if prefix is not None and prefix < 0:
        raise InvalidParameter(f"prefix must be a whole number from 0, not {prefix!r}")
    misleading = (given.max(axis=1) > confidence) & (given.argmax(axis=1) != classes)
    first = np.flatnonzero(misleading[order])[:prefix]
    return np.concatenate([order[first], np.delete(order, first)])


def batches(order: Order, size: int, *, drop_last: bool = False) -> Iterator[Order]:
    """Consecutive runs of `size` samples; with `drop_last`, a shorter one at the end is left out.

    >>> [part.tolist() for part in batches(np.arange(5), 2, drop_last=True)]
    [[0, 1], [2, 3]]
    """
    _positive("size", size)
    for start in range(0, kept(len(order), size, drop_last=drop_last), size):
        yield order[start : start + size]


def kept(count: int, size: int, *, drop_last: bool) -> int:
    """How many of `count` samples are seen in batches of a size."""
    return count - count % size if drop_last else count


def _by_class(labels: ArrayLike) -> list[Order]:
    """The sample numbers of each class that occurs, classes ascending, samples in the order of the dataset."""
    given = np.asarray(labels)
    if given.ndim != 1 or not given.size or not np.issubdtype(given.dtype, np.integer):
        raise InvalidParameter(
            f"there must be one whole number a sample, got {given.dtype} of shape {given.shape}; "
            "without labels only the i.i.d. order can be made"
        )
    _, sizes = np.unique(given, return_counts=True)
    return np.split(np.argsort(given, kind="stable"), np.cumsum(sizes)[:-1])


def _rng(seed: int) -> np.random.Generator:
    if not isinstance(seed, Integral) or seed < 0:
        raise InvalidParameter(f"seed must be a whole number from 0, not {seed!r}")
    return np.random.default_rng(int(seed))


def _positive(name: str, value: int) -> int:
    if not isinstance(value, Integral) or value < 1:
        raise InvalidParameter(f"{name} must be a whole number from 1, not {value!r}")
    return int(value)
