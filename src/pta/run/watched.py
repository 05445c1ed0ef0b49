"""Streams of samples that are watched: the answers of a classifier, with the reactions to alarms."""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pta.core.labels import NONE, UNKNOWN, Labels
from pta.core.samples import Samples
from pta.data.label_file import label_texts
from pta.data.prompts import clean_name
from pta.methods import Adapter
from pta.methods.state_file import Monitored
from pta.monitor import Alarm, StreamGuard
from pta.monitor.reactions import may_hold
from pta.monitor.stepping import WatchedPiece, watched_steps
from pta.run.classifier import AnswerBatch, Classifier, answer_numbers


def sources_of(keys: Iterable[str], class_names: Sequence[str]) -> list[str]:
    """The sources of samples by their keys: the folders they are in, but for folders that are named after a class.

    >>> sources_of(["gate/red/1.jpg", "gate/2.jpg", "Red car/3.jpg"], ["red", "red_car"])
    ['gate', 'gate', '.']
    """
    names = _plain(tuple(class_names))
    folders = (PurePosixPath(key).parent for key in keys)
    return [str(folder.parent if clean_name(folder.name).casefold() in names else folder) for folder in folders]


@lru_cache(maxsize=1)
def _plain(class_names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(clean_name(name).casefold() for name in class_names)


class WatchedStream:
    """Answers as `Classifier.answers` does, counts each sample in the monitor, and obeys the guard.

    Args:
        on_alarm: called with each alarm that is raised or over.
        on_block: called with the numbers after each block of samples.
    """

    def __init__(
        self,
        classifier: Classifier,
        guard: StreamGuard,
        on_alarm: Callable[[Alarm], object],
        on_block: Callable[[dict[str, Any]], object] = lambda numbers: None,
    ) -> None:
        self._classifier, self._guard = classifier, guard
        self.monitor = guard.monitor
        self._on_alarm, self._on_block = on_alarm, on_block
        self._has_both = classifier.shadow or "zero-shot" in guard.reactions.values()
        self._shows_held = classifier.reject_holds is not None or may_hold(guard.reactions)
        self.held = 0
        """Samples that a reaction kept from being learned."""

    def answers(
        self, samples: Samples, *, learn: bool, top: int, labels: Labels | None, sources: Sequence[str]
    ) -> AnswerBatch:
        """The answers for at least one sample; labels are numbers, and sources are those of all samples, or none."""
        classifier = self._classifier
        known = classifier.adapter.checked(samples)
        told = np.full(len(known), UNKNOWN, np.int64) if labels is None else labels
        is_low = np.zeros(len(known), np.bool_)
        if classifier.reject_holds is not None and learn:
            is_low = classifier.below_hold(known, labels)
        numbers, held = list[Tensor](), np.zeros(len(known), np.bool_)
        asked = np.where(is_low, NONE, told)
        for piece in watched_steps(classifier.adapter, self._guard, known, asked, sources, learn=learn):
            numbers.append(self._numbers(piece, top))
            held[piece.rows] = ~piece.learned & (told[piece.rows] != NONE) & learn
            self.held += int((held & ~is_low)[piece.rows].sum())
            self._tell(piece.blocks, piece.alarms)
        learned = None if labels is None else label_texts(np.where(held, UNKNOWN, told), classifier.classes)
        return AnswerBatch(
            *(torch.cat(numbers), classifier.classes, classifier.reject_below),
            learned=learned,
            held=held.tolist() if self._shows_held else None,
        )

    @property
    def position(self) -> int:
        """How many samples were counted."""
        return self.monitor.position

    @property
    def adapter(self) -> Adapter:
        """What learns."""
        return self._classifier.adapter

    def each(self) -> list[tuple[str, "WatchedStream"]]:
        """Itself, without a name, as the only stream."""
        return [("", self)]

    def flush(self) -> None:
        """Tell all alarms of the samples that were answered."""
        alarms = self.monitor.flush()
        self._tell(self.monitor.series, alarms)

    def packed(self) -> Monitored:
        """What the monitor keeps after these samples."""
        self.flush()
        return self.monitor.pack()

    def _tell(self, blocks: Iterable[dict[str, Any]], alarms: Iterable[Alarm]) -> None:
        for block in blocks:
            self._on_block(block)
        for alarm in alarms:
            self._on_alarm(alarm)

    def _numbers(self, piece: WatchedPiece, top: int) -> Tensor:
        classifier, chances = self._classifier, piece.probabilities
        if classifier.raw_probability:
            chances = classifier.adapter.probabilities_unchecked(piece.logits, raw=True)
        shadow = classifier.shadow or piece.as_zero_shot
        given = piece.logits, chances, piece.zero_shot, top
        return answer_numbers(*given, shadow=shadow, with_adapted=self._has_both)


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
