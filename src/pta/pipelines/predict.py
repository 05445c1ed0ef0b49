"""A stream of pictures to a stream of answers, learning on the way."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from pta.errors import PtaError, UnreadableImage
from pta.pipelines.answers import Answer
from pta.pipelines.classifier import Classifier
from pta.pipelines.encoding import ImageReference, Reading, encode_files


@dataclass(frozen=True)
class Predicted:
    """A batch of answers by the keys of their images, and the images that could not be read."""

    answers: list[tuple[str, Answer]]
    failures: list[PtaError]


def predict_stream(
    classifier: Classifier,
    images: Iterable[ImageReference],
    reading: Reading | None = None,
    *,
    learn: bool = True,
    top: int = 1,
    on_error: Literal["stop", "skip"] = "stop",
    live: bool = False,
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[Predicted]:
    """Batches of answers in the order of the images.

    With `on_error="stop"`, everything before an image that cannot be read is answered, then its error is raised.
    When a batch is given out, the classifier has learnt exactly what was given out so far. For `live` and `stopping`
    see `pta.pipelines.feed`.
    """
    for part in encode_files(classifier.encoder, enumerate(images), reading or Reading(), live=live, stopping=stopping):
        stop = part.failures[0] if part.failures and on_error == "stop" else None
        good = [row for row, (number, _) in enumerate(part.images) if stop is None or number < stop[0]]
        answers = classifier.answer(part.features[good], learn=learn, top=top)
        keys = [part.images[row][1].key for row in good]
        skipped = [] if stop else [error for _, error in part.failures]
        yield Predicted(list(zip(keys, answers, strict=True)), skipped)
        if stop:
            raise UnreadableImage(f"{stop[1]}; --on-error skip goes on without it")
