"""What goes into the journal and comes out of it. Sequence numbers belong to a stream and start at 1."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class NewRequest:
    """A request to write: one id, and one row per sample. All are learned together or not at all."""

    stream: int
    id_hash: bytes  # 16 bytes
    digest: bytes  # 16 bytes
    source: str | None
    features: NDArray[np.float16]  # B×d
    touches: Sequence[bytes]  # one per sample, as the caller packs them


@dataclass(frozen=True)
class StoredAnswers:
    """The answers of a group that is written: for each of its streams an array of `ANSWER`, in order of sequence."""

    group: int
    answers: Mapping[int, NDArray[np.void]]


@dataclass(frozen=True)
class Committed:
    """A group that is on the disk. `firsts` has the first sequence number of every request, in the order given."""

    group: int
    time: float
    firsts: tuple[int, ...]


@dataclass(frozen=True)
class Found:
    """A request that is in the journal; without answers where the process ended before it wrote them."""

    digest: bytes
    time: float
    sequences: NDArray[np.int64]
    answers: NDArray[np.void] | None


@dataclass(frozen=True)
class GroupRows:
    """The rows of one stream in one group: the batch that it learned at once. Groups are numbered in order of time."""

    group: int
    time: float
    sequences: NDArray[np.int64]
    sources: tuple[str | None, ...]
    features: NDArray[np.float16]  # B×d
    touches: tuple[bytes, ...]


@dataclass(frozen=True)
class BatchSpan:
    """The sequence numbers that one stream has in one group, be their rows there or erased."""

    group: int
    first: int
    last: int


@dataclass(frozen=True)
class OperationRow:
    """A row that is not a sample: reset, rewind, unlearn, import, undo, freeze or thaw."""

    sequence: int
    time: float
    kind: str
    argument: Mapping[str, Any]
