"""What the service is asked about samples, and what it answers."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

_REST = "[A-Za-z0-9._-]"
NAME = rf"(?:[A-Za-z0-9_-]{_REST}{{0,63}}|\.[A-Za-z0-9_-]{_REST}{{0,62}}|\.\.{_REST}{{1,62}})"
ITS_LETTERS = "1 to 64 letters, digits, dots, hyphens and underscores, and is not . or .."
"""What streams and models can be called: no part of an address that clients and proxies take out of it."""

Learn = Literal["true", "false", "try"]
"""Learned or an error; not learned; learned if possible, else answered with the reason why not."""


@dataclass(frozen=True)
class Request:
    """B samples of a stream, as features or as pictures, which are learned together or not at all."""

    stream: str
    id: str | None  # of the client, up to 128 bytes; None if the service is to make one
    digest: bytes  # 16 bytes, BLAKE2b over dtype, shape and bytes of the inputs, learn and source
    learn: Learn
    source: str | None
    top: int  # how many classes per sample, best first; 0 for none
    logits: bool  # whether to give them, too
    features: NDArray[np.float32] | None = None  # B×d, finite, no zero row
    pictures: tuple[bytes, ...] | None = None

    def __len__(self) -> int:
        return len(self.pictures if self.features is None else self.features)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Reply:
    """The answers to B samples."""

    id: str
    stream: str
    learned: bool
    repeated: bool  # the answer that this id was given first; nothing was learned again
    reason: str | None  # why nothing was learned
    labels: list[str]
    zero_shot_labels: list[str]
    probabilities: NDArray[np.float32]
    zero_shot_probabilities: NDArray[np.float32]
    entropies: NDArray[np.float32]
    sequences: NDArray[np.int64]  # −1 where nothing was learned
    top_labels: list[list[str]] | None = None
    top_probabilities: NDArray[Any] | None = None  # B×top
    logits: NDArray[Any] | None = None  # B×C
