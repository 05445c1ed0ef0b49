"""A region of a camera: a stream with a classifier, a confirmed answer and a state of its own."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from pta.core.samples import Samples
from pta.door.video import Frame, VideoAddress
from pta.errors import StateMismatch
from pta.run.classifier import Classifier
from pta.run.saved_stream import Progress, StreamRecord, read_record
from pta.run.watch.change import AnswerChange, RegionName
from pta.run.watch.confirm import Confirm, Confirmation
from pta.run.watch.rows import RowPlace

_TIMES_AS_LONG = 20  # as a save took, the next one waits at least


@dataclass
class Course:
    """How far the stream of a region has come, as its state keeps it beside what was learned."""

    source: str  # the address of its camera
    confirm: Confirm
    frames: int = 0
    last: tuple[int, float] = (0, -1.0)  # of the last frame: how often time stamps had jumped back, and its time
    changes: int = 0
    gap: float | None = None  # seconds that were lost since the last change
    newest: AnswerChange | None = None
    rows: RowPlace | None = None  # the end of the rows when it was saved
    waiting: dict[str, list[AnswerChange]] = field(default_factory=dict)  # what each action had not delivered then

    @classmethod
    def unpacked(cls, kept: Mapping[str, Any], needs: Confirmation) -> Self:
        """From what a state keeps."""
        newest, rows, (jumps, at) = kept["newest"], kept["rows"], kept["last"]
        numbers = (kept["frames"], jumps, kept["changes"], at, kept["gap"] or 0)
        if not isinstance(kept["source"], str) or not all(isinstance(one, int | float) for one in numbers):
            raise TypeError("not the course of a region")
        more = {
            "confirm": Confirm.unpacked(needs, kept["confirm"]),
            "last": (jumps, at),
            "newest": None if newest is None else AnswerChange.from_dict(newest),
            "rows": None if rows is None else RowPlace(**rows),
            "waiting": {name: list(map(AnswerChange.from_dict, changes)) for name, changes in kept["waiting"].items()},
        }
        return cls(**{**kept, **more})

    def packed(self) -> dict[str, Any]:
        """What a state keeps."""
        return {**asdict(self), "confirm": self.confirm.packed()}


class WatchedRegion:
    """Answers the pictures of a region, learns from them, and finds changes of the confirmed answer."""

    def __init__(
        self, name: RegionName, address: VideoAddress, classifier: Classifier, needs: Confirmation, state: Path | None
    ) -> None:
        self.name, self.classifier, self._state, self._is_live = name, classifier, state, address.is_live
        self.course = Course(address.shown, Confirm(needs))
        self._is_new, self._is_same_file, self._due, self._saved = True, True, 0.0, -1
        self._written = self.changes = 0  # number of the last row, and changes that were found here
        self._progress = Progress()
        if state is not None and state.exists():
            classifier.load(state)
            self._go_on(read_record(state), needs, state)
        self._progress.made_by("", classifier.encoder.runtime)

    def _go_on(self, record: StreamRecord | None, needs: Confirmation, state: Path) -> None:
        if record is not None:
            self._progress = Progress.going_on(record)
        if record is None or record.watch is None:  # of another command: what it has learned is used
            return
        source = self.course.source
        try:
            self.course = Course.unpacked(record.watch, needs)
        except (TypeError, KeyError, ValueError, AttributeError):
            raise StateMismatch(f"{state}: its record of the region is damaged") from None
        self._is_same_file = self.course.source == source
        if not self._is_same_file:
            self.course.source, self.course.last, self.course.gap = source, (0, -1.0), None
            self.course.confirm.begin_again()

    @property
    def is_due(self) -> bool:
        """Whether something is new, and it is time to save it."""
        return self._state is not None and self._saved != self.course.frames and time.monotonic() >= self._due

    @property
    def begins_at(self) -> float:
        """From which time of a file frames are needed."""
        jumps, at = self.course.last
        return 0.0 if jumps or self._is_live else max(0.0, at)

    def note_written(self, number: int) -> None:
        """A row that came after the state was saved: a file gives it again, while a camera goes on with new numbers."""
        if self._is_live or not self._is_same_file:
            self.course.changes = max(self.course.changes, number)
        else:
            self._written = max(self._written, number)

    def is_next(self, frame: Frame) -> bool:
        """Whether a frame comes after those that were answered; a file begins a little earlier after a stop."""
        return self._is_live or (frame.jumps, frame.time) > self.course.last

    def answer(self, frames: Sequence[Frame], samples: Samples) -> list[tuple[AnswerChange, Frame]]:
        """Answer at least one frame and learn from it; the frames with which the answer changes."""
        columns = self.classifier.answers(samples, learn=True, top=len(self.classifier.classes)).columns
        changes = []
        for row, frame in enumerate(frames):
            self._note(frame)
            ranks = zip(columns.labels, columns.probabilities, strict=True)
            probabilities = {labels[row]: chances[row] for labels, chances in ranks}
            previous = self.course.confirm.label
            label = self.course.confirm.add(probabilities)
            if label is not None:
                self.course.changes, self.changes = self.course.changes + 1, self.changes + 1
                at = _shown(frame.time, is_live=self._is_live)
                probability, number, gap = round(probabilities[label], 6), self.course.changes, self.course.gap
                change = AnswerChange(at, *self.name, label, probability, previous, number, gap)
                self.course.newest, self.course.gap = change, None
                changes.append((change, frame))
        return changes

    def _note(self, frame: Frame) -> None:
        """Count a frame; equal answers before and after a gap do not confirm each other."""
        gap, course = frame.gap, self.course
        if self._is_new and self._is_live and course.frames and course.last[1] >= 0:
            gap = max(0.0, frame.time - course.last[1])
        if gap is not None:
            course.gap = round((course.gap or 0.0) + gap, 3)
            course.confirm.begin_again()
        self._is_new = False
        course.frames, course.last = course.frames + 1, (frame.jumps, frame.time)

    def save(self, rows: RowPlace | None, waiting: Mapping[str, Sequence[AnswerChange]], every: float) -> None:
        """Save what was learned, and the course; it is due again after so many seconds, or later if saving is slow.

        `rows` is the end of the rows, which have all changes but those that are waiting.
        """
        if self._state is None:
            return
        began = time.monotonic()
        if self.course.changes >= self._written:  # else rows of later changes stand before that place
            self.course.rows = rows
        for name, changes in waiting.items():  # what waits for an action that there is not now is kept
            self.course.waiting[name] = [change for change in changes if change.place == self.name]
        key = f"{self.course.source}@{self.course.last[1]:.3f}"
        made_by = self._progress.decoder, self._progress.runtime
        record = StreamRecord(self.course.frames, key, "", None, *made_by, watch=self.course.packed())
        try:
            self.classifier.save(self._state, stream=asdict(record))
            self._saved = self.course.frames
        finally:
            now = time.monotonic()
            self._due = now + max(every, _TIMES_AS_LONG * (now - began))


def _shown(seconds: float, *, is_live: bool) -> str:
    """The time of a frame: seconds in a file, or UTC.

    >>> _shown(12.5, is_live=False), _shown(1.5, is_live=True)
    ('12.500', '1970-01-01T00:00:01.500+00:00')
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds") if is_live else f"{seconds:.3f}"
