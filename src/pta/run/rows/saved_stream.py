"""SavedStream: the rows of a stream and the state learned from it, saved consistently."""

import time
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from pta.errors import PtaError
from pta.run.classifier import Classifier
from pta.run.predict import Predicted
from pta.run.rows.row_thread import RowSink
from pta.run.rows.stream_progress import Progress

_TIMES_AS_LONG = 20  # as a save took, the next one waits at least


class SavedStream:
    """Takes the batches of `predict_stream`: writes their rows, and saves the state to a file, if one is given.

    The state is saved when the block begins and when it ends, by an error too, and every `every` seconds between. With
    0 it is saved after each batch; otherwise saving takes at most a twentieth of the time. What the state records
    covers exactly the rows that are on the disk by then, and those that could not be written, which it keeps.
    """

    def __init__(
        self, classifier: Classifier, state: Path | None, rows: RowSink, progress: Progress, every: float
    ) -> None:
        self._classifier, self._state, self._rows, self._progress = classifier, state, rows, progress
        self._every, self._due = every, 0.0
        self._saved: int | None = None  # samples that were taken when the state was saved here

    @property
    def saved_to(self) -> Path | None:
        """The file that holds all that was learned so far, if it does."""
        return self._state if self._saved == self._progress.taken else None

    def __enter__(self) -> Self:
        self._save()
        return self

    def add(self, part: Predicted) -> None:
        """Write the rows of a batch that the classifier has learned."""
        self._progress.add(part.keys)
        self._rows.write(part.answered, part.answers)

    def save_if_due(self) -> None:
        """Save the state if a save is due and something is new."""
        if self._progress.taken != self._saved and time.monotonic() >= self._due:
            self._save()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            return  # told to stop at once
        try:
            if error is None:
                self._rows.finish()
        except PtaError as failure:
            self._save_after(failure)
            raise
        self._save_after(error)

    def _save_after(self, error: BaseException | None) -> None:
        try:
            self._save()
        except PtaError as failure:
            if isinstance(error, PtaError) and str(error) != str(failure):
                raise type(failure)(f"{error}; {failure}") from None
            raise

    def _save(self) -> None:
        if self._state is None:
            return
        began = time.monotonic()
        try:
            record = self._progress.record(self._rows.mark())
            self._classifier.save(self._state, stream=asdict(record))
        except PtaError as error:
            if self._saved is None:
                raise
            lost = self._progress.taken - self._saved
            raise type(error)(f"{error}; the state after the last {lost:,} samples was not saved") from None
        self._saved, now = self._progress.taken, time.monotonic()
        self._due = now + max(self._every, _TIMES_AS_LONG * (now - began)) if self._every else now
