"""Health: the monitor of a running stream, its alarms with their reactions, and what a page shows of them."""

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pta.errors import PtaError
from pta.methods import Adapter
from pta.methods.state_file import Monitored, read_monitor
from pta.monitor import Alarm, Guard, Monitor, takes_order
from pta.monitor.alarms import FOREIGN, ONE_SOURCE, SILENT
from pta.monitor.scores import BLOCK
from pta.serve.journal.rows import OperationRow
from pta.serve.streams.answering import Answered

_log = logging.getLogger("pta.serve")
_MOST_BLOCKS, _MOST_ANSWERS = 256, 20  # that are shown

AlarmRow = dict[str, Any]
"""The argument of a row `alarm`: kind, raised, position, numbers, sentence and reaction."""


class Health:
    """What is measured of one stream; all under the lock of the stream.

    `reactions` are those of the rows that are written or on their way. They change while an alarm stands if another
    one is chosen at a later start, and `foreign-input` is not reacted to while samples come sorted by class.
    """

    def __init__(self, adapter: Adapter) -> None:
        classifier = adapter.classifier.to(dtype=torch.float32)
        self.monitor = Monitor(classifier, takes_order=takes_order(adapter))
        self.reactions: dict[str, str] = {}
        self._series: deque[dict[str, Any]] = deque(maxlen=_MOST_BLOCKS)
        self._last: deque[tuple[np.void, bool, float]] = deque(maxlen=_MOST_ANSWERS)
        self._heard = time.monotonic()

    def recover(self, snapshot: Path | None) -> None:
        """Go on from the monitor of a snapshot, if it has one that can be read."""
        try:
            if snapshot is not None and (kept := read_monitor(snapshot)) is not None:
                self.monitor.unpack(*kept, snapshot)
        except PtaError as error:
            _log.warning("%s; the stream begins an empty monitor", error)

    def stand(self, alarms: Mapping[str, OperationRow]) -> None:
        """Let the alarms of these rows stand, and no others."""
        self.monitor.memory.standing = {kind: dict(row.argument["numbers"]) for kind, row in alarms.items()}
        self.reactions = {kind: row.argument["reaction"] for kind, row in alarms.items()}

    def packed(self) -> Monitored:
        """A copy of what the monitor keeps."""
        tensors, about = self.monitor.pack()
        copied = {name: dict(value) if isinstance(value, dict) else list(value) for name, value in about.items()}
        return {name: tensor.clone() for name, tensor in tensors.items()}, copied

    def forget_features(self) -> None:
        """Leave out the samples of the block that is not full: the only ones of which features are kept."""
        memory = self.monitor.memory
        memory.counts[0] -= self.monitor.position % BLOCK
        memory.pending_features[:] = memory.pending_answers[:] = memory.pending[:] = 0

    def add(
        self,
        unit: NDArray[np.float32],
        answered: Answered,
        learned: bool,
        sources: Sequence[str],
        adapter: Adapter,
        chosen: Mapping[str, str],
    ) -> list[AlarmRow]:
        """Count the samples of a group after it is answered; the rows of alarms that follow."""
        self._heard = time.monotonic()
        self._last.extend((one, learned, time.time()) for one in answered.answers[-_MOST_ANSWERS:])
        found, monitor, done = self._heard_again(), self.monitor, 0
        features, chances = torch.from_numpy(unit), torch.from_numpy(answered.chances)
        labels = torch.from_numpy(answered.answers["label"].astype(np.int64))
        mask = np.full(len(unit), learned)
        while done < len(unit):
            rows = slice(done, done + monitor.room(reacting=False))
            found += monitor.add(features[rows], chances[rows], labels[rows], mask[rows], sources[rows], adapter)
            self._series.extend(monitor.series)
            done = rows.stop
        return self._rows(found, chosen)

    def silence(self, seconds: float, chosen: Mapping[str, str]) -> list[AlarmRow]:
        """The row of the alarm `silent`, if no sample has come for so long and it does not stand."""
        is_silent = self.monitor.position > 0 and time.monotonic() - self._heard >= seconds
        if not is_silent or SILENT in self.reactions:
            return []
        numbers = self.monitor.memory.standing[SILENT] = {"seconds": seconds}
        return self._rows([Alarm(SILENT, self.monitor.position, True, numbers)], chosen)

    def _heard_again(self) -> list[Alarm]:
        numbers = self.monitor.memory.standing.pop(SILENT, None)
        return [] if numbers is None else [Alarm(SILENT, self.monitor.position, False, numbers)]

    def _rows(self, found: Sequence[Alarm], chosen: Mapping[str, str]) -> list[AlarmRow]:
        """Rows of alarms that were raised or are over, and of those whose reaction is another one now."""
        standing, rows = self.monitor.memory.standing, []
        for alarm in found:
            reaction = self._reaction(alarm.kind, chosen) if alarm.raised else "note"
            rows.append(alarm.as_dict() | {"reaction": reaction})
            self.reactions.pop(alarm.kind, None)
            if alarm.raised:
                self.reactions[alarm.kind] = reaction
        for kind, before in list(self.reactions.items()):
            if (now := self._reaction(kind, chosen)) != before:
                alarm = Alarm(kind, self.monitor.position, True, standing[kind])
                rows.append(alarm.as_dict() | {"reaction": now})
                self.reactions[kind] = now
        return rows

    def _reaction(self, kind: str, chosen: Mapping[str, str]) -> str:
        return "note" if kind == FOREIGN and self.monitor.is_ordered else chosen.get(kind, "note")

    def is_below_cap(self, unit: NDArray[np.float32], source: str) -> bool:
        """Whether all these samples may be learned while `one-source` stands and is reacted to by `cap`."""
        guard = Guard(self.monitor, {ONE_SOURCE: "cap"})
        return bool(guard.learns(torch.from_numpy(unit), [source] * len(unit)).all())

    def summary(self, alarms: Mapping[str, OperationRow], names: Sequence[str]) -> dict[str, Any]:
        """The numbers of now, alarms that stand, and the last blocks and answers."""
        return {
            **self.monitor.numbers(),
            "alarms": [alarm_entry(row) for row in alarms.values()],
            "series": list(self._series),
            "last_answers": [
                {
                    "time": when,
                    "learned": learned,
                    "label": names[one["label"]],
                    "probability": float(one["probability"]),
                    "zero_shot_label": names[one["zero_shot_label"]],
                    "zero_shot_probability": float(one["zero_shot_probability"]),
                }
                for one, learned, when in self._last
            ],
        }


def alarm_entry(row: OperationRow) -> dict[str, Any]:
    """A row `alarm` as it is shown."""
    return {"sequence": row.sequence, "time": row.time, **row.argument}
