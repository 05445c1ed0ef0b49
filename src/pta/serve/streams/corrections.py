"""Corrections: brings the states of streams to the labels that were written, beside streams that go on learning."""

import logging
from functools import partial
from threading import Event

from pta.serve.journal.journal import JournalLike
from pta.serve.requests import Refused
from pta.serve.streams.answering import StreamState
from pta.serve.streams.history import STATELESS, History, waiting
from pta.serve.streams.live_stream import LiveStream
from pta.serve.streams.past import Past
from pta.serve.streams.pipeline import Pipeline
from pta.serve.streams.stage import errors_told_to, one_thread
from pta.serve.streams.stream_set import StreamSet

_log = logging.getLogger("pta.serve")
_PAUSE = 0.2  # seconds without a new label before a replay begins, so that a file of labels is one replay,
_MOST_PAUSES = 25  # but not longer than these, where labels never end


class Corrections:
    """One thread: labels that wait are one replay. What has not come to its end is replayed at the next start."""

    def __init__(self, journal: JournalLike, pipeline: Pipeline, streams: StreamSet) -> None:
        self._journal, self._pipeline, self._streams = journal, pipeline, streams
        self._ended = Event()
        self._thread = one_thread("corrections")

    def begin(self, stream: LiveStream) -> None:
        """Bring a stream to its labels, unless that is being done."""
        self._streams.keep(stream)
        self._thread.submit(self._follow, stream).add_done_callback(lambda _: self._streams.done(stream))

    def close(self) -> None:
        """End, also in the middle of a replay."""
        self._ended.set()
        self._thread.shutdown()

    def _follow(self, stream: LiveStream) -> None:
        with errors_told_to(partial(_log.error, "labels of stream %s wait for the next start: %s", stream.name)):
            while stream.waiting:
                for _ in range(_MOST_PAUSES):
                    count = len(stream.waiting)
                    if self._ended.wait(_PAUSE) or stream.gone:
                        return
                    if len(stream.waiting) == count:
                        break
                if not self._bring_to_labels(stream):
                    return

    def _bring_to_labels(self, stream: LiveStream) -> bool:
        """Replay the labels that wait, and swap the state in, unless other operations have changed it; False to end."""
        past = stream.past
        assert past is not None  # as a label was written
        with stream.lock:
            known, history, sequence = len(stream.operations), stream.history, stream.state.sequence
            is_needed = history.fingerprint(sequence) != stream.applied.fingerprint(sequence)
        stream.replayed = 0, past.count_replayed(history) if is_needed else 0

        def tell(read: int) -> None:
            if self._ended.is_set() or stream.gone:
                raise _Ended
            done, of = stream.replayed
            stream.replayed = done + read, max(of, done + read)
            stream.version += 1

        try:
            made = past.nearly_now(history, tell) if is_needed else None
        except _Ended:
            return False
        with stream.changing:
            is_current = all(row.kind in STATELESS for row in stream.operations[known:])
            if is_current and stream.waiting and not self._ended.is_set():
                self._swap(stream, past, stream.operations[known - 1].sequence, made)
        return True

    def _swap(self, stream: LiveStream, past: Past, until: int, made: StreamState | None) -> None:
        """Write that the labels up to a row are learned, with the state that was made if it had to be another one."""

        def write() -> None:
            if stream.gone:
                raise Refused(f"stream {stream.name} was deleted", 404)
            argument = {"until": until, "samples": stream.replayed[0]}
            row = self._journal.operate(stream.number, "corrected", argument)
            with stream.lock:
                if made is not None:
                    operations = [*stream.operations, row]
                    past.advance(made, History.of(operations, lifted=waiting(operations)), row.sequence)
                    stream.state = made
                stream.add_operation(row)
                stream.state.sequence = row.sequence

        self._pipeline.between(write)


class _Ended(Exception):
    """The service ends, or the stream is deleted."""
