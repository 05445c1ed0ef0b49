"""Which sources gave which classes how much weight: since the start, and within the window.

A sample counts for the class that zero-shot names, with its probability as weight.
"""

from collections import defaultdict
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pta.monitor.alarms import SOURCE_EXCESS, SOURCE_SHARE, SOURCE_WEIGHT
from pta.monitor.memory import MOST_SOURCES, Memory

_EVEN = 4.0  # the weight with which even shares count in a source's share of other classes

SourceAndClass = tuple[str, int]


def column_of(memory: Memory, name: str) -> int:
    """The column of a source; within a block there may be too many, after the column of the others."""
    if name not in memory.sources:
        memory.sources.append(name)
    place = memory.sources.index(name)
    return place + (place >= MOST_SOURCES)


def drop_smallest(memory: Memory) -> None:
    """Of the source with the least weight and those that came beyond the 32nd, keep the one with most samples lately.

    That is done after a block: within one, which sources are known would depend on the sizes of batches.
    """
    latest, recent = memory.pending[:, 2], memory.recent[:, 0]
    if len(memory.sources) > MOST_SOURCES:
        column = int(memory.weights[:, :MOST_SOURCES].sum(axis=0).argmin())
        counts = np.bincount(latest, minlength=len(memory.sources) + 1)[: len(memory.sources) + 1]
        place = MOST_SOURCES + 1 + int(counts[MOST_SOURCES + 1 :].argmax())
        if counts[place] > counts[column] + (recent == column).sum():
            memory.weights[:, MOST_SOURCES] += memory.weights[:, column]
            memory.weights[:, column] = 0
            recent[recent == column] = latest[latest == column] = MOST_SOURCES
            latest[latest == place] = column
            memory.sources[column] = memory.sources[place - 1]
        del memory.sources[MOST_SOURCES:]
    latest.clip(max=MOST_SOURCES, out=latest)


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
    for (column, label), weight in zip(keys, totals, strict=True):
        of_class[label] += weight
        of_source[column] += weight
    found, least, whole = dict[SourceAndClass, float](), SOURCE_WEIGHT * len(sources), sum(totals)
    for (column, label), weight in zip(keys, totals, strict=True):
        total = of_class[label]
        elsewhere = (of_source[column] - weight + _EVEN / len(of_source)) / (whole - total + _EVEN)
        by_chance = elsewhere * total + SOURCE_EXCESS * sqrt(elsewhere * (1 - elsewhere) * total)
        if column < len(memory.sources[:MOST_SOURCES]) and weight >= max(least, SOURCE_SHARE * total, by_chance):
            found[memory.sources[column], label] = weight / total
    return found


def learned_weights(memory: Memory, since: NDArray[np.float64]) -> tuple[dict[SourceAndClass, float], dict[int, float]]:
    """The weight that was learned in the window and since, by source and class, and by class."""
    rows = np.concatenate([memory.recent, since])
    own, of_class = dict[SourceAndClass, float](), dict[int, float]()
    for (column, label), weight in zip(*_summed(rows[(rows[:, 0] >= 0) & (rows[:, 3] > 0)]), strict=True):
        of_class[label] = of_class.get(label, 0.0) + weight
        if column < len(memory.sources[:MOST_SOURCES]):
            own[memory.sources[column], label] = weight
    return own, of_class


def _summed(rows: NDArray[np.float64]) -> tuple[list[tuple[int, int]], list[float]]:
    """The weight of each source and class in rows of `recent`."""
    pairs = rows[:, 0] + (MOST_SOURCES + 1) * rows[:, 1]
    keys, places = np.unique(pairs.astype(np.int64), return_inverse=True)
    found = [(key % (MOST_SOURCES + 1), key // (MOST_SOURCES + 1)) for key in keys.tolist()]
    return found, np.bincount(places, rows[:, 2], len(keys)).tolist()


def described(memory: Memory, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """The named sources with their share of the learned weight of each class, the largest first."""
    of_class = memory.weights.sum(axis=1)
    found = []
    for column, source in enumerate(memory.sources[:MOST_SOURCES]):
        own = memory.weights[:, column]
        shares = {names[label]: float(own[label] / of_class[label]) for label in np.flatnonzero(own)}
        found.append({"name": source, "weight": float(own.sum()), "shares": shares})
    return sorted(found, key=lambda source: -source["weight"])
