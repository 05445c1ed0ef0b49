"""Past: the rows and snapshots of one stream, and the state that they give under any history."""

import json
import logging
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from pta import __version__
from pta.core.labels import NONE
from pta.door.files import load_tensors, pack_tensors, read_tensors, remove_temporary_files, write_atomically
from pta.engines.gpu.processors import numba_is_installed
from pta.errors import PtaError, StateMismatch, UnreadableFile, shown
from pta.methods import Adapter, from_bytes, load_adapter
from pta.methods.state_file import Monitored, pack_monitor
from pta.serve.journal.data_folder import digest_of, keep_private, make_private_folder, require_named
from pta.serve.journal.journal import Journal
from pta.serve.journal.rows import ANSWER, Answers, BatchSpan, GroupRows, OperationRow
from pta.serve.requests import Refused
from pta.serve.streams.answering import StreamState, score
from pta.serve.streams.history import History, waiting
from pta.serve.streams.labels import Span
from pta.serve.streams.learned_rows import Adapters, Learned
from pta.serve.streams.served_model import ServedModel, rule_of

_log = logging.getLogger("pta.serve")
_KIND, _VERSION = "snapshot", 1
_UNFINISHED = ".{}.safetensors"  # before the digest of its content is known
_KEPT = 2  # of those that lie closer than an interval, the newest
_NEARLY_THERE = 256  # samples that the learning thread may catch up with
_ROUNDS = 10

Tell = Callable[[int], object]
"""Told how many rows a replay has read since it was told last; what it raises ends the replay."""


def made_by() -> dict[str, str]:
    """What decides the last bits of a state."""
    return {
        "pta": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "engine": "numba" if numba_is_installed() else "torch",
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
    }


class SavedState(NamedTuple):
    """A snapshot that is on the disk."""

    sequence: int
    time: float
    fingerprint: str  # of the rows in force up to it
    path: Path
    position: int


class NewSnapshot(NamedTuple):
    """What is written of a state."""

    sequence: int
    time: float
    fingerprint: str
    position: int
    classes: int  # how many there are
    learned: Learned
    touches: dict[int, int]  # of classes that have any

    @classmethod
    def of(cls, state: StreamState, time: float, fingerprint: str, adapters: Adapters) -> Self:
        """Copies of what a state has learned."""
        classes = np.flatnonzero(state.touches)
        touches = dict(zip(classes.tolist(), state.touches[classes].tolist(), strict=True))
        counts = state.adapter.position, len(state.touches)
        return cls(state.sequence, time, fingerprint, *counts, adapters.learned(state.adapter), touches)


