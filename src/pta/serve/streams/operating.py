"""Operating: what changes the history of a stream, prepared beside the running stream and swapped in under one row."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pta.errors import MachineFailure, UserMistake
from pta.methods.state import class_numbers
from pta.serve.journal.journal import Journal
from pta.serve.journal.no_journal import NoJournal
from pta.serve.journal.rows import Operation
from pta.serve.open_files import require_free_files
from pta.serve.refusals import Refused
from pta.serve.streams.counting import samples_concerned
from pta.serve.streams.history import History
from pta.serve.streams.live_stream import LiveStream
from pta.serve.streams.past import Past, imported_adapter
from pta.serve.streams.pipeline import Change, Pipeline
from pta.serve.streams.saving import Saving
from pta.serve.streams.served import Served
from pta.serve.streams.stream_state import StreamState

_NOT_WRITTEN_YET = 2**62  # the sequence number of an operation that is being prepared
_NEARLY_THERE = 256  # samples that the learning thread may catch up with
_ROUNDS = 10

Apply = Callable[[LiveStream, Operation], None]


class Operating:
    """One operation at a time per stream. The stream answers and learns meanwhile."""

    def __init__(self, served: Served, journal: Journal | NoJournal, pipeline: Pipeline, saving: Saving | None) -> None:
        self._served, self._journal, self._pipeline, self._saving = served, journal, pipeline, saving

    def freeze(self, stream: LiveStream, frozen: bool, dry_run: bool) -> dict[str, Any]:
        """Stop learning, or begin again."""
        return self._operate(stream, "freeze" if frozen else "thaw", {}, _keep_state, dry_run)

    def reset(self, stream: LiveStream, classes: Sequence[int] | None, dry_run: bool) -> dict[str, Any]:
        """Forget everything, or what was learned about some classes."""
        argument = (
            {} if classes is None else {"classes": class_numbers(classes, len(self._served.classifier.class_names))}
        )
        return self._operate(stream, "reset", argument, _reset_state, dry_run)

    def import_(self, stream: LiveStream, content: bytes, dry_run: bool) -> dict[str, Any]:
        """Go on from an exported state; one that does not belong here is refused before anything is written."""
        try:
            adapter = imported_adapter(content, self._served)
        except UserMistake as error:
            raise Refused(422, str(error)) from None

        def swap(stream: LiveStream, row: Operation) -> None:
            stream.state = StreamState(adapter, np.zeros_like(stream.state.touches), row.sequence)

        kept = {} if dry_run or stream.past is None else self._keep_import(stream.past, content)
        return self._operate(stream, "import", kept, swap, dry_run)

    def _keep_import(self, past: Past, content: bytes) -> dict[str, Any]:
        try:
            if self._journal.read_only is not None:
                raise MachineFailure(f"the journal is read-only: {self._journal.read_only}")
            return past.keep_import(content)
        except UserMistake as error:
            raise Refused(503, f"nothing was changed: {error}") from None

    def rewind(self, stream: LiveStream, sequence: int | None, moment: float | None, dry_run: bool) -> dict[str, Any]:
        """Go back to the state after a row."""
        journal = self._require_journal("rewind")
        if (sequence is None) == (moment is None):
            raise Refused(422, 'a rewind goes to one moment: {"sequence": n} or {"time": seconds since 1970}')
        to = journal.sequence_at(stream.number, moment) if moment is not None else sequence
        last = journal.last(stream.number)[0]
        if to is None or not 0 <= to <= last:
            raise Refused(422, f"sequence {to} is not in the journal of {stream.name}, which ends at {last}")
        _past_of(stream).require_kept(to)
        return self._replay(journal, stream, "rewind", {"to": to}, dry_run)

    def unlearn(self, stream: LiveStream, source: str, erase: bool, dry_run: bool) -> dict[str, Any]:
        """Be as if the samples of a source had never come."""
        journal = self._require_journal("unlearn")
        first = journal.first(stream.number, source)
        if first is None:
            raise Refused(404, f"the journal of stream {stream.name} has no sample of source {source!r}")
        if erase and not dry_run:
            require_free_files()
        argument = {"source": source, "erase": erase, "first": first}
        done = self._replay(journal, stream, "unlearn", argument, dry_run)
        if erase and not dry_run:
            self._erase(journal, stream, argument, done["sequence"])
        return done

    def undo(self, stream: LiveStream, dry_run: bool) -> dict[str, Any]:
        """Lift the last operation in force."""
        journal = self._require_journal("undo")
        if stream.history.undoable is None:
            raise Refused(409, f"no operation on stream {stream.name} is in force that could be undone")
        return self._replay(journal, stream, "undo", {}, dry_run)

    def _require_journal(self, kind: str) -> Journal:
        if not isinstance(self._journal, Journal):
            raise Refused(409, f"{kind} needs the journal, and this service was started with --no-journal")
        return self._journal

    def _operate(
        self, stream: LiveStream, kind: str, argument: Mapping[str, Any], apply: Apply, dry_run: bool
    ) -> dict[str, Any]:
        """Write the row of an operation and apply it, or only count the samples it concerns."""
        after = History.of([*stream.operations, Operation(_NOT_WRITTEN_YET, time.time(), kind, argument)])
        samples = stream.state.adapter.position if kind in ("reset", "import") else 0
        if isinstance(self._journal, Journal):
            samples = samples_concerned(self._journal, stream.number, stream.history, after)
        done = {"stream": stream.name, "operation": kind, "samples": samples, "sequence": None}
        if dry_run:
            return done

        def write() -> Operation:
            if stream.gone:
                raise Refused(404, f"stream {stream.name} was deleted")
            try:
                row = self._journal.operate(stream.number, kind, {**argument, "samples": samples})
            except MachineFailure as error:
                raise Refused(503, f"nothing was changed: {error}") from None
            stream.frozen = History.of([*stream.operations, row]).frozen
            return row

        def swap(row: Operation) -> Operation:
            with stream.lock:
                stream.add_operation(row)
                apply(stream, row)
                stream.state.sequence = row.sequence
            return row

        change = Change(write, swap)
        self._pipeline.put(change)
        return {**done, "sequence": change.future.result().sequence}

    def _replay(
        self, journal: Journal, stream: LiveStream, kind: str, argument: Mapping[str, Any], dry_run: bool
    ) -> dict[str, Any]:
        """Make the state of the new history beside the stream, then swap it in."""
        past = _past_of(stream)
        if dry_run:
            return self._operate(stream, kind, argument, _keep_state, dry_run=True)
        after = History.of([*stream.operations, Operation(_NOT_WRITTEN_YET, time.time(), kind, argument)])

        def prepare() -> StreamState:
            state = past.state_at(after, journal.last(stream.number)[0])
            for _ in range(_ROUNDS):
                last = journal.last(stream.number)[0]
                if last - state.sequence <= _NEARLY_THERE:
                    break
                past.advance(state, after, last)
            return state

        state = self._pipeline.beside.submit(prepare).result()

        def swap(stream: LiveStream, row: Operation) -> None:
            past.advance(state, stream.history, row.sequence)
            stream.state = state
            stream.since_snapshot += 1  # so that the new state is saved in time

        return self._operate(stream, kind, argument, swap, dry_run=False)

    def _erase(self, journal: Journal, stream: LiveStream, argument: Mapping[str, Any], sequence: int) -> None:
        """Remove rows from the journal, and the snapshots that learned from them."""
        assert self._saving is not None  # as there is a journal
        self._saving.save(stream).result()
        remove = _past_of(stream).snapshots.remove
        self._saving.thread.submit(remove, argument["first"], sequence - 1).result()
        change = Change(lambda: journal.erase(stream.number, argument["source"], sequence), lambda rows: rows)
        self._pipeline.put(change)
        change.future.result()


def _past_of(stream: LiveStream) -> Past:
    """The past of a stream that has a journal."""
    assert stream.past is not None
    return stream.past


def _keep_state(stream: LiveStream, row: Operation) -> None:
    """For operations that change no state."""


def _reset_state(stream: LiveStream, row: Operation) -> None:
    stream.state.reset(row.argument.get("classes"))
