"""What goes into a journal and comes out of it, and NoJournal, which keeps nothing.

Sequence numbers belong to a stream and start at 1.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ANSWER = np.dtype(
    [
        ("label", "<i4"),
        ("zero_shot_label", "<i4"),
        ("probability", "<f4"),
        ("zero_shot_probability", "<f4"),
        ("entropy", "<f4"),
        ("zero_shot_entropy", "<f4"),
    ]
)
"""What is kept of an answer: 24 bytes per sample. Labels are class numbers."""
Answers = NDArray[np.void]
"""An array of `ANSWER`."""


class NewRequest(NamedTuple):
    """A request to write: one id, and one row per learned sample. All are learned together or not at all."""

    stream: int
    id_hash: bytes  # 16 bytes
    digest: bytes  # 16 bytes
    source: str | None
    features: NDArray[np.float16]  # B×d
    touches: Sequence[bytes]  # one per sample, as the caller packs them
    learned: NDArray[np.bool_] | None = None  # which samples of the request these are; None: all of them


class StoredAnswers(NamedTuple):
    """The answers of a group that is written: for each of its streams an array of `ANSWER`, in order of sequence."""

    group: int
    answers: Mapping[int, Answers]


class Committed(NamedTuple):
    """A group that is on the disk. `firsts` has the first sequence number of every request, in the order given."""

    group: int
    time: float
    firsts: tuple[int, ...]


class Found(NamedTuple):
    """A request that is in the journal; without answers where the process ended before it wrote them."""

    digest: bytes
    time: float
    sequences: NDArray[np.int64]
    answers: Answers | None
    places: NDArray[np.int64]  # of these samples in the request, which may have others that were not learned


class GroupRows(NamedTuple):
    """The rows of one stream in one group: the batch that it learned at once. Groups are numbered in order of time."""

    group: int
    time: float
    sequences: NDArray[np.int64]
    sources: tuple[str | None, ...]
    features: NDArray[np.float16]  # B×d
    touches: tuple[bytes, ...]


class AnsweredRows(NamedTuple):
    """The rows of a batch that are there, without their features."""

    first: int  # sequence number of the batch, be its sample there or erased
    time: float
    sequences: NDArray[np.int64]
    sources: tuple[str | None, ...]
    id_hashes: tuple[bytes, ...]  # of their requests
    places: tuple[int, ...]  # in their requests
    answers: Answers | None  # of the whole batch; None where they are not written


class BatchSpan(NamedTuple):
    """The sequence numbers that one stream has in one group, be their rows there or erased."""

    group: int
    first: int
    last: int


class OperationRow(NamedTuple):
    """A row that is not a sample: what an operation of `pta.serve.operations` does, or that labels are learned."""

    sequence: int
    time: float
    kind: str
    argument: Mapping[str, Any]


class NoJournal:
    """Counts rows as a journal does, and writes none."""

    is_durable = False
    read_only: str | None = None

    def __init__(self) -> None:
        self._group = 0
        self._last: dict[int, int] = {}

    def create(self, name: str) -> int:
        """A number for a new stream."""
        number = len(self._last) + 1
        self._last[number] = 0
        return number

    def last(self, stream: int) -> tuple[int, float]:
        """Sequence number of the last row of a stream, and the time."""
        return self._last[stream], time.time()

    def find(self, stream: int, id_hash: bytes) -> None:
        """Nothing is found."""

    def commit(self, requests: Sequence[NewRequest], answers: StoredAnswers | None = None) -> Committed:
        """Number the rows of a group."""
        self._group += 1
        firsts = tuple(self._next(request.stream, len(request.features)) for request in requests)
        return Committed(self._group, time.time(), firsts)

    def operate(self, stream: int, kind: str, argument: Mapping[str, Any]) -> OperationRow:
        """Number an operation."""
        return OperationRow(self._next(stream, 1), time.time(), kind, argument)

    def delete(self, stream: int) -> None:
        """There is nothing to erase."""

    def close(self) -> None:
        """There is nothing to close."""

    def _next(self, stream: int, count: int) -> int:
        first = self._last[stream] + 1
        self._last[stream] += count
        return first
