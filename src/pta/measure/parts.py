"""Parts of a stream, such as its quarters and its classes: how two methods did there, and what they confused."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pta.measure.difference import Difference
from pta.measure.stream_run import StreamRun


@dataclass(frozen=True)
class Part:
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


def quarters(before: StreamRun, after: StreamRun) -> list[Part]:
    """The quarters of the stream; of fewer than four samples, each of them."""
    found = [positions for positions in np.array_split(np.arange(len(before.order)), 4) if len(positions)]
    return [_part(f"{at[0] + 1:,} to {at[-1] + 1:,}", at, before, after) for at in found]


def by_class(before: StreamRun, after: StreamRun, names: Sequence[str], most: int = 40) -> list[Part]:
    """The classes that occur, by how many right answers they gained; of more than `most`, the middle ones as one part.

    The number of answers decides and not the share: one answer to the only sample of a class says little.
    """
    assert before.labels is not None and before.correct is not None and after.correct is not None
    labels = before.labels
    gained = np.bincount(labels, after.correct * 1.0 - before.correct, len(names))
    ranked = np.argsort(-gained, kind="stable")
    ranked = ranked[np.isin(ranked, labels)]
    first, others, last = [*ranked], ranked[:0], ranked[:0]
    if len(ranked) > most:
        first, others, last = np.split(ranked, [most // 2, len(ranked) - most // 2])
    named = [[_part(names[c], np.flatnonzero(labels == c), before, after) for c in side] for side in (first, last)]
    if not len(others):
        return named[0]
    rest = _part(f"{len(others):,} other classes", np.flatnonzero(np.isin(labels, others)), before, after)
    return [*named[0], rest, *named[1]]


def confusions(before: StreamRun, after: StreamRun) -> list[Confusion]:
    """All pairs of a true class and a wrong answer that occur."""
    wrong = [_wrong_answers(run) for run in (before, after)]
    pairs, number = np.unique(np.concatenate(wrong), axis=0, return_inverse=True)
    sides = np.split(number.ravel(), [len(wrong[0])])
    counts = [np.bincount(side, minlength=len(pairs)) for side in sides]
    rows = np.column_stack([pairs, *counts]).tolist()
    return [Confusion(*row) for row in rows]


def _wrong_answers(run: StreamRun) -> NDArray[np.int64]:
    """The true class and the answer of each wrong answer."""
    assert run.labels is not None
    return np.column_stack([run.labels, run.predictions])[run.labels != run.predictions]


def _part(name: str, positions: NDArray[np.intp], before: StreamRun, after: StreamRun) -> Part:
    assert before.labels is not None
    labels = before.labels[positions]
    score = Difference.between([before.at(positions, labels)], [after.at(positions, labels)])
    return Part(name, len(positions), score)
