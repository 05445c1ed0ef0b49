"""TouchTable: which classes each of B samples touches, as the journal keeps it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pta.engines.touches import Touches


@dataclass(frozen=True)
class TouchTable:
    """The classes of all samples one after another, and how many belong to each sample.

    >>> table = TouchTable(np.array([2, 0, 1], np.uint8), np.array([7, 4, 7], np.uint32))
    >>> TouchTable.unpacked(table.packed(), 3).of(np.array([False, True, True])).classes
    array([7], dtype=uint32)
    """

    counts: NDArray[np.uint8]  # B
    classes: NDArray[np.uint32]  # E

    @classmethod
    def from_touches(cls, touches: Touches) -> "TouchTable":
        """The touches of a batch."""
        order = np.argsort(touches.samples, kind="stable")
        counts = np.bincount(touches.samples, minlength=touches.count)
        return cls(counts.astype(np.uint8), touches.classes[order].astype(np.uint32))

    @classmethod
    def none(cls, count: int) -> "TouchTable":
        """Of so many samples by a method that has no touches."""
        return cls(np.zeros(count, np.uint8), np.empty(0, np.uint32))

    @classmethod
    def unpacked(cls, content: bytes, count: int) -> "TouchTable":
        """What `packed` gave of so many samples."""
        return cls(np.frombuffer(content, np.uint8, count), np.frombuffer(content[count:], "<u4"))

    def packed(self) -> bytes:
        """B bytes, and 4 bytes per touch."""
        return self.counts.tobytes() + self.classes.astype("<u4").tobytes()

    def of(self, chosen: NDArray[np.bool_] | slice) -> "TouchTable":
        """The touches of some of the samples."""
        if isinstance(chosen, slice):
            ends = np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])
            start, end, _ = chosen.indices(len(self.counts))
            return TouchTable(self.counts[chosen], self.classes[ends[start] : ends[end]])
        return TouchTable(self.counts[chosen], self.classes[np.repeat(chosen, self.counts)])
