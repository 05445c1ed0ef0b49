"""The rows of a stream and the state learned from it, saved consistently, so that it can be resumed after any stop."""

import hashlib
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from pta.data.sample_set import SampleReference
from pta.errors import PtaError, StateMismatch, UnreadSample
from pta.methods.state_file import Monitored, read_stream
from pta.models import Encoder
from pta.run.classifier import AnswerBatch, Classifier
from pta.run.predict import PredictedBatch
from pta.run.reading import PILLOW
from pta.run.row_file import RowMark

_AND = " and "
Reference = TypeVar("Reference", bound=SampleReference)


@dataclass(frozen=True)
class StreamRecord:
    """A position in a stream, and in the file of its rows."""

    taken: int  # samples before it, answered or skipped
    last: str | None  # key of the last of them
    keys: str  # sha256 of all their keys, in order
    rows: RowMark | None  # where their rows end; None if rows are not kept in a file
    decoder: str = PILLOW  # what decoded them
    runtime: str = Encoder.runtime  # what made their features
    watch: Mapping[str, Any] | None = None  # of `pta watch`: what `Course` packs
    unread: str | None = None  # key of a sample behind `last` that could not be read

    def __post_init__(self) -> None:
        texts = all(isinstance(one, str) for one in (self.keys, self.decoder, self.runtime))
        texts = texts and isinstance(self.last, str | None) and isinstance(self.unread, str | None)
        if not texts or not isinstance(self.taken, int) or not 0 <= self.taken <= sys.maxsize:
            raise TypeError("not a place in a stream")


def read_record(state: Path) -> StreamRecord | None:
    """The record in a state file, if it has one."""
    found = read_stream(state)
    if found is None:
        return None
    try:
        rows = found["rows"]
        return StreamRecord(**{**found, "rows": None if rows is None else RowMark(**rows)})
    except (TypeError, KeyError):
        raise StateMismatch(f"{state}: its record of the stream is damaged") from None


@dataclass
class Progress:
    """How many samples of a stream were taken, and which."""

    decoder: str = ""
    runtime: str = ""
    taken: int = 0
    last: str | None = None
    _keys: Any = field(default_factory=hashlib.sha256)
    unread: str | None = None

    @classmethod
    def going_on(cls, record: StreamRecord) -> "Progress":
        """The progress of a stream whose former samples are not listed again."""
        return cls(record.decoder, record.runtime, record.taken, record.last, hashlib.sha256(record.keys.encode()))

    def made_by(self, decoder: str, runtime: str) -> None:
        """Record what decodes the samples and what makes their features, beside what did so before."""
        self.decoder, self.runtime = _beside(self.decoder, decoder), _beside(self.runtime, runtime)

    def add(self, keys: Iterable[str]) -> None:
        """Count samples that were taken, in order."""
        for key in keys:
            self.taken += 1
            self.last = key
            self.unread = None if key == self.unread else self.unread
            self._keys.update(json.dumps(key).encode() + b"\n")

    def record(self, rows: RowMark | None) -> StreamRecord:
        """The place that the stream has reached, with the end of its rows."""
        keys, made = self._keys.hexdigest(), (self.decoder, self.runtime)
        return StreamRecord(self.taken, self.last, keys, rows, *made, unread=self.unread)


def _beside(names: str, name: str) -> str:
    """The names that are joined, with this one among them."""
    return names if name in names.split(_AND) else _AND.join(filter(None, (names, name)))


def skip_taken(samples: Iterable[Reference], record: StreamRecord, state: Path) -> tuple[Iterator[Reference], Progress]:
    """The samples after those of a record, and how far that is; refused if those before are others than recorded."""
    rest, progress = iter(samples), Progress(record.decoder, record.runtime)
    progress.add(sample.key for sample in islice(rest, record.taken))
    progress.unread = record.unread  # a list may name it before, too
    if progress.record(record.rows) == record:
        return rest, progress
    if progress.taken < record.taken:
        found = f"{state} has seen {record.taken:,} samples, but there are {progress.taken:,}"
    elif progress.last != record.last:
        found = f"{state} has seen {record.last} as sample {record.taken:,}, which now is {progress.last}"
    else:
        found = f"{state} has seen other samples before {record.last}"
    raise StateMismatch(f"{found}; without --resume all samples are predicted, starting from this state")


