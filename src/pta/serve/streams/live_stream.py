"""LiveStream: a stream as the running service has it, counts of its answers since the start, and its summary."""

import logging
import time
from array import array
from collections import deque
from collections.abc import Iterable
from itertools import zip_longest
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pta.errors import PtaError
from pta.methods.classes import class_weights, cosines_with_text
from pta.methods.state_file import Monitored
from pta.serve.journal.rows import OperationRow
from pta.serve.streams.answering import Answered, StreamState
from pta.serve.streams.health import Health, alarm_entry
from pta.serve.streams.history import LIFTABLE, STATELESS, History, waiting
from pta.serve.streams.learned_rows import Adapters, Learned
from pta.serve.streams.past import Past, agrees
from pta.serve.streams.served_model import rule_of

_log = logging.getLogger("pta.serve")
_SECONDS = 10
_MOST_NUMBERS = 1000  # of a kind
_BYTES_BESIDE = 2**13  # that a stream takes beside its state, its monitor and its statistics, about
_MOST_ROWS, _MOST_SOURCES, _MOST_ALARMS = 200, 50, 100  # that are shown


class PackedStream(NamedTuple):
    """What a stream that rests keeps of its state and of its monitor."""

    learned: Learned
    touches: tuple[NDArray[np.int64], NDArray[np.int64]]  # classes that have any, and how many
    rest: dict[str, Any]  # of the fields of the state
    monitored: Monitored


class LiveStream:
    """The state of a stream, the operations on it, and what was answered.

    The writing thread decides by `frozen`, `gone`, `reactions` and the quota. The learning thread changes the state and
    the operations, under `lock`; others read them under it. `history` is what the operations leave in force, `applied`
    what the state has learned: the same without the labels that are `waiting`.

    While it rests it has no state and no monitor, but is `packed`.
    """

    def __init__(
        self,
        name: str,
        number: int,
        state: StreamState,
        health: Health,
        operations: Iterable[OperationRow] = (),
        past: Past | None = None,
        statistics: "StreamStatistics | None" = None,
    ) -> None:
        self.name, self.number, self.past = name, number, past
        self.lock, self.changing = Lock(), Lock()  # `changing` is held by the one operation under way
        self.state, self.recovered = state, state.sequence  # the last row that an earlier process may have written
        self.take_operations(operations)
        self.health = health
        health.recover(state.saved_in if past is None else past.monitored_in or state.saved_in, self.history.alarms)
        self.reactions = {kind: str(row.argument["reaction"]) for kind, row in self.history.alarms.items()}
        self.replayed = (0, 0)  # samples of the replay that brings the state to its labels, and of how many
        self.frozen, self.gone = self.history.frozen, False
        self.failed: str | None = None  # why it learns nothing until the service is started again
        self.statistics = statistics or StreamStatistics(len(state.touches))
        self.version = self.users = 0
        self.time = 0.0  # of the last row
        self.packed: PackedStream | None = None
        self._measured = health.position  # samples of which what was measured is on the disk

    def add_operation(self, row: OperationRow) -> None:
        """Take note of an operation that is in the journal."""
        self.take_operations([*self.operations, row])
        if row.kind == "corrected" or row.kind not in STATELESS:
            self.health.forget_prototypes()
            self._measured = -1
        self.time = row.time
        self.version += 1

    def take_operations(self, operations: Iterable[OperationRow]) -> None:
        """Take these for the operations that are in the journal."""
        self.operations = list(operations)
        self.waiting = waiting(self.operations)
        self.history = self.applied = History.of(self.operations)
        if self.waiting:
            self.applied = History.of(self.operations, lifted=self.waiting)

    def pack(self, adapters: Adapters) -> int:
        """Keep only what was learned and measured; says about how many bytes that takes."""
        with self.lock:
            rest = dict(vars(self.state))
            adapter, touches = rest.pop("adapter"), rest.pop("touches")
            learned, classes = adapters.learned(adapter), np.flatnonzero(touches)
            self.packed = PackedStream(learned, (classes, touches[classes]), rest, self.health.rest())
            del self.state
        adapters.give_back(adapter, learned)
        return self.size

    @property
    def size(self) -> int:
        """About how many bytes it takes while it is packed."""
        size = _BYTES_BESIDE + self.statistics.size
        if self.packed is not None:
            size += self.packed.learned.size + sum(tensor.nbytes for tensor in self.packed.monitored[0].values())
        return size

    def unpack(self, adapters: Adapters) -> None:
        """Have a state and a monitor again."""
        assert self.packed is not None  # as it rests
        learned, (classes, counts), rest, monitored = self.packed
        adapter = adapters.new()
        adapter.put_rows(*learned)
        touches = np.zeros(adapter.classifier.classes, np.int64)
        touches[classes] = counts
        self.state = StreamState(adapter, touches, **rest)
        self.health.wake(monitored)
        self.packed = None

    def erase_files(self, first: int, last: int) -> None:
        """Remove files that may hold what samples between two rows have taught, and write what was measured anew."""
        assert self.past is not None  # as there are rows
        self.past.erase(first, last)
        self._measured = -1
        self.keep_measured()

    def keep_measured(self) -> bool:
        """Write what was measured of it to the disk, unless it is there; whether it is there now."""
        with self.lock:
            position = self.health.position
            if self.past is None or self.gone or position == self._measured:
                return True
            monitored = self.health.monitor.pack() if self.packed is None else self.packed.monitored
            self._measured = position
        try:
            self.past.keep_monitor(monitored)
        except (PtaError, OSError) as error:
            self._measured = -1
            _log.warning("what was measured of stream %s is not saved: %s", self.name, error)
            return False
        return True


