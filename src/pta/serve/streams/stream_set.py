"""The streams of a service by name. Those in use are loaded; the others rest, and keep little or nothing in memory.

A stream that rests is packed: it keeps what it has learned and measured. If packed streams take too much memory, the
least used keep nothing, because their state is the replay of the journal, and what was measured of them is on the disk.
"""

import ctypes
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import RLock, Thread
from typing import Any

from pta.errors import MachineFailure, PtaError, UnreadableFile
from pta.monitor.silence import Silence
from pta.serve.journal.journal import Journal, JournalLike
from pta.serve.requests import ITS_LETTERS, NAME, Refused
from pta.serve.streams.answering import StreamState
from pta.serve.streams.health import Health
from pta.serve.streams.history import History
from pta.serve.streams.live_stream import LiveStream, StreamStatistics, brief_summary, health_numbers
from pta.serve.streams.past import Past
from pta.serve.streams.served_model import ServedModel, ServiceSettings
from pta.serve.streams.stage import one_thread

_log = logging.getLogger("pta.serve")
DEFAULT = "default"
_PACKS_BETWEEN_TRIMS = 64
_MOST_WAITING = 8  # streams that are to be packed, when one is made


@dataclass
class RestingStream:
    """A stream that is not loaded."""

    name: str
    number: int
    silence: Silence
    packed: LiveStream | None = None  # if it keeps what it has learned in memory
    summary: dict[str, Any] | None = None  # as it was when it was loaded
    health: dict[str, Any] | None = None
    statistics: StreamStatistics | None = None
    version: int = 0


