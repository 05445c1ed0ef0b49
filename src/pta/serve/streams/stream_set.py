"""The streams of a service by name: recovered when it starts, and saved while they learn."""

import logging
import re
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from pta.errors import MachineFailure, PtaError, UnreadableFile
from pta.serve.journal.journal import Journal
from pta.serve.journal.rows import JournalLike
from pta.serve.requests import ITS_LETTERS, NAME, Refused
from pta.serve.streams.answering import StreamState
from pta.serve.streams.health import Health
from pta.serve.streams.history import History
from pta.serve.streams.live_stream import LiveStream
from pta.serve.streams.past import Past, SavedState, agrees
from pta.serve.streams.served_model import ServedModel, ServiceSettings

_log = logging.getLogger("pta.serve")
DEFAULT = "default"
_MANY = 1000  # rows: a second or less of replay


class StreamSet:
    """Streams in memory, each the replay of its rows; the thread that writes the journal makes and deletes them."""

    def __init__(
        self, served: ServedModel, journal: JournalLike, durable: Journal | None, settings: ServiceSettings
    ) -> None:
        self._served = served
        self._new_health = partial(Health, served, settings)
        self._journal = journal
        self._durable = durable
        self._auto_create = settings.auto_create
        self.by_name: dict[str, LiveStream] = {}
        self._leaving: set[str] = set()
        if durable is not None:
            numbers = {str(number) for number in durable.streams().values()}
            for folder in durable.path.parent.glob("streams/*"):
                if folder.name.isdecimal() and folder.name not in numbers:  # deleted, and then the process was killed
                    shutil.rmtree(folder, ignore_errors=True)
            for name, number in durable.streams().items():
                self.by_name[name] = _recovered(Past(served, durable, number), name, self._new_health())
        if DEFAULT not in self.by_name:
            self.create(DEFAULT)

    def __iter__(self) -> Iterator[LiveStream]:
        return iter(list(self.by_name.values()))

    def require(self, name: str) -> LiveStream:
        """A stream, or why there is none."""
        require_name(name)
        stream = self.by_name.get(name)
        if stream is None:
            raise Refused(f"no stream is called {name}; PUT /streams/{name} makes one", 404)
        return stream

    def require_usable(self, name: str) -> None:
        """Refuse a name that is not a stream and may not become one."""
        if name not in self.by_name and len(self.by_name) > self._auto_create:
            self.require(name)
        require_name(name)

    def get_or_create(self, name: str) -> LiveStream:
        """A stream, which may come into being on first use."""
        stream = self.by_name.get(name)
        if stream is None:
            self.require_usable(name)
            stream = self.create(name)
        return stream

    def create(self, name: str) -> LiveStream:
        """A stream, made unless it is there."""
        require_name(name)
        if name in self._leaving:
            raise Refused(f"stream {name} is being deleted; try again soon", 409)
        if name not in self.by_name:
            state = StreamState.fresh(self._served)
            number, past = self._made(name)
            state.sequence = self._journal.last(number)[0]  # of a deleted stream of this name
            self.by_name[name] = LiveStream(name, number, state, self._new_health(), past=past)
        return self.by_name[name]

    def _made(self, name: str) -> tuple[int, Past | None]:
        """The row and the folder of a new stream, or neither."""
        made: dict[int, Past | None] = {}

        def make(number: int) -> None:
            made[number] = None
            if self._durable is not None:
                made[number] = Past(self._served, self._durable, number)

        try:
            self._journal.create(name, make)
        except BaseException as error:
            if self._durable is not None:
                for number in made:
                    shutil.rmtree(self._durable.path.parent / "streams" / str(number), ignore_errors=True)
            if isinstance(error, UnreadableFile | MachineFailure):
                raise Refused(f"stream {name} was not made: {error}", 503) from None
            raise
        ((number, past),) = made.items()
        return number, past

    def forget(self, stream: LiveStream) -> None:
        """Let nothing more come to a stream; the default one is there again, empty."""
        if self.by_name.get(stream.name) is not stream:
            raise Refused(f"stream {stream.name} was deleted", 404)
        if self._journal.read_only is not None:
            raise Refused(f"nothing was changed: the journal is read-only: {self._journal.read_only}", 503)
        stream.gone = True
        self._leaving.add(stream.name)
        del self.by_name[stream.name]

    def erase(self, stream: LiveStream) -> None:
        """Remove the rows and files of a stream that was forgotten; if its rows stay, it is there again."""
        try:
            self._journal.delete(stream.number)
        finally:
            self._leaving.remove(stream.name)
            if self._durable is not None and stream.name in self._durable.streams():
                stream.gone = False
                self.by_name[stream.name] = stream
            else:
                if stream.past is not None:
                    shutil.rmtree(stream.past.folder, ignore_errors=True)
                if stream.name == DEFAULT and self._journal.read_only is None:
                    self.create(DEFAULT)


def _recovered(past: Past, name: str, health: Health) -> LiveStream:
    """The newest snapshot that agrees, and the rows after it."""
    last, when = past.journal.last(past.number)
    operations = past.journal.operations(past.number)
    for row in operations:
        if row.argument.get("erase"):  # a killed process may have left them
            past.snapshots.remove(row.argument["first"], row.sequence - 1)
    state, read = past.replayed(History.of(operations), last)
    stream = LiveStream(name, past.number, state, health, operations, past)
    stream.time, stream.since_snapshot = when, read
    if stream.waiting:
        with suppress(MachineFailure):  # then nothing more is learned, either
            stream.add_operation(past.journal.operate(past.number, "corrected", {"until": last, "samples": read}))
            state.sequence += 1
    return stream


def require_name(name: str) -> None:
    """Refuse a name that no stream can have."""
    if not re.fullmatch(NAME, name):
        raise Refused(f"a stream's name has {ITS_LETTERS}")


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
        self._settings = settings
        self._journal = journal
        self._streams = streams
        self._write = write
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
            fingerprint = stream.applied.fingerprint(state.sequence)
            monitor = stream.health.monitor.pack()
            when = stream.time
            stream.since_snapshot = 0
            stream.snapshot_taken = time.monotonic()
        snapshots = stream.past.snapshots

        def write() -> None:
            try:
                if not stream.gone and stream.failed is None:
                    snapshots.save(state, when, fingerprint, self._settings.snapshot_samples, monitor)
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
                        agreeing = past.snapshots.agreeing(stream.history, past.oldest[0])
                    firsts += [(agreeing[0].time, agreeing[0].sequence, past, agreeing[0])] if agreeing else []
            if not firsts:
                return
            _, sequence, past, saved = min(firsts, key=lambda first: first[:2])
            self._write(partial(self._drop, past, saved))
            if past.oldest[0] < sequence:
                return  # a group reaches over the snapshot, or it no longer agrees
            past.snapshots.remove(0, sequence - 1)

    def _drop(self, past: Past, saved: SavedState) -> None:
        """Drop the rows up to a snapshot, if it agrees with the operations that are written by now."""
        if agrees(saved, History.of(self._journal.operations(past.number))):
            self._journal.drop_until(past.number, saved.sequence)
