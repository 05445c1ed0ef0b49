"""Alarms on their way into the journal: found by one thread, written by another, in force when they are applied."""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Event, Thread

from pta.errors import MachineFailure
from pta.serve.journal.rows import JournalLike, OperationRow
from pta.serve.streams.health import AlarmRow
from pta.serve.streams.live_stream import LiveStream
from pta.serve.streams.served_model import ServiceSettings
from pta.serve.streams.stream_set import StreamSet


class AlarmRows:
    """Rows that wait to be written, in the order in which alarms were found.

    Args:
        begin: has `write` called in the thread that writes, then `apply` in the one that learns; waits for neither.
    """

    def __init__(self, journal: JournalLike, begin: Callable[[], None]) -> None:
        self._journal, self._begin = journal, begin
        self._waiting: deque[tuple[LiveStream, AlarmRow]] = deque()

    def add(self, stream: LiveStream, rows: Iterable[AlarmRow]) -> None:
        """Have rows of a stream written; under its lock."""
        before = len(self._waiting)
        self._waiting.extend((stream, row) for row in rows)
        if len(self._waiting) > before:
            self._begin()

    def write(self) -> list[tuple[LiveStream, OperationRow]]:
        """Write what waits; a journal that is read-only takes none."""
        written = []
        with suppress(MachineFailure, IndexError):
            while True:
                stream, row = self._waiting.popleft()
                if not stream.gone:
                    written.append((stream, self._journal.operate(stream.number, "alarm", row)))
        return written

    def apply(self, written: Iterable[tuple[LiveStream, OperationRow]]) -> None:
        """Let what was written take effect."""
        for stream, row in written:
            with stream.lock:
                stream.add_operation(row)
                stream.state.sequence = row.sequence


class Silence:
    """A thread that raises the alarm `silent` of streams that get no sample; the next sample ends it."""

    def __init__(self, settings: ServiceSettings, streams: StreamSet, alarms: AlarmRows) -> None:
        self._settings, self._streams, self._alarms = settings, streams, alarms
        self._ended = Event()
        self._thread = Thread(target=self._run, name="silence", daemon=True)
        if settings.silent_after is not None:
            self._thread.start()

    def close(self) -> None:
        """End."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        seconds = self._settings.silent_after or 0.0
        while not self._ended.wait(min(1.0, seconds / 4)):
            for stream in self._streams:
                with stream.lock:
                    self._alarms.add(stream, stream.health.silence(seconds, self._settings.reactions))