class LastNumbers:
    """The last 1,000 numbers of a kind, in little memory."""

    def __init__(self) -> None:
        self._numbers, self._next = array("f"), 0

    def extend(self, numbers: Iterable[float]) -> None:
        """Add some."""
        for number in numbers:
            if len(self._numbers) < _MOST_NUMBERS:
                self._numbers.append(number)
            else:
                self._numbers[self._next] = number
                self._next = (self._next + 1) % _MOST_NUMBERS

    def mean(self, of: int = _MOST_NUMBERS) -> float | None:
        """The mean of the last so many, if there are any."""
        last = (self._numbers[self._next :] + self._numbers[: self._next])[-of:]
        return sum(last) / len(last) if last else None

    def percentiles(self, shares: tuple[float, ...]) -> list[float]:
        """Some percentiles, if there are any numbers."""
        return np.percentile(np.array(self._numbers), shares).tolist() if self._numbers else []

    @property
    def size(self) -> int:
        """Their bytes."""
        return self._numbers.itemsize * len(self._numbers)


class StreamStatistics:
    """Counts of a stream since the service started, and its last answers; a stream that is not loaded keeps them."""

    def __init__(self, classes: int) -> None:
        self.answered = self.learned = self._all_changed = 0
        self._answers, self._prediction = np.zeros(classes, np.int32), np.zeros(classes)
        self._changed, self._adapted, self._zero_shot, self._latencies = (LastNumbers() for _ in range(4))
        self._per_second: deque[tuple[int, int]] = deque(maxlen=_SECONDS + 1)
        self._minute, self._learned_in_it = 0, 0

    def within_quota(self, count: int, quota: int) -> bool:
        """Whether `count` more samples may be learned in this minute; they are counted if so."""
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._learned_in_it = minute, 0
        if self._learned_in_it + count > quota:
            return False
        self._learned_in_it += count
        return True

    def add(self, given: Answered, learned: bool, latencies: list[float]) -> None:
        """Count what the method says of a group, learned or not, with the seconds that each request took."""
        answers = given.answers
        changed = answers["label"] != answers["zero_shot_label"]
        count = len(answers)
        self.answered += count
        self.learned += count if learned else 0
        self._all_changed += int(np.count_nonzero(changed))
        for label in answers["label"].tolist():
            self._answers[label] += 1
        self._prediction += given.chances[0] if count == 1 else given.chances.sum(axis=0, dtype=np.float64)
        self._changed.extend(changed.tolist())
        self._adapted.extend(answers["entropy"].tolist())
        self._zero_shot.extend(answers["zero_shot_entropy"].tolist())
        self._latencies.extend(latencies)
        second = int(time.monotonic())
        if self._per_second and self._per_second[-1][0] == second:
            count += self._per_second.pop()[1]
        self._per_second.append((second, count))

    @property
    def answers(self) -> list[int]:
        """How often each class was answered."""
        return self._answers.tolist()

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        last = (self._changed, self._adapted, self._zero_shot, self._latencies)
        return self._answers.nbytes + self._prediction.nbytes + sum(one.size for one in last)

    def summary(self) -> dict[str, Any]:
        """Rates, shares and entropies; None where there was no answer yet."""
        now = int(time.monotonic())
        recent = sum(count for second, count in self._per_second if now - _SECONDS <= second < now)
        latencies = self._latencies.percentiles((50, 99))
        spread = None
        if self.answered:
            mean = self._prediction / self._prediction.sum()
            spread = float(-(mean * np.log(mean, out=np.zeros_like(mean), where=mean > 0)).sum())
        return {
            "answered": self.answered,
            "learned": self.learned,
            "rate": recent / _SECONDS,
            "latency_ms": dict(zip_longest(("p50", "p99"), (1000 * one for one in latencies))),
            "changed": {
                "100": self._changed.mean(100),
                "1000": self._changed.mean(),
                "all": self._all_changed / self.answered if self.answered else None,
            },
            "entropy": {"adapted": self._adapted.mean(), "zero_shot": self._zero_shot.mean()},
            "mean_prediction_entropy": spread,
        }