class StreamSet:
    """All streams. One thread loads and packs them, and the one that writes the journal makes and deletes them.

    A stream is loaded from `use` to `done`; after that it may rest.
    """

    def __init__(self, served: ServedModel, journal: JournalLike, settings: ServiceSettings) -> None:
        self._served, self._settings = served, settings
        self._journal, self._durable = journal, journal if isinstance(journal, Journal) else None
        self.on_load: Callable[[LiveStream], object] = lambda stream: None
        self._loaded: dict[str, LiveStream] = {}  # the least used first
        self._resting: dict[str, RestingStream] = {}  # those that rest longest first
        self._packed: dict[str, RestingStream] = {}  # of these, the ones that keep what they have learned in memory
        self._packed_bytes, self._packs = 0, 0  # of all of them, and how often one was packed
        self._lock, self._thread, self._is_closed = RLock(), one_thread("load"), False
        of_one = served.adapters.size + self._health(self._silence()).monitor.size  # about, while it is loaded
        self._most_loaded = max(1, settings.stream_memory // 2 // of_one)
        if (durable := self._durable) is not None:
            numbers = durable.streams()
            known = {str(number) for number in numbers.values()}
            for folder in durable.path.parent.glob("streams/*"):
                if folder.name.isdecimal() and folder.name not in known:
                    shutil.rmtree(folder, ignore_errors=True)  # deleted, and then the process was killed
            for number, row in durable.erased:  # which a killed process did not come to
                Past(served, durable, number).erase(row.argument["first"], row.sequence - 1)
            self._resting = {name: RestingStream(name, number, self._silence()) for name, number in numbers.items()}
        if DEFAULT not in self:
            self.create(DEFAULT)

    def __contains__(self, name: str) -> bool:
        return self._find(name) is not None

    def __len__(self) -> int:
        with self._lock:
            return len(self._loaded) + len(self._resting)

    def _find(self, name: str) -> "LiveStream | RestingStream | None":
        with self._lock:
            return self._loaded.get(name) or self._resting.get(name)

    @property
    def in_memory(self) -> int:
        """How many can be used without a replay."""
        with self._lock:
            return len(self._loaded) + len(self._packed)

    def loaded(self) -> list[LiveStream]:
        """Those that are in use, or were until now."""
        with self._lock:
            return list(self._loaded.values())

    def resting(self) -> list[RestingStream]:
        """The others."""
        with self._lock:
            return list(self._resting.values())

    def number(self, name: str) -> int | None:
        """The number of a stream in the journal, if there is one of this name."""
        found = self._find(name)
        return None if found is None else found.number

    def version(self, name: str) -> int:
        """A number that changes with every group and operation of a stream."""
        found = self._find(name)
        if found is None:
            raise _no_stream(name)
        return found.version

    def require_usable(self, name: str) -> None:
        """Refuse a name that is not a stream and may not become one."""
        require_name(name)
        if name not in self and len(self) > self._settings.auto_create:
            raise _no_stream(name)

    # -- use --------------------------------------------------------------------------------------------------------

    @contextmanager
    def using(self, name: str) -> Iterator[LiveStream]:
        """A stream, which is loaded meanwhile, or why there is none."""
        require_name(name)
        stream = self.use_if_loaded(name) or self._thread.submit(self._load, name).result()
        try:
            yield stream
        finally:
            self.done(stream)

    def use_if_loaded(self, name: str) -> LiveStream | None:
        """A stream until `done`, unless it rests or there is none."""
        with self._lock:
            stream = self._loaded.get(name)
            if stream is not None:
                stream.users += 1
                self._loaded[name] = self._loaded.pop(name)
            return stream

    def load(self, name: str, then: Callable[["Future[LiveStream]"], object]) -> None:
        """Load a stream to be used until `done`, and say so."""
        self._thread.submit(self._load, name).add_done_callback(then)

    def keep(self, stream: LiveStream) -> None:
        """Use a stream that is in use once more."""
        with self._lock:
            stream.users += 1

    def done(self, stream: LiveStream) -> None:
        """It is not used any more by one who used it."""
        with self._lock:
            stream.users -= 1
            if not stream.users and len(self._loaded) > self._most_loaded and not self._is_closed:
                self._thread.submit(self._make_room)

    def _load(self, name: str) -> LiveStream:
        if (stream := self.use_if_loaded(name)) is not None:
            return stream
        resting = self._resting.get(name)
        if resting is None:
            raise _no_stream(name)
        self._make_room(for_one=True)
        try:
            stream = self._unpacked(resting)
        except PtaError as error:
            _log.error("stream %s cannot be loaded: %s", name, error)
            raise Refused(f"stream {name} cannot be loaded: {error}", 503) from None
        with self._lock:
            del self._resting[name]
            self._loaded[name] = stream
            stream.users = 1
        try:
            self.on_load(stream)
        except BaseException:
            self.done(stream)
            raise
        return stream

    def _unpacked(self, resting: RestingStream) -> LiveStream:
        stream = resting.packed
        if stream is None:
            assert self._durable is not None  # as without a journal streams stay in memory
            past = Past(self._served, self._durable, resting.number)
            past.snapshots.remove_unfinished()
            stream = _recovered(past, resting.name, self._health(resting.silence), resting.statistics)
            stream.version = resting.version
        else:
            self._forget(resting)
            stream.unpack(self._served.adapters)
        return stream

    # -- rest -------------------------------------------------------------------------------------------------------

    def _make_room(self, *, for_one: bool = False) -> None:
        """Let the least used streams rest while too many are loaded, or would be with one more."""
        while len(self._loaded) + for_one > self._most_loaded:
            with self._lock:
                stream = next((one for one in self._loaded.values() if not one.users), None)
                if stream is None:
                    return
                resting = RestingStream(stream.name, stream.number, stream.health.silence, stream)
                resting.summary, resting.health = brief_summary(stream), health_numbers(stream)
                resting.statistics, resting.version = stream.statistics, stream.version
                del self._loaded[stream.name]
                self._resting[stream.name] = resting
            self._pack(resting)

    def _pack(self, resting: RestingStream) -> None:
        """Pack a stream; forget those that rest longest while all take too much memory."""
        assert resting.packed is not None
        self._packed_bytes += resting.packed.pack(self._served.adapters)
        self._packed[resting.name] = resting
        self._packs += 1
        if self._packs % _PACKS_BETWEEN_TRIMS == 0:
            Thread(target=_trim_memory, name="trim", daemon=True).start()  # which takes long if there is much
        most = self._settings.stream_memory // 2
        for other in list(self._packed.values()) if self._durable is not None and self._packed_bytes > most else ():
            assert other.packed is not None
            if other.packed.keep_measured():
                self._forget(other)
                other.packed = None
                if self._packed_bytes <= most:
                    break

    def _forget(self, resting: RestingStream) -> None:
        """It is not packed any more."""
        assert resting.packed is not None
        self._packed_bytes -= resting.packed.size
        del self._packed[resting.name]

    def finish_loading(self) -> None:
        """Wait until the streams are loaded that were asked for."""
        self._thread.submit(lambda: None).result()

    def close(self) -> None:
        """Load and pack no more."""
        self._is_closed = True
        self._thread.shutdown()

    # -- made and deleted -------------------------------------------------------------------------------------------

    def create(self, name: str) -> None:
        """Make a stream, unless it is there."""
        require_name(name)
        if name in self:
            return
        if len(self._loaded) > self._most_loaded + _MOST_WAITING:
            self._thread.submit(self._make_room).result()
        try:
            number = self._journal.create(name)
        except (UnreadableFile, MachineFailure) as error:
            raise Refused(f"stream {name} was not made: {error}", 503) from None
        state = StreamState.fresh(self._served)
        state.sequence = self._journal.last(number)[0]  # of a deleted stream of this name
        past = None if self._durable is None else Past(self._served, self._durable, number)
        with self._lock:
            self._loaded[name] = LiveStream(name, number, state, self._health(self._silence()), past=past)

    def delete(self, stream: LiveStream) -> None:
        """Remove the rows and files of a stream; the default one is there again, empty."""
        if stream.gone:
            raise Refused(f"stream {stream.name} was deleted", 404)
        if self._journal.read_only is not None:
            raise Refused(f"nothing was changed: the journal is read-only: {self._journal.read_only}", 503)
        with self._lock:
            stream.gone = True
            del self._loaded[stream.name]
        try:
            self._journal.delete(stream.number)
        finally:
            if self._durable is not None and stream.name in self._durable.streams():
                with self._lock:
                    stream.gone = False
                    self._loaded[stream.name] = stream
            else:
                if stream.past is not None:
                    shutil.rmtree(stream.past.folder, ignore_errors=True)
                if stream.name == DEFAULT and self._journal.read_only is None:
                    self.create(DEFAULT)

    def _health(self, silence: Silence) -> Health:
        return Health(self._served, self._settings, silence)

    def _silence(self) -> Silence:
        return Silence(self._settings.silent_after)

    # -- summaries --------------------------------------------------------------------------------------------------

    def summaries(self) -> list[dict[str, Any]]:
        """A line about each, in the order in which they were made."""
        with self._lock:
            loaded, resting = self.loaded(), self.resting()
        lines = {one.number: self._brief(one) for one in resting}
        lines |= {one.number: line for one in loaded if (line := self._look_at(one, brief_summary, self._brief))}
        return [line for _, line in sorted(lines.items())]

    def _look_at(
        self,
        loaded: LiveStream,
        look: Callable[[LiveStream], dict[str, Any]],
        otherwise: Callable[[RestingStream], dict[str, Any]],
    ) -> dict[str, Any] | None:
        """What a stream shows that was loaded a moment ago, or that rests since then."""
        if (stream := self.use_if_loaded(loaded.name)) is None:
            resting = self._resting.get(loaded.name)
            return None if resting is None else otherwise(resting)
        try:
            return look(stream)
        finally:
            self.done(stream)

    def measured(self) -> list[dict[str, Any]]:
        """What monitors say of streams; of those that rest, as it was when they were loaded."""
        with self._lock:
            loaded, resting = self.loaded(), self.resting()

        def both(stream: LiveStream) -> dict[str, Any]:
            return brief_summary(stream) | health_numbers(stream)

        def before(one: RestingStream) -> dict[str, Any]:
            return {**(one.summary or {}), **one.health} if one.health else {}

        lines = [*(self._look_at(one, both, before) for one in loaded), *map(before, resting)]
        return [line for line in lines if line]

    def _brief(self, resting: RestingStream) -> dict[str, Any]:
        """As it was when it was loaded, or what its rows say."""
        if resting.summary is None:
            assert self._durable is not None  # as without a journal all were loaded
            journal, number = self._durable, resting.number
            operations, (sequence, time) = journal.operations(number), journal.last(number)
            history = History.of(operations)
            line = {"name": resting.name, "sequence": sequence, "time": time, "position": None, "answered": 0}
            if not operations and not journal.oldest(number)[0]:
                line["position"] = journal.samples(number)
            else:
                with suppress(PtaError, KeyError, ValueError):  # of a damaged file, which is told when it is loaded
                    line["position"] = Past(self._served, journal, number).count_in_force(history)
            resting.summary = line | {"frozen": history.frozen, "answers": history.answers}
        return resting.summary


def _recovered(past: Past, name: str, health: Health, statistics: StreamStatistics | None) -> LiveStream:
    """The newest snapshot that agrees, and the rows after it."""
    last, when = past.journal.last(past.number)
    operations = past.journal.operations(past.number)
    state, read = past.replayed(History.of(operations), last)
    stream = LiveStream(name, past.number, state, health, operations, past, statistics)
    stream.time = when
    if stream.waiting:
        with suppress(MachineFailure):  # then nothing more is learned, either
            stream.add_operation(past.journal.operate(past.number, "corrected", {"until": last, "samples": read}))
            state.sequence += 1
    return stream


def _trim_memory() -> None:
    """Give memory back to the system that malloc keeps, in gaps between what packed streams keep."""
    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


def _no_stream(name: str) -> Refused:
    return Refused(f"no stream is called {name}; PUT /streams/{name} makes one", 404)


def require_name(name: str) -> None:
    """Refuse a name that no stream can have."""
    if not re.fullmatch(NAME, name):
        raise Refused(f"a stream's name has {ITS_LETTERS}")
