"""LastAnswers: the answers of the last groups, which the next transactions write."""

from collections import deque
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pta.serve.journal.rows import ANSWER, StoredAnswers

_NONE: NDArray[np.void] = np.empty(0, ANSWER)


class LastAnswers:
    """Threads that learn add the answers of a group, the writing thread takes them, and a repeated id finds them."""

    def __init__(self) -> None:
        self._groups: deque[tuple[int, dict[int, tuple[int, NDArray[np.void]]]]] = deque()

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, group: int, answers: Mapping[int, tuple[int, NDArray[np.void]]]) -> None:
        """For each stream of a group its first row and its answers, in order of sequence."""
        self._groups.append((group, dict(answers)))

    def oldest(self) -> StoredAnswers | None:
        """What is to be written next."""
        if not self._groups:
            return None
        group, streams = self._groups[0]
        return StoredAnswers(group, {stream: answers for stream, (_, answers) in list(streams.items())})  # see `forget`

    def written(self, answers: StoredAnswers | None) -> None:
        """These, which were the oldest, are in the journal."""
        if answers is not None:
            self._groups.popleft()

    def find(self, stream: int, sequences: NDArray[np.int64]) -> NDArray[np.void] | None:
        """The answers of the rows of a request."""
        for _, streams in list(self._groups):
            first, answers = streams.get(stream, (0, _NONE))
            start = int(sequences[0]) - first
            if 0 <= start < len(answers):
                return answers[start : start + len(sequences)]
        return None

    def forget(self, stream: int) -> None:
        """The stream is deleted; another thread than the writing one calls it."""
        for _, streams in list(self._groups):
            streams.pop(stream, None)
