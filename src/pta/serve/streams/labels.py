"""Labels: what people said of learned samples, as a table by sequence number.

The argument of a label operation has `labels`: for each source ("" for samples without one) the sequence numbers of its
samples and their labels. So the labels of a source can be erased, and it is known which of them concern samples that
are un-learned.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

UNKNOWN, NONE = -1, -2  # as in `pta.core.labels`, but a journal is read without torch

Span = tuple[int, int]
"""Sequence numbers from the first to the last, both included."""


class Labels(NamedTuple):
    """The last label of every sample that has one, by sequence number; without effect on samples that are excluded."""

    sequences: NDArray[np.int64]  # in order
    classes: NDArray[np.int64]  # their labels: numbers of classes, or `NONE`
    has_effect: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        arguments: Iterable[Mapping[str, Any]],
        excluded: Iterable[Span],
        excluded_of: Mapping[str, Iterable[Span]],
    ) -> "Labels":
        """The table after label operations with these arguments, in order, where some samples are excluded."""
        sequences: list[int] = []
        classes: list[int] = []
        of_excluded: list[tuple[slice, Iterable[Span]]] = []
        for argument in arguments:
            for source, (theirs, labels) in argument["labels"].items():
                if source in excluded_of:
                    of_excluded.append((slice(len(sequences), len(sequences) + len(theirs)), excluded_of[source]))
                sequences += theirs
                classes += labels
        if not sequences:
            return NO_LABELS
        numbers = np.array(sequences, np.int64)
        is_excluded = within(numbers, excluded)
        for rows, spans in of_excluded:
            is_excluded[rows] |= within(numbers[rows], spans)
        unique, last = np.unique(numbers[::-1], return_index=True)  # the first from the end
        return cls(unique, np.array(classes, np.int64)[::-1][last], ~is_excluded[::-1][last])

    def __bool__(self) -> bool:
        return bool(len(self.sequences))

    def find(self, sequences: NDArray[np.int64]) -> NDArray[np.int64]:
        """The labels of samples that have an effect, and `UNKNOWN`."""
        if not self:
            return np.full(len(sequences), UNKNOWN)
        at = np.searchsorted(self.sequences, sequences).clip(max=len(self.sequences) - 1)
        return np.where((self.sequences[at] == sequences) & self.has_effect[at], self.classes[at], UNKNOWN)

    def content(self, until: int) -> bytes:
        """The labels of samples up to a sequence number that have an effect."""
        chosen = self.has_effect & (self.sequences <= until)
        return self.sequences[chosen].tobytes() + self.classes[chosen].tobytes()

    def count_changed(self, other: "Labels") -> int:
        """How many samples have another label here than there, or have one only here or there."""
        both, ours, theirs = np.intersect1d(self.sequences, other.sequences, True, return_indices=True)
        same = (self.classes[ours] == other.classes[theirs]).sum()
        return len(self.sequences) + len(other.sequences) - len(both) - int(same)


NO_LABELS = Labels(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, bool))


def label_argument(labels: Mapping[int, tuple[str | None, int]]) -> dict[str, dict[str, tuple[list[int], list[int]]]]:
    """The argument of an operation that gives samples, by sequence number with their sources, these labels.

    >>> label_argument({7: ("door", 2), 5: (None, -2), 8: ("door", 0)})
    {'labels': {'': ([5], [-2]), 'door': ([7, 8], [2, 0])}}
    """
    by_source: dict[str, tuple[list[int], list[int]]] = {}
    for sequence, (source, label) in sorted(labels.items()):
        sequences, classes = by_source.setdefault(source or "", ([], []))
        sequences.append(sequence)
        classes.append(label)
    return {"labels": by_source}


def within(numbers: NDArray[np.int64], spans: Iterable[Span]) -> NDArray[np.bool_]:
    """Which numbers are in one of the spans."""
    mask = np.zeros(len(numbers), bool)
    for first, last in spans:
        mask |= (first <= numbers) & (numbers <= last)
    return mask
