"""Stream orders: pure functions from labels to sample numbers; equal seeds give equal orders.

In `rare`, `bursts` and `zipf` the samples of a class come in random order, and when all have come, in that order again,
as before a still camera. In the other orders no sample comes twice.
"""

from functools import partial

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from pta.core.parameters import plain_number, require_count, require_number, require_switch
from pta.core.plain import plain_tensor
from pta.errors import InvalidParameter, shown

Order = NDArray[np.int64]

_MOST_SAMPLES = 2**31
_MOST_NUMBERS = 2**27  # of a Dirichlet distribution for each class, and of a stream of any length: 1 GiB
_LARGEST_GAMMA = 1e9
_STRETCH, _BURST = (20, 60), (2, 6)  # samples of the common class and of another, each from the first to below the last

require_prefix = partial(require_count, "prefix", low=0, high=_MOST_SAMPLES)
require_length = partial(require_count, "length", low=1, high=_MOST_NUMBERS)
require_exponent = partial(require_number, "exponent", low=0.0, high=100.0)


def iid(count: int, seed: int) -> Order:
    """All samples in random order.

    >>> iid(5, seed=1).tolist()
    [4, 0, 1, 2, 3]
    """
    return _rng(seed).permutation(require_count("count", count, 0, _MOST_SAMPLES))


