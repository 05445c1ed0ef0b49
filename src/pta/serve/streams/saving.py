"""Saving: snapshots of streams and what was measured of them, and room in the journal."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from pta.errors import PtaError
from pta.serve.journal.journal import Journal
from pta.serve.requests import Refused
from pta.serve.streams.history import History
from pta.serve.streams.live_stream import LiveStream
from pta.serve.streams.past import NewSnapshot, Past, SavedState, agrees
from pta.serve.streams.served_model import ServedModel, ServiceSettings
from pta.serve.streams.stream_set import StreamSet

_log = logging.getLogger("pta.serve")
_LONGEST_REPLAY = 1.0  # seconds of processor time, before a snapshot is due
_GROUPS_BETWEEN_LOOKS = 256  # at the size of the journal
_INTERVAL = 10_000  # samples between two snapshots that are kept, so that a rewind replays no more


class Saving:
    """Writes in a thread of its own, from copies; a stream is in use while it is saved.

    Args:
        between: does something in the thread that writes the journal, and waits for it.
    """

    def __init__(
        self,
        served: ServedModel,
        settings: ServiceSettings,
        journal: Journal,
        streams: StreamSet,
        between: Callable[[Callable[[], object]], object],
    ) -> None:
        self._adapters, self._settings, self._journal = served.adapters, settings, journal
        self._streams, self._between = streams, between
        self._under_way: set[LiveStream] = set()
        self._may_drop, self._groups = True, 0
        self.written: float | None = None  # when the last snapshot was, by the monotonic clock
        self.thread = ThreadPoolExecutor(1, "snapshots")

    def save_if_due(self, stream: LiveStream) -> None:
        """Begin a snapshot if replaying what was learned since the last one takes long."""
        state, after = stream.state, self._settings.snapshot_samples
        due = state.unsaved_seconds >= _LONGEST_REPLAY if after is None else state.unsaved >= after
        if due and stream not in self._under_way and not stream.gone and self._journal.read_only is None:
            self.save(stream)
        self._groups += 1
        if self._settings.journal_max is not None and (due or self._groups % _GROUPS_BETWEEN_LOOKS == 0):
            self.thread.submit(self._make_room)

    def save(self, stream: LiveStream) -> "Future[None]":
        """Begin a snapshot of a stream that is in use."""
        new = self._copy(stream)
        self._under_way.add(stream)

        def write() -> None:
            try:
                self._write(stream, new)
            finally:
                self._under_way.discard(stream)

        return self._submit(stream, write)

    def _submit(self, stream: LiveStream, write: Callable[[], object]) -> "Future[None]":
        """Have something written of a stream, which stays in use until then."""
        self._streams.keep(stream)

        def write_and_end() -> None:
            try:
                write()
            finally:
                self._streams.done(stream)

        return self.thread.submit(write_and_end)

    def _copy(self, stream: LiveStream) -> NewSnapshot:
        with stream.lock:
            state = stream.state
            fingerprint = stream.applied.fingerprint(state.sequence)
            state.unsaved, state.unsaved_seconds = 0, 0.0
            return NewSnapshot.of(state, stream.time, fingerprint, self._adapters)

    def _write(self, stream: LiveStream, new: NewSnapshot) -> None:
        assert stream.past is not None  # as there is a journal
        try:
            if not stream.gone and stream.failed is None:
                stream.past.snapshots.save(new, self._settings.snapshot_samples or _INTERVAL)
                stream.keep_measured()
                self.written = time.monotonic()
        except (PtaError, OSError) as error:
            _log.warning("no snapshot of stream %s: %s", stream.name, error)

    def save_measured(self, stream: LiveStream) -> None:
        """Have what was measured of a stream that is in use saved soon."""
        self._submit(stream, stream.keep_measured)

    def stop_dropping(self) -> None:
        """Drop nothing more, because the thread that writes the journal ends."""
        self._may_drop = False
        self.thread.submit(lambda: None).result()

    def close(self, until: float) -> None:
        """Save what was measured of the streams in memory, up to a time of the monotonic clock, and end."""
        self.thread.shutdown()
        packed = [one.packed for one in self._streams.resting() if one.packed is not None]
        for stream in [*packed, *self._streams.loaded()][::-1]:  # the last used first
            if time.monotonic() < until:
                stream.keep_measured()

    def _make_room(self) -> None:
        """Drop whole snapshot intervals of the journal, oldest first, while it is too large."""
        largest = self._settings.journal_max
        while largest is not None and self._may_drop and self._journal.size() > largest:
            name = self._journal.oldest_stream()
            if name is None or not self._drop_first(name):
                return

    def _drop_first(self, name: str) -> bool:
        """Drop the rows of a stream up to its first snapshot, which is made if there is none; whether some went."""
        with suppress(Refused), self._streams.using(name) as stream:
            past = stream.past
            assert past is not None  # as there is a journal
            if not self._agreeing(stream, past):
                self._write(stream, self._copy(stream))
            if agreeing := self._agreeing(stream, past):
                before = past.oldest[0]
                self._between(partial(self._drop, past, agreeing[0]))
                past.snapshots.remove(0, past.oldest[0] - 1)
                return past.oldest[0] > before  # else a group reaches over the snapshot, or it no longer agrees
        return False

    def _agreeing(self, stream: LiveStream, past: Past) -> list[SavedState]:
        """The snapshots after the rows that were dropped that agree with the operations on a stream."""
        with stream.lock:
            history, dropped = stream.history, past.oldest[0]
            return [one for one in past.snapshots.saved if one.sequence > dropped and agrees(one, history)]

    def _drop(self, past: Past, saved: SavedState) -> None:
        """Drop the rows up to a snapshot, if it agrees with the operations that are written by now."""
        if agrees(saved, History.of(self._journal.operations(past.number))):
            self._journal.drop_until(past.number, saved.sequence)
