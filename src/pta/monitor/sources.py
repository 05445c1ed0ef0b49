"""Which sources gave which classes how much weight: since the start, and within the window.

A sample counts for the class that zero-shot names, with its probability as weight.
"""

from collections import defaultdict
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pta.monitor.alarms import SOURCE_EXCESS, SOURCE_SHARE, SOURCE_WEIGHT
from pta.monitor.memory import MOST_SOURCES, OTHERS, Memory

_EVEN = 4.0  # the weight with which even shares count in a source's share of other classes

SourceAndClass = tuple[str, int]


def number_of(memory: Memory, name: str) -> int:
    """The number of a source; within a block there may be too many."""
    if name not in memory.sources:
        memory.sources.append(name)
    return memory.sources.index(name) + 1


def drop_smallest(memory: Memory) -> None:
    """Of the source with the least weight and those that came beyond the 32nd, keep the one with most samples lately.

    That is done after a block: within one, which sources are known would depend on the sizes of batches.
    """
    latest, recent = memory.pending[:, 2], memory.recent[:, 0]
    if len(memory.sources) > MOST_SOURCES:
        of_source = np.zeros(MOST_SOURCES)
        of_source[: len(memory.weights) - 1] = memory.weights[1:].sum(axis=1)
        smallest = 1 + int(of_source.argmin())
        counts = np.bincount(latest, minlength=len(memory.sources) + 1)[: len(memory.sources) + 1]
        newest = MOST_SOURCES + 1 + int(counts[MOST_SOURCES + 1 :].argmax())
        if counts[newest] > counts[smallest] + (recent == smallest).sum():
            memory.weights[OTHERS] += memory.weights[smallest : smallest + 1].sum(axis=0)
            memory.weights[smallest : smallest + 1] = 0
            recent[recent == smallest] = latest[latest == smallest] = OTHERS
            latest[latest == newest] = smallest
            memory.sources[smallest - 1] = memory.sources[newest - 1]
        del memory.sources[MOST_SOURCES:]
    latest[latest > MOST_SOURCES] = OTHERS


def count_weights(
    memory: Memory, numbers: NDArray[np.int32], labels: NDArray[np.int64], weights: NDArray[np.float64]
) -> None:
    """Count learned samples, by their sources and classes."""
    missing = int(numbers.max(initial=0)) + 1 - len(memory.weights)
    if missing > 0:
        memory.weights = np.pad(memory.weights, ((0, missing), (0, 0)))
    np.add.at(memory.weights, (numbers, labels), weights)


def flooding(memory: Memory) -> dict[SourceAndClass, float]:
    """The sources that gave most of a class's weight in the window, and much more than by chance, with their share.

    One source alone is not among them: it has nobody to flood.
    """
    sources = memory.recent[:, 0]
    present = sources >= 0
    if (sources[present] == sources[0]).all():
        return {}
    keys, totals = _summed(memory.recent[present])
    of_class, of_source = defaultdict[int, float](float), defaultdict[int, float](float)
    for (source, label), weight in zip(keys, totals, strict=True):
        of_class[label] += weight
        of_source[source] += weight
    found, least, whole = dict[SourceAndClass, float](), SOURCE_WEIGHT * len(sources), sum(totals)
    for (source, label), weight in zip(keys, totals, strict=True):
        total = of_class[label]
        elsewhere = (of_source[source] - weight + _EVEN / len(of_source)) / (whole - total + _EVEN)
        by_chance = elsewhere * total + SOURCE_EXCESS * sqrt(elsewhere * (1 - elsewhere) * total)
        if _is_named(memory, source) and weight >= max(least, SOURCE_SHARE * total, by_chance):
            found[memory.sources[source - 1], label] = weight / total
    return found


def learned_weights(memory: Memory, since: NDArray[np.float64]) -> tuple[dict[SourceAndClass, float], dict[int, float]]:
    """The weight that was learned in the window and since, by source and class, and by class."""
    rows = np.concatenate([memory.recent, since])
    own, of_class = dict[SourceAndClass, float](), dict[int, float]()
    for (source, label), weight in zip(*_summed(rows[(rows[:, 0] >= 0) & (rows[:, 3] > 0)]), strict=True):
        of_class[label] = of_class.get(label, 0.0) + weight
        if _is_named(memory, source):
            own[memory.sources[source - 1], label] = weight
    return own, of_class


def _is_named(memory: Memory, source: int) -> bool:
    return OTHERS < source <= min(len(memory.sources), MOST_SOURCES)


def _summed(rows: NDArray[np.float64]) -> tuple[list[tuple[int, int]], list[float]]:
    """The weight of each source and class in rows of `recent`."""
    pairs = rows[:, 0] + (MOST_SOURCES + 1) * rows[:, 1]
    keys, places = np.unique(pairs.astype(np.int64), return_inverse=True)
    found = [(key % (MOST_SOURCES + 1), key // (MOST_SOURCES + 1)) for key in keys.tolist()]
    return found, np.bincount(places, rows[:, 2], len(keys)).tolist()


def described(memory: Memory, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """The named sources with their share of the learned weight of each class, the largest first."""
    of_class = memory.weights.sum(axis=0)
    found = [{"name": source, "weight": 0.0, "shares": {}} for source in memory.sources[:MOST_SOURCES]]
    for row, own in zip(found, memory.weights[1:], strict=False):
        shares = {names[label]: float(own[label] / of_class[label]) for label in np.flatnonzero(own)}
        row |= {"weight": float(own.sum()), "shares": shares}
    return sorted(found, key=lambda source: -source["weight"])
