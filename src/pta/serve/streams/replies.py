"""From columns of numbers to replies, and the answers of the last groups, which the next transactions write."""

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pta.serve.journal.rows import ANSWER, Found, StoredAnswers
from pta.serve.requests import Reply
from pta.serve.streams.answering import Answered
from pta.serve.streams.pending import PendingRequest


class Replies:
    """Makes replies with the names of the classes."""

    def __init__(self, class_names: Sequence[str]) -> None:
        self._names = class_names

    def first(self, job: PendingRequest, answered: Answered, rows: slice) -> Reply:
        """The reply to a request that has some of the rows of a batch."""
        request, scored, logits = job.request, answered.scored, answered.logits[rows]
        top_labels, top_probabilities = None, None
        if request.top:
            best = logits.topk(min(request.top, len(self._names)), dim=1).indices.numpy()
            top_labels = [self._named(row) for row in best]
            top_probabilities = np.take_along_axis(answered.chances[rows], best, axis=1).astype(np.float32)
        return Reply(
            id=job.id,
            stream=request.stream,
            learned=job.first is not None,
            repeated=False,
            reason=job.reason,
            labels=self._named(answered.labels[rows]),
            zero_shot_labels=self._named(scored.labels[rows]),
            probabilities=answered.probabilities[rows],
            zero_shot_probabilities=scored.probabilities[rows],
            entropies=answered.entropies[rows],
            sequences=job.sequences,
            top_labels=top_labels,
            top_probabilities=top_probabilities,
            logits=logits.float().numpy() if request.logits else None,
        )

    def repeated(self, job: PendingRequest, found: Found, answers: NDArray[np.void]) -> Reply:
        """The reply that an id was given first, as far as it is stored."""
        return Reply(
            id=job.id,
            stream=job.request.stream,
            learned=True,
            repeated=True,
            reason=None,
            labels=self._named(answers["label"]),
            zero_shot_labels=self._named(answers["zero_shot_label"]),
            probabilities=answers["probability"],
            zero_shot_probabilities=answers["zero_shot_probability"],
            entropies=answers["entropy"],
            sequences=found.sequences,
        )

    def _named(self, labels: NDArray[np.int64]) -> list[str]:
        return [self._names[label] for label in labels.tolist()]


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
