"""From columns of numbers to replies."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pta.serve.journal.rows import Found
from pta.serve.requests import Reply
from pta.serve.streams.admission import Job
from pta.serve.streams.answering import Answered


class Replies:
    """Makes replies with the names of the classes."""

    def __init__(self, class_names: Sequence[str]) -> None:
        self._names = class_names

    def first(self, job: Job, answered: Answered, rows: slice) -> Reply:
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
            learned=job.sequences is not None,
            repeated=False,
            reason=job.reason,
            labels=self._named(answered.labels[rows]),
            zero_shot_labels=self._named(scored.labels[rows]),
            probabilities=answered.probabilities[rows],
            zero_shot_probabilities=scored.probabilities[rows],
            entropies=answered.entropies[rows],
            sequences=np.full(len(job), -1) if job.sequences is None else job.sequences,
            top_labels=top_labels,
            top_probabilities=top_probabilities,
            logits=logits.float().numpy() if request.logits else None,
        )

    def repeated(self, job: Job, found: Found, answers: NDArray[np.void]) -> Reply:
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
