"""Operating: what changes the history of a stream, prepared beside the running stream and swapped in under one row.

There is one method for each operation of `pta.serve.operations`.
"""

import time as clock
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pta.errors import MachineFailure, UserMistake, nearest
from pta.serve.journal.no_journal import JournalLike
from pta.serve.journal.rows import OperationRow
from pta.serve.open_files import require_free_files
from pta.serve.requests import Refused
from pta.serve.streams.answering import StreamState
from pta.serve.streams.history import History
from pta.serve.streams.live_stream import LiveStream
from pta.serve.streams.past import Past, imported_adapter
from pta.serve.streams.pipeline import Pipeline
from pta.serve.streams.saving import Saving
from pta.serve.streams.served_model import ServedModel
from pta.serve.streams.stream_set import StreamSet

_NOT_WRITTEN_YET = 2**62  # the sequence number of an operation that is being prepared
_NEARLY_THERE = 256  # samples that the learning thread may catch up with
_ROUNDS = 10

Apply = Callable[[LiveStream, OperationRow], None]
Done = dict[str, Any]
"""The stream, the operation, how many samples it concerns, and its row."""


class Operating:
    """One operation at a time per stream. The stream answers and learns meanwhile."""

    def __init__(
        self,
        served: ServedModel,
        journal: JournalLike,
        streams: StreamSet,
        pipeline: Pipeline,
        saving: Saving | None,
    ) -> None:
        self._served, self._journal, self._streams = served, journal, streams
        self._pipeline, self._saving = pipeline, saving

    def operate(self, stream: LiveStream, operation: str, dry_run: bool, argument: Mapping[str, Any]) -> Done:
        """Do it, or with `dry_run` only count the samples it concerns."""
        return getattr(self, f"_{operation}")(stream, dry_run, **argument)

    def _freeze(self, stream: LiveStream, dry_run: bool) -> Done:
        return self._write(stream, "freeze", {}, _keep_state, dry_run)

    def _thaw(self, stream: LiveStream, dry_run: bool) -> Done:
        return self._write(stream, "thaw", {}, _keep_state, dry_run)

    def _reset(self, stream: LiveStream, dry_run: bool, classes: Sequence[str] | None = None) -> Done:
        names = self._served.classifier.class_names
        for name in classes or ():
            if name not in names:
                raise Refused(422, f"no class is called {name!r}; {nearest(name, names)}")
        argument = {} if classes is None else {"classes": [names.index(name) for name in classes]}
        reset = argument.get("classes")
        return self._write(stream, "reset", argument, lambda stream, row: stream.state.reset(reset), dry_run)

    def _import(self, stream: LiveStream, dry_run: bool, content: bytes) -> Done:
        """A state that does not belong here is refused before anything is written."""
        try:
            adapter = imported_adapter(content, self._served)
        except UserMistake as error:
            raise Refused(422, str(error)) from None

        def swap(stream: LiveStream, row: OperationRow) -> None:
            stream.state = StreamState(adapter, np.zeros_like(stream.state.touches), row.sequence)

        kept = {}
        if not dry_run and stream.past is not None:
            try:
                if self._journal.read_only is not None:
                    raise MachineFailure(f"the journal is read-only: {self._journal.read_only}")
                kept = stream.past.keep_import(content)
            except (UserMistake, MachineFailure) as error:
                raise Refused(503, f"nothing was changed: {error}") from None
        return self._write(stream, "import", kept, swap, dry_run)

    def _rewind(
        self, stream: LiveStream, dry_run: bool, sequence: int | None = None, time: float | None = None
    ) -> Done:
        past = _past_of(stream, "rewind")
        to = past.journal.sequence_at(past.number, time or 0.0) if sequence is None else sequence
        last = past.journal.last(past.number)[0]
        if to > last:
            raise Refused(422, f"sequence {to} is not in the journal of {stream.name}, which ends at {last}")
        past.require_kept(to)
        return self._replay(past, stream, "rewind", {"to": to}, dry_run)

    def _unlearn(self, stream: LiveStream, dry_run: bool, source: str, erase: bool = False) -> Done:
        past = _past_of(stream, "unlearn")
        first = past.journal.first(past.number, source)
        if first is None:
            raise Refused(404, f"the journal of stream {stream.name} has no sample of source {source!r}")
        is_erasing = erase and not dry_run
        if is_erasing:
            require_free_files()
        argument = {"source": source, "erase": erase, "first": first}
        done = self._replay(past, stream, "unlearn", argument, dry_run)
        if is_erasing:
            assert self._saving is not None  # as there is a journal
            self._saving.save(stream).result()  # snapshots that learned from the rows go before the rows
            self._saving.thread.submit(past.snapshots.remove, first, done["sequence"] - 1).result()
            self._pipeline.write(lambda: past.journal.erase(past.number, source, done["sequence"]))
        return done

    def _undo(self, stream: LiveStream, dry_run: bool) -> Done:
        past = _past_of(stream, "undo")
        if stream.history.undoable is None:
            raise Refused(409, f"no operation on stream {stream.name} is in force that could be undone")
        return self._replay(past, stream, "undo", {}, dry_run)

    def _delete(self, stream: LiveStream, dry_run: bool) -> Done:
        done = _done(stream, "delete", stream.state.adapter.position)
        if not dry_run:
            require_free_files()
            self._pipeline.write(lambda: self._streams.forget(stream))
            self._pipeline.last_answers.forget(stream.number)
            self._pipeline.write(lambda: self._streams.erase(stream))
        return done

    def _write(self, stream: LiveStream, kind: str, argument: Mapping[str, Any], apply: Apply, dry_run: bool) -> Done:
        """Write the row of an operation and apply it, or only count the samples it concerns."""
        samples = stream.state.adapter.position if kind in ("reset", "import") else 0
        if stream.past is not None:
            samples = stream.past.count_changed(stream.history, _history_after(stream, kind, argument))
        done = _done(stream, kind, samples)
        if dry_run:
            return done

        def write() -> OperationRow:
            if stream.gone:
                raise Refused(404, f"stream {stream.name} was deleted")
            try:
                row = self._journal.operate(stream.number, kind, {**argument, "samples": samples})
            except MachineFailure as error:
                raise Refused(503, f"nothing was changed: {error}") from None
            stream.frozen = History.of([*stream.operations, row]).frozen
            return row

        def swap(row: OperationRow) -> None:
            with stream.lock:
                stream.add_operation(row)
                apply(stream, row)
                stream.state.sequence = row.sequence

        return {**done, "sequence": self._pipeline.write(write, swap).sequence}

    def _replay(self, past: Past, stream: LiveStream, kind: str, argument: Mapping[str, Any], dry_run: bool) -> Done:
        """Make the state of the new history beside the stream, then swap it in."""
        if dry_run:
            return self._write(stream, kind, argument, _keep_state, dry_run=True)
        after = _history_after(stream, kind, argument)

        def prepare() -> StreamState:
            state = past.state_at(after, past.journal.last(past.number)[0])
            for _ in range(_ROUNDS):
                last = past.journal.last(past.number)[0]
                if last - state.sequence <= _NEARLY_THERE:
                    break
                past.advance(state, after, last)
            return state

        state = self._pipeline.beside.submit(prepare).result()

        def swap(stream: LiveStream, row: OperationRow) -> None:
            past.advance(state, stream.history, row.sequence)
            stream.state = state
            stream.since_snapshot += 1  # so that the new state is saved in time

        return self._write(stream, kind, argument, swap, dry_run=False)


def _past_of(stream: LiveStream, operation: str) -> Past:
    if stream.past is None:
        raise Refused(409, f"{operation} needs the journal, and this service was started with --no-journal")
    return stream.past


def _history_after(stream: LiveStream, kind: str, argument: Mapping[str, Any]) -> History:
    """The history with an operation that is being prepared."""
    return History.of([*stream.operations, OperationRow(_NOT_WRITTEN_YET, clock.time(), kind, argument)])


def _done(stream: LiveStream, operation: str, samples: int) -> Done:
    return {"stream": stream.name, "operation": operation, "samples": samples, "sequence": None}


def _keep_state(stream: LiveStream, row: OperationRow) -> None:
    """For operations that change no state."""
