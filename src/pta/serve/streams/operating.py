"""Operating: what changes the history of a stream, prepared beside the running stream and swapped in under one row.

There is one method for each operation of `pta.serve.operations`.
"""

import time as clock
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pta.core.labels import NONE
from pta.errors import MachineFailure, UserMistake, nearest, shown
from pta.methods.frozen import frozen_warning
from pta.serve.journal.journal import JournalLike
from pta.serve.journal.rows import OperationRow
from pta.serve.open_files import require_free_files
from pta.serve.requests import Refused, SampleLabel, id_hash
from pta.serve.streams.answering import StreamState
from pta.serve.streams.corrections import Corrections
from pta.serve.streams.history import History
from pta.serve.streams.labels import label_argument
from pta.serve.streams.live_stream import LiveStream
from pta.serve.streams.past import Past, imported_adapter
from pta.serve.streams.pipeline import Pipeline
from pta.serve.streams.saving import Saving
from pta.serve.streams.served_model import ServedModel, rule_of
from pta.serve.streams.stream_set import StreamSet

_NOT_WRITTEN_YET = 2**62  # the sequence number of an operation that is being prepared

Done = dict[str, Any]
"""The stream, the operation, how many samples it concerns, and its row; of labels also how many are replayed."""


@dataclass(frozen=True)
class Operating:
    """One operation on a stream, which answers and learns meanwhile; there is one at a time per stream."""

    _served: ServedModel
    _journal: JournalLike
    _streams: StreamSet
    _pipeline: Pipeline
    _saving: Saving | None
    _corrections: Corrections
    _stream: LiveStream
    _kind: str  # the name of the operation
    _dry_run: bool  # whether only the samples that it concerns are counted

    def operate(self, argument: Mapping[str, Any]) -> Done:
        """Do it, or only count."""
        return getattr(self, f"_{self._kind}")(**argument)

    def _freeze(self) -> Done:
        stream = self._stream
        with stream.lock:
            state, imported = stream.state, any(row.kind == "import" for row in stream.history.in_force)
            exact = rule_of(state.adapter) is not None and not imported  # touches are counted from an import on
            warning = frozen_warning(state.adapter, state.touches.tolist() if exact else None)
        return self._write({}) | ({"warning": warning} if warning else {})

    def _thaw(self) -> Done:
        return self._write({})

    def _reset(self, classes: Sequence[str] | None = None) -> Done:
        numbers = None if classes is None else self._numbers(classes)
        argument = {} if numbers is None else {"classes": numbers}
        return self._write(argument, lambda row: self._stream.state.reset(numbers))

    def _import(self, content: bytes) -> Done:
        """A state that does not belong here is refused before anything is written."""
        stream, kept = self._stream, {}
        try:
            adapter = imported_adapter(content, self._served)
        except UserMistake as error:
            raise Refused(str(error)) from None
        if not self._dry_run and stream.past is not None:
            try:
                if self._journal.read_only is not None:
                    raise MachineFailure(f"the journal is read-only: {self._journal.read_only}")
                kept = stream.past.keep_import(content)
            except (UserMistake, MachineFailure) as error:
                raise Refused(f"nothing was changed: {error}", 503) from None

        def swap(row: OperationRow) -> None:
            stream.state = StreamState(adapter, np.zeros_like(stream.state.touches), row.sequence)

        return self._write(kept, swap)

    def _rewind(self, sequence: int | None = None, time: float | None = None) -> Done:
        past = self._past
        to = past.journal.sequence_at(past.number, time or 0.0) if sequence is None else sequence
        last = past.last
        if to > last:
            raise Refused(f"sequence {to} is not in the journal of {self._stream.name}, which ends at {last}")
        past.require_kept(to)
        return self._replay({"to": to})

    def _unlearn(self, source: str, erase: bool = False) -> Done:
        past, stream = self._past, self._stream
        first = past.journal.first(past.number, source)
        if first is None:
            raise Refused(f"the journal of stream {stream.name} has no sample of source {source!r}", 404)
        is_erasing = erase and not self._dry_run
        if is_erasing:
            require_free_files()
        done = self._replay({"source": source, "erase": erase, "first": first})
        if is_erasing:
            assert self._saving is not None  # as there is a journal
            with stream.lock:
                stream.health.forget_pending()
            self._saving.save(stream).result()  # files that may hold what the rows have go before the rows
            self._saving.thread.submit(stream.erase_files, first, done["sequence"] - 1).result()
            self._pipeline.between(lambda: self._erase(past, source, done["sequence"]))
        return done

    def _label(self, labels: Sequence[SampleLabel]) -> Done:
        """Write what the samples are; the state follows beside the stream."""
        past, stream = self._past, self._stream
        if not stream.state.adapter.takes_labels:
            raise Refused(f"{self._served.method} does not learn labels; pta, wpta and tda do", 409)
        names = [one.label for one in labels if one.label is not None]
        numbers: dict[str | None, int] = {None: NONE, **dict(zip(names, self._numbers(names), strict=True))}
        given = {s: numbers[one.label] for s, one in zip(self._sequences_of(labels), labels, strict=True)}
        sources = past.journal.sources_of(past.number, given)
        for sequence in given:
            self._require_sample(sequence, sequence in sources)
        argument = label_argument({sequence: (sources[sequence], label) for sequence, label in given.items()})
        after = self._history_after(argument)
        last = stream.state.sequence
        is_replayed = after.fingerprint(last) != stream.applied.fingerprint(last)
        replayed = past.count_replayed(after) if is_replayed else 0
        done = self._write(argument, require=lambda: past.replay_start(after))  # rows may be dropped until then
        if not self._dry_run:
            self._corrections.begin(stream)
        return done | {"replayed": replayed}

    def _sequences_of(self, labels: Sequence[SampleLabel]) -> Iterator[int]:
        """The sequence numbers of the samples that labels name: by number, or by the id of a request and a place."""
        past = self._past
        for one in labels:
            if one.id is None:
                assert one.sequence is not None  # as the door requires one of the two
                yield one.sequence
                continue
            found = past.journal.find(past.number, id_hash(one.id))
            if found is None:
                raise Refused(
                    f"stream {self._stream.name} has no sample with the id {shown(one.id)}: it was not learned, was "
                    "erased, or was dropped for room",
                    404,
                )
            if one.place not in found.places:
                places = f"0 to {found.places[-1]}"
                if len(found.places) <= found.places[-1]:
                    places = ", ".join(map(str, found.places))
                raise Refused(f"the id {shown(one.id)} has samples at places {places}, not at {one.place}")
            yield int(found.sequences[found.places == one.place][0])

    def _require_sample(self, sequence: int, is_there: bool) -> None:
        """Refuse a row that is not a learned sample, or is one that no replay reaches."""
        past, stream = self._past, self._stream
        imports = [row.sequence for row in stream.history.in_force if row.kind == "import"]
        if sequence < max(imports, default=0):
            raise Refused(
                f"sequence {sequence} is before the import at {imports[-1]}, which the state starts from; "
                "undo or rewind the import to label it",
                409,
            )
        past.require_kept(sequence - 1)
        if is_there:
            return
        kinds = {row.sequence: row.kind for row in stream.operations}
        if sequence in kinds:
            raise Refused(f"sequence {sequence} is the operation {kinds[sequence]}, not a sample")
        if sequence > past.last:
            raise Refused(f"sequence {sequence} is not in the journal of {stream.name}, which ends at {past.last}", 404)
        raise Refused(f"stream {stream.name} has no sample {sequence}: it was erased, or never learned", 404)

    def _answers(self, answers: str) -> Done:
        return self._write({"answers": answers})

    def _undo(self) -> Done:
        if self._stream.history.undoable is None:
            raise Refused(f"no operation on stream {self._stream.name} is in force that could be undone", 409)
        return self._replay({})

    def _delete(self) -> Done:
        stream = self._stream
        done = self._done(stream.state.adapter.position)
        if not self._dry_run:
            require_free_files()
            delete = partial(self._pipeline.between, partial(self._streams.delete, stream))
            if self._saving is None:
                delete()
            else:
                self._saving.thread.submit(delete).result()  # while no snapshot is written
            self._pipeline.last_answers.forget(stream.number)
        return done

    @property
    def _past(self) -> Past:
        if self._stream.past is None:
            raise Refused(f"{self._kind} needs the journal, and this service was started with --no-journal", 409)
        return self._stream.past

    def _numbers(self, names: Sequence[str]) -> list[int]:
        """The numbers of classes."""
        known = {name: number for number, name in enumerate(self._served.classifier.class_names)}
        for name in names:
            if name not in known:
                raise Refused(f"no class is called {name!r}; {nearest(name, known)}")
        return [known[name] for name in names]

    def _erase(self, past: Past, source: str, until: int) -> None:
        """Remove the samples of a source, and read the operations again, of which some labels were erased."""
        past.journal.erase(past.number, source, until)
        with self._stream.lock:
            self._stream.take_operations(past.journal.operations(past.number))

    def _done(self, samples: int, sequence: int | None = None) -> Done:
        return {"stream": self._stream.name, "operation": self._kind, "samples": samples, "sequence": sequence}

    def _history_after(self, argument: Mapping[str, Any]) -> History:
        """The history with this operation, which is being prepared."""
        row = OperationRow(_NOT_WRITTEN_YET, clock.time(), self._kind, argument)
        return History.of([*self._stream.operations, row])

    def _write(
        self,
        argument: Mapping[str, Any],
        apply: Callable[[OperationRow], object] = lambda row: None,
        require: Callable[[], object] = lambda: None,
    ) -> Done:
        """Write the row of the operation and apply it to the state, or only count the samples it concerns.

        `require` refuses it at the last moment, when nothing else is written.
        """
        stream = self._stream
        samples = stream.state.adapter.position if self._kind in ("reset", "import") else 0
        if stream.past is not None:
            samples = stream.past.count_changed(stream.history, self._history_after(argument))
        if self._dry_run:
            return self._done(samples)

        def write() -> OperationRow:
            if stream.gone:
                raise Refused(f"stream {stream.name} was deleted", 404)
            require()
            try:
                row = self._journal.operate(stream.number, self._kind, {**argument, "samples": samples})
            except MachineFailure as error:
                raise Refused(f"nothing was changed: {error}", 503) from None
            if self._kind in ("freeze", "thaw"):
                stream.frozen = self._kind == "freeze"
            with stream.lock:
                stream.add_operation(row)
                apply(row)
                stream.state.sequence = row.sequence
            return row

        return self._done(samples, self._pipeline.between(write).sequence)

    def _replay(self, argument: Mapping[str, Any]) -> Done:
        """Make the state of the new history beside the stream, then swap it in."""
        past = self._past
        stream = self._stream
        after = self._history_after(argument)
        if self._dry_run:
            return self._write(argument)

        state = self._pipeline.beside.submit(past.nearly_now, after).result()

        def swap(row: OperationRow) -> None:
            past.advance(state, stream.history, row.sequence)
            stream.state = state

        return self._write(argument, swap, require=lambda: past.replay_start(after))  # rows may be dropped until then