_BATCHES_AHEAD = 2  # a state keeps their rows if the disk is full


class RowSink(Protocol):
    """Where rows go."""

    def write(self, paths: Sequence[str], answers: AnswerBatch) -> None:
        """Add the rows of a batch."""

    def finish(self) -> None:
        """Write what was not written yet; where there are no rows, at least a header."""

    def mark(self) -> RowMark | None:
        """Where the rows end, once they are safe; None if they cannot be found again."""


@dataclass
class RowThread:
    """Writes rows in order, in a separate thread.

    A failure is raised by the next call that could not do its own work because of it. Rows that come after the failure
    are handed on all the same, so that a `RowFile` can keep them for the state.
    """

    _sink: RowSink
    _thread: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1, "rows"))
    _waiting: deque[Future[None]] = field(default_factory=deque)
    _failure: BaseException | None = None

    def write(self, paths: Sequence[str], answers: AnswerBatch) -> None:
        """Add the rows of a batch soon."""
        self._wait(_BATCHES_AHEAD)
        self._waiting.append(self._thread.submit(self._sink.write, paths, answers))
        self._raise_failure()

    def finish(self) -> None:
        """Wait until all rows are written."""
        self._wait(0)
        self._raise_failure()
        self._sink.finish()

    def mark(self) -> RowMark | None:
        """Where the rows end, once all of them are safe or, in the mark, kept as unwritten."""
        self._wait(0)
        if not isinstance(self._failure, PtaError):
            self._raise_failure()
        return self._sink.mark()

    def close(self) -> None:
        """Write what is left, and end."""
        self._thread.shutdown()

    def _wait(self, most: int) -> None:
        """Wait until at most so many batches are still to be written."""
        while self._waiting and (len(self._waiting) > most or self._waiting[0].done()):
            failure = self._waiting.popleft().exception()
            self._failure = self._failure or failure

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


_TIMES_AS_LONG = 20  # as a save took, the next one waits at least


@dataclass
class SavedStream:
    """Takes the batches of `predict_stream`: writes their rows, and saves the state to a file, if one is given.

    The state is saved when the block begins and when it ends, by an error too, and every `every` seconds between. With
    0 it is saved after each batch; otherwise saving takes at most a twentieth of the time. What the state records
    covers exactly the rows that are on the disk by then, and those that could not be written, which it keeps.
    """

    _classifier: Classifier
    _state: Path | None
    _rows: RowSink
    _progress: Progress
    every: float
    _monitored: Callable[[], Monitored] | None = None
    _due: float = 0.0
    _saved: int | None = None  # samples that were taken when the state was saved here

    @property
    def saved_to(self) -> Path | None:
        """The file that holds all that was learned so far, if it does."""
        return self._state if self._saved == self._progress.taken else None

    def __enter__(self) -> Self:
        self._save()
        return self

    def add(self, part: PredictedBatch) -> None:
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
        if isinstance(error, UnreadSample):
            self._progress.unread = error.key
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
            monitored = None if self._monitored is None else self._monitored()
            self._classifier.save(self._state, stream=asdict(record), monitor=monitored)
        except PtaError as error:
            if self._saved is None:
                raise
            lost = self._progress.taken - self._saved
            raise type(error)(f"{error}; the state after the last {lost:,} samples was not saved") from None
        self._saved, now = self._progress.taken, time.monotonic()
        self._due = now + max(self.every, _TIMES_AS_LONG * (now - began)) if self.every else now
