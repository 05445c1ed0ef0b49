"""Saving: snapshots of streams while they learn, and room in the journal."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from pta.errors import PtaError
from pta.serve.journal.journal import Journal
from pta.serve.streams.live_stream import LiveStream
from pta.serve.streams.served_model import ServiceSettings
from pta.serve.streams.stream_set import StreamSet

_log = logging.getLogger("pta.serve")
_MANY = 1000  # rows: a second or less of replay


class Saving:
    """Writes snapshots in a thread of its own, from copies; one stream has at most one under way.

    Args:
        write: does something in the thread that writes the journal, and waits for it.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        journal: Journal,
        streams: StreamSet,
        write: Callable[[Callable[[], object]], object],
    ) -> None:
        self._settings, self._journal, self._streams, self._write = settings, journal, streams, write
        self._under_way: set[LiveStream] = set()
        self._may_drop = True
        self.thread = ThreadPoolExecutor(1, "snapshots")
        for stream in streams:
            if stream.since_snapshot > _MANY:  # so that the next start need not replay them again
                self.save(stream)

    def save_if_due(self, stream: LiveStream) -> None:
        """Begin a snapshot if enough was learned, or if anything was and the last one is old."""
        is_old = time.monotonic() - stream.snapshot_taken >= self._settings.snapshot_seconds
        due = stream.since_snapshot >= (1 if is_old else self._settings.snapshot_samples)
        if due and stream not in self._under_way and not stream.gone:
            self.save(stream)
            self.thread.submit(self._make_room)

    def save(self, stream: LiveStream) -> "Future[None]":
        """Begin a snapshot."""
        assert stream.past is not None  # as there is a journal
        self._under_way.add(stream)
        with stream.lock:
            state = stream.state.copy()
            fingerprint, when = stream.history.fingerprint(state.sequence), stream.time
            stream.since_snapshot, stream.snapshot_taken = 0, time.monotonic()
        snapshots = stream.past.snapshots

        def write() -> None:
            try:
                if not stream.gone and stream.failed is None:
                    snapshots.save(state, when, fingerprint, self._settings.snapshot_samples)
            except (PtaError, OSError) as error:
                _log.warning("no snapshot of stream %s: %s", stream.name, error)
            finally:
                self._under_way.discard(stream)

        return self.thread.submit(write)

    def stop_dropping(self) -> None:
        """Drop nothing more, because the thread that writes the journal ends."""
        self._may_drop = False
        self.thread.submit(lambda: None).result()

    def close(self) -> None:
        """Save what was learned since the last snapshots, and end."""
        for stream in self._streams:
            if stream.since_snapshot:
                self.save(stream)
        self.thread.shutdown()

    def _make_room(self) -> None:
        """Drop whole snapshot intervals of the journal, oldest first, while it is too large."""
        largest = self._settings.journal_max
        while largest is not None and self._may_drop and self._journal.size() > largest:
            firsts = []
            for stream in self._streams:
                if (past := stream.past) is not None:
                    with stream.lock:
                        agreeing = past.snapshots.agreeing(stream.history, self._journal.oldest(past.number)[0])
                    firsts += [(agreeing[0].time, agreeing[0].sequence, past)] if agreeing else []
            if not firsts:
                return
            _, sequence, past = min(firsts, key=lambda first: first[:2])
            self._write(partial(self._journal.drop_until, past.number, sequence))
            past.snapshots.remove(0, sequence - 1)
            if self._journal.oldest(past.number)[0] < sequence:
                return  # a group reaches over the snapshot
