"""Parts of a stream, such as its quarters and its classes: how two methods did there, and what they confused."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pta.core.labels import Labels
from pta.measure.difference import Difference
from pta.measure.stream_run import StreamRun


@dataclass(frozen=True)
class StreamPart:
    """How two methods did on a part of a stream."""

    name: str
    count: int  # answers
    score: Difference  # of the second method to the first


@dataclass(frozen=True)
class Confusion:
    """How often the samples of one class are answered by another."""

    truth: int
    answer: int
    before: int  # by the first method
    after: int  # by the second

    @property
    def change(self) -> int:
        """How much more often the second method does so."""
        return self.after - self.before


def quarters(before: StreamRun, after: StreamRun) -> list[StreamPart]:
    """The quarters of the stream; of fewer than four samples, each of them."""
    found = [positions for positions in np.array_split(np.arange(len(before.order)), 4) if len(positions)]
    return [_part(f"{at[0] + 1:,} to {at[-1] + 1:,}", at, before, after) for at in found]


def by_class(before: StreamRun, after: StreamRun, names: Sequence[str], most: int = 40) -> list[StreamPart]:
    """The classes that occur, by how many right answers they gained; of more than `most`, the middle ones as one part.

    The number of answers decides and not the share: one answer to the only sample of a class says little.
    """
    labels = _labels(before)
    old, new = (run.predictions == labels for run in (before, after))
    gained, counts = np.bincount(labels, new * 1.0 - old, len(names)), np.bincount(labels, minlength=len(names))
    ranked = np.lexsort((-gained / counts.clip(1), -gained))  # of equal numbers, the largest share first
    ranked, end = ranked[counts[ranked] > 0], most // 2
    first, others, last = np.split(ranked, [end, max(end, len(ranked) - end)])
    groups = [(names[c], labels == c) for c in (*first, *last)]
    if len(others):
        groups.insert(end, (f"{len(others):,} other classes", np.isin(labels, others)))
    return [_part(name, np.flatnonzero(own), before, after) for name, own in groups]


def confusions(before: StreamRun, after: StreamRun) -> list[Confusion]:
    """All pairs of a true class and a wrong answer that occur."""
    labels = _labels(before)
    wrong = [np.column_stack([labels, run.predictions])[labels != run.predictions] for run in (before, after)]
    pairs, number = np.unique(np.concatenate(wrong), axis=0, return_inverse=True)
    counts = [np.bincount(side, minlength=len(pairs)) for side in np.split(number.ravel(), [len(wrong[0])])]
    return [Confusion(*row) for row in np.column_stack([pairs, *counts]).tolist()]


def _part(name: str, positions: NDArray[np.intp], before: StreamRun, after: StreamRun) -> StreamPart:
    labels = _labels(before)[positions]
    score = Difference.between([before.at(positions, labels)], [after.at(positions, labels)])
    return StreamPart(name, len(positions), score)


def _labels(run: StreamRun) -> Labels:
    assert run.labels is not None
    return run.labels
