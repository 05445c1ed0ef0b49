"""Rows of alarms: found by the thread that learns or by the clock, written by another, shown once they are applied."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Event, Thread

from pta.errors import MachineFailure
from pta.serve.journal.journal import JournalLike
from pta.serve.streams.health import AlarmRow
from pta.serve.streams.live_stream import LiveStream
from pta.serve.streams.stage import errors_told_to
from pta.serve.streams.stream_set import RestingStream, StreamSet


def write_alarms(journal: JournalLike, stream: LiveStream, rows: Iterable[AlarmRow]) -> None:
    """Write rows, which decide from now on what is learned, and let them take effect on answers.

    A journal that is read-only takes none.
    """
    written = []
    with suppress(MachineFailure):
        for row in () if stream.gone else rows:
            written.append(journal.operate(stream.number, "alarm", row))
            stream.reactions[row["kind"]] = row["reaction"]  # `note` if it is over
    with stream.lock:
        for operation in written:
            stream.add_operation(operation)
            stream.state.sequence = operation.sequence


class Clock:
    """A thread that looks at the streams to which no sample comes.

    Args:
        look: called with each stream, several times in so many seconds.
    """

    def __init__(self, seconds: float | None, streams: StreamSet, look: Callable[[LiveStream], object]) -> None:
        self._ended = Event()
        self._thread = Thread(target=self._run, args=(seconds, streams, look), name="clock", daemon=True)
        if seconds is not None:
            self._thread.start()

    def close(self) -> None:
        """End."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self, seconds: float, streams: StreamSet, look: Callable[[LiveStream], object]) -> None:
        while not self._ended.wait(min(1.0, seconds / 4)):
            for stream in streams.loaded():
                if (used := streams.use_if_loaded(stream.name)) is not None:
                    look(used)
                    streams.done(used)
            for resting in streams.resting():
                if resting.silence.is_due and not self._ended.is_set():
                    _load(streams, resting)


def _load(streams: StreamSet, resting: RestingStream) -> None:
    """Load a stream, which is looked at then; one that cannot be loaded is tried again after as long."""
    with errors_told_to(lambda _: resting.silence.begin()), streams.using(resting.name):
        pass
