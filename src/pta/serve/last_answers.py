"""LastAnswers: the answers of the last groups, which the next transactions write."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pta.serve.journal_rows import ANSWER, StoredAnswers

_NONE: NDArray[np.void] = np.empty(0, ANSWER)


class LastAnswers:
    """The learning thread adds the answers of a group, the writing thread takes them, and a repeated id finds them."""

    def __init__(self) -> None:
        self._groups: dict[int, dict[int, tuple[int, NDArray[np.void]]]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, group: int, answers: Mapping[int, tuple[int, NDArray[np.void]]]) -> None:
        """For each stream of a group its first row and its answers, in order of sequence."""
        self._groups[group] = dict(answers)

    def oldest(self) -> StoredAnswers | None:
        """What is to be written next."""
        for group, streams in self._groups.items():
            return StoredAnswers(group, {stream: answers for stream, (_, answers) in streams.items()})
        return None

    def written(self, answers: StoredAnswers | None) -> None:
        """These are in the journal."""
        if answers is not None:
            del self._groups[answers.group]

    def find(self, stream: int, sequences: NDArray[np.int64]) -> NDArray[np.void] | None:
        """The answers of the rows of a request."""
        for streams in list(self._groups.values()):
            first, answers = streams.get(stream, (0, _NONE))
            start = int(sequences[0]) - first
            if 0 <= start < len(answers):
                return answers[start : start + len(sequences)]
        return None

    def forget(self, stream: int) -> None:
        """The stream is deleted."""
        for streams in self._groups.values():
            streams.pop(stream, None)
