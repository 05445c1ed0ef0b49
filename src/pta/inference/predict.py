"""A stream of samples to a stream of answers, learning on the way."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from pta.datasets.sample_set import SampleReference
from pta.errors import PtaError
from pta.inference.answers import Answer
from pta.inference.encoding import OnError, Reading, encode_files, samples_of
from pta.inference.live_classifier import Classifier


@dataclass(frozen=True)
class Predicted:
    """A batch of answers by the keys of their samples, and the samples that could not be read."""

    answers: list[tuple[str, Answer]]
    failures: list[PtaError]


@dataclass
class Tally:
    """What a method has done so far.

    >>> Tally("pta", images=200, changed=9, skipped=1).sentence().split("; ")[1]
    'pta changed the answer for 9 (4.5 %)'
    """

    method: str
    images: int = 0
    changed: int = 0
    skipped: int = 0
    began: float = field(default_factory=time.perf_counter)

    def add(self, part: Predicted) -> None:
        """Count a batch."""
        self.images += len(part.answers)
        self.changed += sum(answer.changed for _, answer in part.answers)
        self.skipped += len(part.failures)

    def sentence(self) -> str:
        """The counts, the speed since the beginning, and how many answers are other than zero-shot's."""
        speed = self.images / max(time.perf_counter() - self.began, 1e-9)
        share = 100 * self.changed / max(self.images, 1)
        skipped = f", {self.skipped:,} skipped" if self.skipped else ""
        return (
            f"images: {self.images:,}{skipped}, {speed:,.1f} a second; "
            f"{self.method} changed the answer for {self.changed:,} ({share:.1f} %)"
        )


def predict_stream(
    classifier: Classifier,
    samples: Iterable[SampleReference],
    reading: Reading | None = None,
    *,
    learn: bool = True,
    top: int = 1,
    on_error: OnError = "stop",
    live: bool = False,
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[Predicted]:
    """Batches of answers in the order of the samples.

    When a batch is given out, the classifier has learned exactly what was given out so far. For `on_error`, `live` and
    `stopping` see `encode_files`.
    """
    encoder, reading = classifier.encoder, classifier.reading(reading or Reading())
    for part in encode_files(encoder, enumerate(samples), reading, on_error=on_error, live=live, stopping=stopping):
        answers = classifier.answer(samples_of(part.tensors), learn=learn, top=top) if part.samples else []
        keys = [sample.key for _, sample in part.samples]
        yield Predicted(list(zip(keys, answers, strict=True)), [error for _, error in part.failures])