class Snapshots:
    """The snapshots of a stream, oldest first; one thread at a time changes them."""

    def __init__(self, folder: Path, served: ServedModel) -> None:
        self._folder, self._served = folder, served
        found = (_described(path) for path in folder.glob("[0-9]*.safetensors"))
        self.saved = sorted((one for one in found if one is not None), key=lambda one: one.sequence)

    def remove_unfinished(self) -> None:
        """Remove what a killed process left, while nobody writes a snapshot."""
        if self._folder.exists():
            remove_temporary_files(self._folder)
            for part in self._folder.glob(_UNFINISHED.format("[0-9]*")):
                part.unlink(missing_ok=True)

    def save(self, new: NewSnapshot, interval: int) -> None:
        """Write a snapshot, and remove those that lie closer together than an interval of samples."""
        for folder in (self._folder.parent.parent, self._folder.parent, self._folder):
            make_private_folder(folder)
        part = self._folder / _UNFINISHED.format(f"{new.sequence:020}")
        stream: dict[str, Any] = {"sequence": new.sequence, "time": new.time, "fingerprint": new.fingerprint}
        stream |= {"made_by": made_by(), "touches": new.touches}
        about = {"kind": _KIND, "version": _VERSION, "position": new.position, "classes": new.classes, "stream": stream}
        content = pack_tensors(new.learned.packed(), about)
        write_atomically(part, content)
        keep_private(part)
        path = part.with_name(f"{new.sequence:020}-{digest_of(content)}.safetensors")
        part.replace(path)
        for one in self.saved:
            if one.sequence == new.sequence and one.path != path:
                one.path.unlink(missing_ok=True)
        rest = [one for one in self.saved if one.sequence != new.sequence]
        saved = [*rest, SavedState(new.sequence, new.time, new.fingerprint, path, new.position)]
        kept, last = [], -interval
        for number, one in enumerate(saved):
            if one.sequence - last >= interval or number >= len(saved) - _KEPT:
                kept.append(one)
                last = one.sequence
            else:
                one.path.unlink(missing_ok=True)
        self.saved = kept

    def newest(self, history: History, dropped: int, until: int) -> StreamState | None:
        """The state of the newest snapshot up to a row from which a history can be replayed, if it can be read."""
        for one in self.usable(history, dropped, until):
            try:
                return self._read(one.path)
            except (PtaError, LookupError, TypeError, ValueError, AttributeError) as error:
                _log.warning("%s cannot be used: %s; an older snapshot is taken", one.path, error)
        return None

    def usable(self, history: History, dropped: int, until: int) -> Iterator[SavedState]:
        """Those up to a row that agree with a history and have learned all rows that were dropped, newest first."""
        for one in reversed(self.saved):
            if one.sequence <= until and agrees(one, history) and not history.spans(one.sequence, dropped):
                yield one

    def remove(self, first: int, last: int) -> None:
        """Remove those between two rows, both included."""
        gone = [one for one in self.saved if first <= one.sequence <= last]
        self.saved = [one for one in self.saved if one not in gone]
        for one in gone:
            one.path.unlink(missing_ok=True)

    def _read(self, path: Path) -> StreamState:
        require_named(path)
        about = _about(path)
        if about["kind"] == _KIND:
            served = with_classes(self._served, about.get("classes"), path)
            adapter = served.adapters.checked(Learned.unpacked(load_tensors(path, _KIND)[0]), path)
        else:  # as it was written before there was a kind of its own
            served = with_classes(self._served, len(about.get("class_names") or ()), path)
            adapter = load_adapter(path, served.classifier, model=served.encoder)
        stream = about["stream"]
        if stream["sequence"] != int(path.stem.partition("-")[0]):
            raise StateMismatch(f"{path} is named after another row than its last")
        if stream["made_by"] != made_by():
            before, now = (", ".join(one.values()) for one in (stream["made_by"], made_by()))
            _log.warning("%s was learned with %s; here, with %s, answers agree up to rounding", path, before, now)
        return StreamState(
            adapter, _touches(path, stream["touches"], adapter.classifier.classes), stream["sequence"], path
        )


def _touches(path: Path, counts: Any, classes: int) -> NDArray[np.int64]:
    """How many samples have touched each class; all are listed in older snapshots."""
    touches = np.zeros(classes, np.int64)
    try:
        if isinstance(counts, dict):
            touches[[*map(int, counts)]] = [*counts.values()]
        else:
            touches[:] = counts
    except (AttributeError, IndexError, TypeError, ValueError):
        raise StateMismatch(f"{path} counts touches of other classes; the snapshot is damaged") from None
    return touches


def agrees(saved: SavedState, history: History) -> bool:
    """Whether a snapshot has learned what a history has in force."""
    return saved.fingerprint == history.fingerprint(saved.sequence)


def _about(path: Path) -> dict[str, Any]:
    """What a snapshot says of itself."""
    about = json.loads(read_tensors(path, _KIND, only=[])[1].get("about", "null"))
    if (
        not isinstance(about, dict)
        or about.get("kind") not in ("state", _KIND)
        or not isinstance(about.get("stream"), dict)
    ):
        raise UnreadableFile(f"{path} is not a snapshot of a stream")
    if about["kind"] == _KIND and about.get("version") != _VERSION:
        raise StateMismatch(f"{path} has snapshot version {about.get('version')}; this version of pta reads {_VERSION}")
    return about


def _described(path: Path) -> SavedState | None:
    try:
        about = _about(path)
        stream, sequence = about["stream"], int(path.stem.partition("-")[0])
        fingerprint = str(stream["fingerprint"])
        return SavedState(sequence, float(stream["time"]), fingerprint, path, int(about["position"]))
    except (PtaError, ValueError, TypeError, KeyError, RecursionError) as error:
        _log.warning("%s is not used: %s", path, error)
        return None


