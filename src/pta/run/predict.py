"""A stream of samples to a stream of answers, with adaptation."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from pta.core.labels import UNKNOWN, Labels
from pta.data.label_file import as_in_csv
from pta.data.sample_set import SampleReference
from pta.data.sources.video import VideoSample
from pta.errors import PtaError, UserMistake
from pta.run.classifier import AnswerBatch, Classifier
from pta.run.encoding import Encoded, OnError, encode_files, samples_of
from pta.run.gpu.encoder_program import EncoderProgram
from pta.run.reading import Decoding, Reading
from pta.run.watched import SeparateStreams, WatchedStream, sources_of


@dataclass(frozen=True)
class PredictedBatch:
    """A batch of answers by the keys of their samples, and the samples that could not be decoded or read."""

    keys: list[str]  # of all samples of the batch, in order
    answered: list[str]  # those that could be read
    answers: AnswerBatch
    failures: list[PtaError]


_MARKS = {"rejected": "rejected", "held": "not learned", "learned_label": "with a given label"}


@dataclass
class Tally:
    """Counts of a stream so far.

    >>> Tally("pta", samples=200, changed=9, skipped=1).sentence().split("; ")[1]
    'pta changed 9 labels (4.5 %)'
    """

    method: str
    what: str = "images"
    shadow: bool = False  # whether zero-shot's labels are answered
    samples: int = 0
    changed: int = 0  # among the answers that have arrived
    skipped: int = 0
    marked: dict[str, int] = field(default_factory=dict)  # among them, by those columns of `_MARKS` that there are
    began: float = field(default_factory=time.perf_counter)
    _coming: deque[AnswerBatch] = field(default_factory=deque)

    def add(self, part: PredictedBatch) -> str:
        """Count a batch, and return the new sentence."""
        self.samples += len(part.answered)
        self.skipped += len(part.failures)
        self._coming.append(part.answers)
        return self.sentence()

    def sentence(self) -> str:
        """The counts, the throughput so far, and how many labels differ from zero-shot."""
        while self._coming and self._coming[0].arrived:
            held = self._coming.popleft().columns
            self.changed += held.changed
            for name in _MARKS.keys() & held.more.keys():
                self.marked[name] = self.marked.get(name, 0) + sum(map(bool, held.more[name]))
        speed = self.samples / max(time.perf_counter() - self.began, 1e-9)
        share = 100 * self.changed / max(self.samples, 1)
        skipped = f", {self.skipped:,} skipped" if self.skipped else ""
        marked = "".join(f"; {self.marked[name]:,} {what}" for name, what in _MARKS.items() if name in self.marked)
        changed = f"{'would change' if self.shadow else 'changed'} {self.changed:,} labels ({share:.1f} %)"
        return f"{self.what}: {self.samples:,}{skipped}, {speed:,.1f} per second; {self.method} {changed}{marked}"


def predict_stream(
    classifier: Classifier,
    samples: Iterable[SampleReference],
    reading: Reading | None = None,
    decoding: Decoding | None = None,
    *,
    first: int = 0,
    total: int | None = None,
    learn: bool = True,
    top: int = 1,
    labels: Mapping[str, int] | None = None,
    on_error: OnError = "stop",
    live: bool = False,
    stopping: Callable[[], bool] = lambda: False,
    watch: WatchedStream | SeparateStreams | None = None,
) -> Iterator[PredictedBatch]:
    """Batches of answers in the order of the samples; `first` is the number of the first sample.

    `total` is the number of samples if it is known: on a GPU the model is compiled for many. A `decoding` was opened
    for a reading that suits the classifier.

    `labels` are class numbers (or NONE) by the samples' keys as rows have them, to be learned with their samples.

    When a batch is yielded, the classifier has learned exactly the batches yielded so far. For `on_error`, `live` and
    `stopping` see `encode_files`. `watch` counts the samples in a monitor, and lets alarms have their reactions.
    """
    if reading is None or decoding is None:
        reading = classifier.reading(reading or Reading())
    expected = None if total is None else total - first
    program = EncoderProgram(classifier.encoder, reading.encoded_at_once, expected, optimise=reading.compiled)
    parts = encode_files(
        *(program, enumerate(samples, first), reading, decoding),
        on_error=on_error,
        quick_start=classifier.adapter.scope == "sample",  # else answers depend on the size of the first batch
        live=live,
        stopping=stopping,
    )
    return (_predicted(classifier, part, learn, top, labels, watch) for part in parts)


def labels_of(labels: Mapping[str, int], keys: Iterable[str]) -> Labels:
    """The labels of samples by their keys, UNKNOWN for those that have none."""
    return np.array([labels.get(as_in_csv(key), UNKNOWN) for key in keys], np.int64)


def _predicted(
    classifier: Classifier,
    part: Encoded[SampleReference],
    learn: bool,
    top: int,
    labels: Mapping[str, int] | None,
    watch: WatchedStream | SeparateStreams | None,
) -> PredictedBatch:
    frames = [sample for _, sample in part.samples if isinstance(sample, VideoSample)]
    taken, answered = ([sample.key for _, sample in samples] for samples in (part.taken, part.samples))
    if part.samples:
        on_device = part.on_device if classifier.adapter.classifier.anchors.is_cuda else None
        told = None if labels is None else labels_of(labels, answered)
        samples = samples_of(part.tensors, on_device)
        if watch is None:
            answers = classifier.answers(samples, learn=learn, top=top, labels=told)
        else:
            sources = [one.source for one in frames] or sources_of(answered, classifier.classes)
            answers = watch.answers(samples, learn=learn, top=top, labels=told, sources=sources)
    else:
        answers = AnswerBatch(torch.empty(0, 2 * top + 3), ())
    answers.about = {name: [one.about[name] for one in frames] for name in (frames[0].about if frames else ())}
    answers.given_up = _given_up(part)
    return PredictedBatch(taken, answered, answers, [error for _, error in part.failures])


def _given_up(part: Encoded[SampleReference]) -> dict[int, tuple[str, str]]:
    """Samples that could not be read, by their places among the rows: those that cannot be decoded have no row."""
    errors = dict(part.failures)
    rows = [one for one in part.taken if not isinstance(errors.get(one[0]), UserMistake)] if errors else []
    return {place: (sample.key, str(errors[number])) for place, (number, sample) in enumerate(rows) if number in errors}