def dirichlet(labels: ArrayLike, gamma: float, seed: int, *, batch: int = 128, slots: int | None = None) -> Order:
    """Classes unevenly spread over time (StatA's protocol): a smaller `gamma` gives fewer classes at a time.

    The stream is cut into slots. For each class, Dirichlet(γ, …, γ) draws the share of its samples that goes into each
    slot, in the order of the dataset. Inside a slot samples are shuffled. Batches may straddle slots.

    The paper uses γ = 0.1, 0.01 and 0.001. The batch size decides only the number of slots: the `slot_count` of the
    classes that occur, unless `slots` is given. Less than two batches of samples make one slot, which is an i.i.d.
    stream.
    """
    members = _by_class(labels)
    require_gamma(gamma)
    if slots is None:
        slots = slot_count(sum(map(len, members)), len(members), batch)
    slots = require_count("slots", slots, 1, _MOST_NUMBERS // len(members))
    rng = _rng(seed)
    shares = rng.dirichlet(np.full(slots, float(gamma)), size=len(members))
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
    batch = require_count("batch", batch, 1, _MOST_SAMPLES)
    whole_batches = require_count("samples", samples, 0, _MOST_SAMPLES) // batch
    return max(1, min(whole_batches, require_count("classes", classes, 0, _MOST_SAMPLES)))


def separate(labels: ArrayLike, seed: int) -> Order:
    """One class after the other, classes and the samples of each in random order."""
    rng = _rng(seed)
    members = _by_class(labels)
    return np.concatenate([rng.permutation(members[row]) for row in rng.permutation(len(members))])


def poisoned(
    order: Order, labels: ArrayLike, probabilities: ArrayLike, *, prefix: int | None, confidence: float = 0.8
) -> Order:
    """The same order, but confident errors of zero-shot (probability above `confidence`) come first.

    `probabilities` are zero-shot's, one row per sample. The first `prefix` such samples are moved to the front; None
    moves all.
    """
    given = plain_tensor("probabilities", probabilities, InvalidParameter).double().cpu().numpy()
    classes = _whole_numbers(labels)
    if given.ndim != 2 or not given.size or len(given) != len(classes):
        raise InvalidParameter(
            f"probabilities must have a row for each of the {classes.size} labels, got shape {given.shape}"
        )
    order = require_order(order, len(given))
    prefix = None if prefix is None else require_prefix(prefix)
    confidence = require_number("confidence", confidence, 0.0, 1.0)
    misleading = (given.max(axis=1) > confidence) & (given.argmax(axis=1) != classes)
    first = np.flatnonzero(misleading[order])[:prefix]
    return np.concatenate([order[first], np.delete(order, first)])


def rare(labels: ArrayLike, share: float, seed: int, *, length: int = 400) -> Order:
    """One class nearly always: a random class has this chance at each position, the others the rest in equal parts."""
    members, rng, share = _by_class(labels, 2), _rng(seed), require_share(share)
    shares = np.full(len(members), (1 - share) / (len(members) - 1))
    shares[rng.integers(len(members))] = share
    return _taken(members, rng.choice(len(members), require_length(length), p=shares), rng)


def bursts(labels: ArrayLike, seed: int, *, length: int = 400) -> Order:
    """Stretches of 20 to 59 samples of one random class, and after each 2 to 5 samples of one of the others."""
    members, rng, length = _by_class(labels, 2), _rng(seed), require_length(length)
    common, rounds = rng.integers(len(members)), -(-length // (_STRETCH[0] + _BURST[0]))
    others = (common + rng.integers(1, len(members), rounds)) % len(members)
    classes = np.stack([np.full(rounds, common), others], axis=1)
    lengths = np.stack([rng.integers(*_STRETCH, rounds), rng.integers(*_BURST, rounds)], axis=1)
    return _taken(members, np.repeat(classes.ravel(), lengths.ravel())[:length], rng)


def absent(labels: ArrayLike, share: float, seed: int, *, classes: int, length: int | None = None) -> Order:
    """Most classes never: the samples of random classes, a share of those listed but at least two, in random order.

    `classes` is how many are listed; those without samples are not among the random ones. A `length` cuts the stream.
    """
    members, rng = _by_class(labels, 2), _rng(seed)
    listed = require_count("classes", classes, len(members), _MOST_SAMPLES)
    wanted = max(2, int(round(listed * require_share(share), 9)))  # 0.29·100 is 28.999…
    present = rng.choice(len(members), min(wanted, len(members)), replace=False)
    order = rng.permutation(np.sort(np.concatenate([members[row] for row in present])))
    return order if length is None else order[: require_length(length)]


def zipf(labels: ArrayLike, exponent: float, seed: int, *, length: int | None = None) -> Order:
    """Frequencies by a power law: each position is of the class of rank r with a chance in proportion to r^−exponent.

    The ranking is random; with exponent 0 all classes are equally likely. The usual length is the number of samples.
    """
    members, rng = _by_class(labels), _rng(seed)
    length = sum(map(len, members)) if length is None else length
    weights = np.arange(1.0, len(members) + 1) ** -require_exponent(exponent)
    ranking = rng.permutation(len(members))
    ranks = rng.choice(len(members), require_length(length), p=weights / weights.sum())
    return _taken(members, ranking[ranks], rng)


def kept(count: int, size: int, *, drop_last: bool) -> int:
    """How many of `count` samples are seen in batches of a size."""
    count, size = require_count("count", count, 0, _MOST_SAMPLES), require_count("size", size, 1, _MOST_SAMPLES)
    return count - count % size if require_switch("drop_last", drop_last) else count


def require_order(order: object, count: int) -> Order:
    """The order, checked to be a list of sample numbers below `count`."""
    numbers = _whole_numbers(order)
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < count:
        raise InvalidParameter(f"an order of {count} samples has numbers from 0 to {count - 1}")
    return numbers


def require_gamma(gamma: object) -> None:
    """Refuse a value that is not a parameter of a Dirichlet distribution."""
    if not 0 < plain_number(gamma) <= _LARGEST_GAMMA:
        allowed = f"a number above 0 and up to {_LARGEST_GAMMA:g}"
        raise InvalidParameter(f"gamma must be {allowed}, not {shown(gamma)}; separate(...) is its limit at 0")


def require_share(share: object) -> float:
    """The share as a float, if it is above 0 and below 1."""
    number = plain_number(share)
    if not 0 < number < 1:
        raise InvalidParameter(f"share must be a number above 0 and below 1, not {shown(share)}")
    return number


def _taken(members: list[Order], classes: NDArray[np.integer], rng: np.random.Generator) -> Order:
    """A sample for each position of the stream, whose classes are given."""
    order, sizes = np.empty(len(classes), np.int64), np.bincount(classes, minlength=len(members))
    places = np.split(np.argsort(classes, kind="stable"), np.cumsum(sizes)[:-1])
    for own, at in zip(members, places, strict=True):
        order[at] = np.resize(rng.permutation(own), len(at))
    return order


def _by_class(labels: ArrayLike, least: int = 1) -> list[Order]:
    """The sample numbers of each class that occurs, classes ascending, samples in the order of the dataset."""
    given = _whole_numbers(labels)
    if not given.size:
        raise InvalidParameter("there must be one whole number per sample, but there is no sample")
    _, sizes = np.unique(given, return_counts=True)
    if len(sizes) < least:
        raise InvalidParameter(f"this stream needs samples of {least} classes or more, but only one class has any")
    return np.split(np.argsort(given, kind="stable"), np.cumsum(sizes)[:-1])


def _whole_numbers(given: object) -> NDArray[np.int64]:
    tensor = plain_tensor("a list of whole numbers", given, InvalidParameter).cpu()
    whole = not tensor.is_floating_point() and tensor.dtype != torch.bool
    if tensor.ndim != 1 or (tensor.numel() and not whole):
        raise InvalidParameter(
            f"there must be one whole number per sample, got {tensor.dtype} of shape {tuple(tensor.shape)}; "
            "without labels only the i.i.d. order can be made"
        )
    return tensor.numpy().astype(np.int64)


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(require_count("seed", seed, 0, 2**128))