class Past:
    """A state is the replay of all rows in force, group by group in order of sequence, from the newest snapshot."""

    def __init__(self, served: ServedModel, journal: Journal, number: int) -> None:
        self._served = served
        self.journal = journal
        self.number = number
        self.folder = journal.path.parent / "streams" / str(number)
        self._imports, self._monitor = self.folder / "imports", self.folder / "monitor" / "latest.safetensors"
        self.snapshots = Snapshots(self.folder / "snapshots", served)

    @property
    def last(self) -> int:
        """The last row, be it there or erased."""
        return self.journal.last(self.number)[0]

    @property
    def oldest(self) -> tuple[int, float]:
        """The last row that was dropped for room, and its time."""
        return self.journal.oldest(self.number)

    def replayed(self, history: History, until: int, tell: Tell = lambda read: None) -> tuple[StreamState, int]:
        """The state after a row and how many rows were read for it; refused where too few rows are kept."""
        state = self.snapshots.newest(history, self.oldest[0], until)
        if state is None:
            self._require_rows(history, 0)
            classes = history.first_classes
            state = StreamState.fresh(self._served if classes is None else self._with_classes(classes))
        start = state.sequence
        read = self.advance(state, history, until, tell)
        self._require_rows(history, start)  # none was dropped meanwhile
        return state, read

    def _with_classes(self, classes: int) -> ServedModel:
        return with_classes(self._served, classes, self.journal.path)

    def nearly_now(self, history: History, tell: Tell = lambda read: None) -> StreamState:
        """The state of a stream that goes on learning, up to few rows before its last one."""
        state = self.replayed(history, self.last, tell)[0]
        for _ in range(_ROUNDS):
            last = self.last
            if last - state.sequence <= _NEARLY_THERE:
                break
            self.advance(state, history, last, tell)
        return state

    def replay_start(self, history: History) -> int:
        """The row after which a replay of a history would begin; refused where too few rows are kept for one."""
        start = next((one.sequence for one in self.snapshots.usable(history, self.oldest[0], self.last)), 0)
        self._require_rows(history, start)
        return start

    def count_replayed(self, history: History) -> int:
        """How many samples a replay of a history would learn."""
        return self._count(history.spans(self.replay_start(history), self.last), history.unlearned)

    def _require_rows(self, history: History, after: int) -> None:
        if history.spans(after, self.oldest[0]):
            self.require_kept(0)

    def require_kept(self, sequence: int) -> None:
        """Refuse a moment before the oldest that rows can be replayed from."""
        dropped, when = self.oldest
        if sequence < dropped:
            moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))
            raise Refused(
                f"the journal no longer reaches back so far; the oldest moment is sequence {dropped}, {moment}", 409
            )

    def advance(self, state: StreamState, history: History, until: int, tell: Tell = lambda read: None) -> int:
        """Learn the rows in force after those that a state covers, up to a row; says how many rows were read."""
        read, began = 0, time.thread_time()
        due = [event for event in history.events if state.sequence < event.sequence <= until]
        for event in [*due, None]:
            end = until if event is None else event.sequence
            for first, last in history.spans(state.sequence, end):
                for group in self.journal.groups(self.number, first - 1, last):
                    self._learn(state, history, group)
                    read += len(group.sequences)
                    tell(len(group.sequences))
            if event is None:
                break
            if event.kind == "import":
                require_named(path := self._import(event))
                state.adapter = imported_adapter(path, self._served.first(len(state.touches)))
                state.touches = np.zeros_like(state.touches)
            elif event.kind == "classes":
                state.grow(self._with_classes(event.argument["count"]))
            else:
                state.reset(event.argument["classes"])
            state.sequence = event.sequence
        state.sequence = until
        state.unsaved += read
        state.unsaved_seconds += time.thread_time() - began
        return read

    def answers_of(self, operations: list[OperationRow], batch: BatchSpan) -> Answers:
        """What the rows of a batch were answered: they are learned again from the state before them."""
        before = [one for one in operations if one.sequence < batch.first]
        history = History.of(before, lifted=waiting(before))
        state, _ = self.replayed(history, batch.first - 1)
        (group,) = self.journal.groups(self.number, batch.first - 1, batch.last)
        scored = score(group.features, state.adapter.classifier, rule_of(state.adapter))
        answered = state.learn(scored, batch.last)
        answers = np.zeros(batch.last - batch.first + 1, ANSWER)
        answers[group.sequences - batch.first] = answered.answers
        return answers

    def count_in_force(self, history: History) -> int:
        """How many samples a state of a history has learned, from the newest snapshot or import that it begins with."""
        start, position = 0, 0
        for saved in self.snapshots.usable(history, self.oldest[0], self.last):
            start, position = saved.sequence, saved.position
            break
        for event in history.events:
            if event.kind == "import" and event.sequence > start:
                position = int(load_tensors(self._import(event), "state", only=[])[1]["position"])
        labels = history.labels
        of_no_class = (labels.classes == NONE) & labels.has_effect & (labels.sequences > start)
        later = self._count(history.spans(start, self.last), history.unlearned)
        return position + later - int(np.count_nonzero(of_no_class))

    def _import(self, event: OperationRow) -> Path:
        return self._imports / f"{event.argument['digest']}.safetensors"

    def count_changed(self, before: History, after: History) -> int:
        """How many samples are in force under one history and not the other, or have another label."""
        last = self.last  # once, because the journal may grow
        ours = before.spans(0, last)
        theirs = after.spans(0, last)
        pairs = ((max(a, c), min(b, d)) for a, b in ours for c, d in theirs)
        common = [(first, last) for first, last in pairs if first <= last]
        one, other = before.unlearned, after.unlearned
        both = {source: max(one.get(source, 0), other.get(source, 0)) for source in {**one, **other}}
        moved = self._count(ours, one) + self._count(theirs, other) - 2 * self._count(common, both)
        return moved + before.labels.count_changed(after.labels)

    def _count(self, spans: Iterable[Span], unlearned: Mapping[str, int]) -> int:
        total = 0
        count = partial(self.journal.count, self.number)
        for first, last in spans:
            total += count(after=first - 1, until=last)
            for source, until in unlearned.items():
                total -= count(source=source, after=first - 1, until=min(last, until))
        return total

    def keep_import(self, content: bytes) -> dict[str, Any]:
        """Store a state that is to be imported; its argument in the journal."""
        self._write(self._imports / f"{(digest := digest_of(content))}.safetensors", content)
        return {"digest": digest}

    def keep_monitor(self, monitored: Monitored) -> None:
        """Store what the monitor of the stream keeps, in the place of what is there."""
        self._write(self._monitor, pack_monitor(monitored), sync=False)  # without it a monitor begins anew

    def erase(self, first: int, last: int) -> None:
        """Remove the files that may hold what samples between two rows, both included, have taught."""
        self.snapshots.remove(first, last)
        self._monitor.unlink(missing_ok=True)

    @property
    def monitored_in(self) -> Path | None:
        """The file with what was stored of the monitor; earlier versions kept it in snapshots."""
        return self._monitor if self._monitor.exists() else None

    def _write(self, path: Path, content: bytes, *, sync: bool = True) -> None:
        if not path.parent.exists():
            for folder in (self.folder.parent, self.folder, path.parent):
                make_private_folder(folder)
        write_atomically(path, content, sync=sync)
        keep_private(path)

    def _learn(self, state: StreamState, history: History, group: GroupRows) -> None:
        kept = ~history.mask(group.sequences, group.sources)
        if kept.any():
            touches = [*compress(group.touches, kept)]
            labels = history.labels_of(group.sequences[kept])
            state.learn_again(group.features[kept], touches, int(group.sequences[-1]), labels)


def with_classes(served: ServedModel, classes: object, source: Path) -> ServedModel:
    """What is served with the first so many classes, as a file has it."""
    known = served.classifier.classes
    if not isinstance(classes, int) or not 2 <= classes <= known:
        raise StateMismatch(f"{source} has {shown(classes)} classes, and {known:,} are served; serve all of them")
    return served.first(classes)


def imported_adapter(source: Path | bytes, served: ServedModel) -> Adapter:
    """The adapter of a state file or its content, if it is of the classifier, method and parameters served."""
    given: dict[str, Any] = {"classifier": served.classifier, "model": served.encoder}
    adapter = from_bytes(source, **given) if isinstance(source, bytes) else load_adapter(source, **given)
    own = served.fresh()
    if (adapter.name, adapter.parameters) != (own.name, own.parameters):
        raise StateMismatch(f"the state is of {adapter.name} with other parameters than those of the {own.name} served")
    return adapter
