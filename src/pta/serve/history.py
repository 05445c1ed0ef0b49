"""Which rows of a stream are in force: what resets, rewinds, un-learning, imports and undo mean."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from pta.serve.journal_rows import Operation


class History:
    """What the operations of a stream leave in force."""

    events: tuple[Operation, ...]
    in_force: tuple[Operation, ...]
    undoable: Operation | None
    frozen: bool

    @classmethod
    def of(cls, operations: Iterable[Operation]) -> "History":
        raise NotImplementedError

    def excludes(self, sequence: int, source: str | None) -> bool:
        raise NotImplementedError

    def mask(self, sequences: NDArray[np.int64], sources: Sequence[str | None]) -> NDArray[np.bool_]:
        raise NotImplementedError

    def fingerprint(self, until: int) -> str:
        raise NotImplementedError
