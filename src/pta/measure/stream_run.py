"""One method over one stream: predictions in stream order, accuracy, and the time it took."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pta.core.labels import Labels
from pta.core.samples import Samples
from pta.measure.metrics import accuracy
from pta.methods.adapter import Adapter

_BY_POSITION = ("order", "predictions", "confidences", "raw_confidences")
_ROWS_AT_ONCE = 1024  # of float64 probabilities


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Let torch compute on one thread meanwhile.

    The tensors of a stream are small. On a busy machine several threads would spend most of their time waiting for each
    other, which takes processor time and would be measured as the speed of the methods.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class StreamRun:
    """The results of a method on a stream."""

    method: str
    parameters: dict[str, Any]  # every parameter it had
    order: NDArray[np.int64]  # the sample number at each position of the stream
    predictions: NDArray[np.int64]  # the predicted class at each position
    confidences: NDArray[np.float32]  # its probability
    raw_confidences: NDArray[np.float32]  # its probability without the method's `logit_factor`
    labels: Labels | None  # the true class at each position, if known
    seconds: float  # spent in the method's steps
    state_bytes: int  # the memory of what it had learned at the end
    remarks: list[str]  # for the user

    @property
    def settings(self) -> str:
        """The parameters as a page shows them."""
        return ", ".join(f"{name} = {value}" for name, value in self.parameters.items())

    @property
    def correct(self) -> NDArray[np.bool_] | None:
        """Whether each prediction is correct, if known."""
        return None if self.labels is None else self.predictions == self.labels

    @property
    def right(self) -> NDArray[np.bool_]:
        """The same for a run with labels."""
        assert self.correct is not None
        return self.correct

    @property
    def accuracy(self) -> float | None:
        """Percentage of correct predictions over the whole stream, if known."""
        return None if self.correct is None else accuracy(self.correct)

    def at(self, positions: NDArray[np.intp], labels: Labels) -> "StreamRun":
        """The results at some positions of the stream, with the true classes there and their share of the time."""
        told = {name: getattr(self, name)[positions] for name in _BY_POSITION}
        return replace(self, **told, labels=labels, seconds=self.seconds * len(positions) / len(self.order))


def run_stream(
    adapter: Adapter,
    samples: Samples,
    labels: Labels | None,
    order: NDArray[np.int64],
    *,
    batch: int = 256,
    learn: bool = True,
    lookahead: bool = False,
    told: Labels | None = None,
    preview: NDArray[np.int64] | None = None,
    on_batch: Callable[[NDArray[np.int64]], None] | None = None,
) -> StreamRun:
    """Stream the samples through the adapter in its current state; `labels` are used only to count.

    Args:
        batch: samples per step; a method whose scope is the whole stream gets it all at once.
        learn: False to answer from the state that the adapter has, without learning.
        lookahead: learn a whole batch before predicting any of it.
        told: labels that are learned, one per sample: a class number, UNKNOWN, or NONE.
        preview: the order of the preview, for a method that needs one before the first step.
        on_batch: called with the predictions of each batch.
    """
    answers, seconds = [], 0.0
    if preview is not None:
        begun = time.perf_counter()
        adapter.preview(samples[torch.from_numpy(preview)])
        seconds += time.perf_counter() - begun
    max_batch = len(order) if adapter.scope == "stream" else batch
    for rows in torch.split(torch.from_numpy(order), max_batch):
        part = samples[rows]
        begun = time.perf_counter()
        if told is not None:
            logits = adapter.step_or_answer(part, told[rows])
        else:
            logits = adapter.step(part) if learn else adapter.predict(part)
        logits = adapter.predict(part) if lookahead else logits
        predicted = logits.argmax(dim=1).cpu()  # when a GPU is done, too
        seconds += time.perf_counter() - begun
        confidences = (_confidences(adapter, logits, raw=raw) for raw in (False, True))
        answers.append((predicted.numpy(), *confidences))
        if on_batch:
            on_batch(answers[-1][0])
    predictions, sure, raw_sure = map(np.concatenate, zip(*answers, strict=True))
    known = None if labels is None else labels[order]
    return StreamRun(
        *(adapter.name, adapter.parameters, order, predictions, sure, raw_sure),
        *(known, seconds, adapter.state_bytes, adapter.remarks()),
    )


def _confidences(adapter: Adapter, logits: Tensor, *, raw: bool) -> NDArray[np.float32]:
    rows = torch.split(logits, _ROWS_AT_ONCE)
    parts = [adapter.probabilities_unchecked(part, raw=raw).amax(dim=1) for part in rows]
    return torch.cat(parts).float().cpu().numpy()