def brief_summary(stream: LiveStream) -> dict[str, Any]:
    """A line in a list of streams."""
    with stream.lock:
        state = stream.state
        return {
            "name": stream.name,
            "sequence": state.sequence,
            "time": stream.time,
            "position": state.adapter.position,
            "frozen": stream.frozen,
            "answers": stream.history.answers,
            "answered": stream.statistics.answered,
        }


def health_numbers(stream: LiveStream) -> dict[str, Any]:
    """The numbers of its monitor, and the names of the alarms that stand."""
    with stream.lock:
        numbers = stream.health.numbers_now()
        return {**numbers, "position": stream.state.adapter.position, "alarms": list(stream.history.alarms)}


def full_summary(stream: LiveStream, read_only: str | None) -> dict[str, Any]:
    """Everything about a stream; counts of answers are since the service started, touches and weights those in force.

    Of a class a method has touches, or the sum of the weights of what the class has learned from, or neither.
    """
    brief = brief_summary(stream)
    with stream.lock:
        waiting = sum(row.argument["samples"] for row in stream.waiting)
        replayed, of = stream.replayed if stream.waiting else (0, 0)
        counts = stream.statistics.summary()
        answers = stream.statistics.answers
        touches = stream.state.touches.tolist()
        adapter = stream.state.adapter
        weights, cosines = class_weights(adapter), cosines_with_text(adapter)
        health = stream.health.summary(stream.history.alarms, adapter.classifier.class_names)
        alarms = [alarm_entry(row) for row in stream.operations if row.kind == "alarm"][-_MOST_ALARMS:]
    if rule_of(adapter) is None:
        touches = [None] * len(touches)
    rows = zip(adapter.classifier.class_names, touches, weights, answers, cosines, strict=True)
    sources, oldest = {}, (brief["sequence"], brief["time"])
    if (past := stream.past) is not None:
        sources = past.journal.sources(past.number)
        oldest = past.oldest
    largest = sorted(sources.items(), key=lambda one: -one[1])[:_MOST_SOURCES]
    return {
        **brief,
        **counts,
        "read_only": stream.failed or read_only,
        "corrections": {"waiting": waiting, "replayed": replayed, "of": of},
        "classes": [dict(zip(("name", "touches", "weight", "answers", "cosine"), row, strict=True)) for row in rows],
        "sources": [{"source": source, "samples": samples} for source, samples in largest],
        "timeline": _timeline(stream),
        "health": {**health, "alarm_rows": alarms},
        "oldest": dict(zip(("sequence", "time"), oldest, strict=True)),
    }


def _timeline(stream: LiveStream) -> list[dict[str, Any]]:
    """Operations of persons and snapshots, the newest last."""
    history = stream.history
    in_force = {row.sequence for row in history.in_force}
    rows: list[dict[str, Any]] = [
        {
            "sequence": row.sequence,
            "time": row.time,
            "kind": row.kind,
            "argument": {name: value for name, value in row.argument.items() if name not in ("samples", "labels")},
            "samples": row.argument.get("samples"),
            "in_force": row.sequence in in_force or row.kind not in LIFTABLE,
        }
        for row in [row for row in stream.operations if row.kind != "alarm"][-_MOST_ROWS:]
    ]
    for one in stream.past.snapshots.saved[-_MOST_ROWS:] if stream.past else ():
        kind: dict[str, Any] = {"kind": "snapshot", "argument": {}, "samples": None, "in_force": agrees(one, history)}
        rows.append({"sequence": one.sequence, "time": one.time, **kind})
    return sorted(rows, key=lambda row: row["sequence"])[-_MOST_ROWS:]
