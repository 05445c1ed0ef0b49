"""Streams whose samples come together and are learned separately: the regions of a video."""

from collections.abc import Callable, Sequence

import torch

from pta.core.labels import Labels
from pta.core.samples import Samples
from pta.run.classifier import AnswerBatch
from pta.run.watched import WatchedStream


class SeparateStreams:
    """Answers as a `WatchedStream` does; the samples of each source are learned in a stream of its own.

    Args:
        begin: makes the stream of a source whose first samples have come.
    """

    def __init__(self, begin: Callable[[str], WatchedStream]) -> None:
        self._begin, self._streams = begin, dict[str, WatchedStream]()

    @property
    def position(self) -> int:
        """How many samples were counted."""
        return sum(one.position for one in self._streams.values())

    def each(self) -> list[tuple[str, WatchedStream]]:
        """The streams by the names of their sources."""
        return list(self._streams.items())

    def answers(
        self, samples: Samples, *, learn: bool, top: int, labels: Labels | None, sources: Sequence[str]
    ) -> AnswerBatch:
        """The answers for at least one sample."""
        parts = []
        for source in dict.fromkeys(sources):
            if source not in self._streams:
                self._streams[source] = self._begin(source)
            rows = [row for row, one in enumerate(sources) if one == source]
            own, told = samples[torch.tensor(rows)], None if labels is None else labels[rows]
            sources_of_own = [source] * len(rows)
            answers = self._streams[source].answers(own, learn=learn, top=top, labels=told, sources=sources_of_own)
            parts.append((rows, answers))
        return AnswerBatch.joined(parts)

    def flush(self) -> None:
        """Tell all alarms of the samples that were answered."""
        for one in self._streams.values():
            one.flush()
