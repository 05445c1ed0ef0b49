"""Health: the monitor of a running stream, its alarms with their reactions, and what a page shows of them."""

import logging
import math
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pta.errors import PtaError
from pta.methods import Adapter
from pta.methods.state_file import IN_MEMORY, Monitored, read_monitor
from pta.monitor import Alarm, Monitor, StreamGuard
from pta.monitor.alarms import CHANGED, FOREIGN, ONE_SOURCE, SILENT
from pta.monitor.memory import NO_COSINE
from pta.monitor.scores import BLOCK
from pta.monitor.silence import Silence
from pta.serve.journal.rows import Answers, OperationRow
from pta.serve.streams.answering import Answered, Scored
from pta.serve.streams.served_model import ServedModel, ServiceSettings

_log = logging.getLogger("pta.serve")
_MOST_BLOCKS, _MOST_ANSWERS = 256, 20  # that are shown

AlarmRow = dict[str, Any]
"""The argument of a row `alarm`: kind, raised, position, numbers, sentence and reaction."""


class Health:
    """What is measured of one stream; all under the lock of the stream."""

    monitor: Monitor  # while the stream is loaded

    def __init__(self, served: ServedModel, settings: ServiceSettings, silence: Silence) -> None:
        given: dict[str, Any] = {"reference": settings.reference, "window": settings.window}
        self._new = partial(Monitor, served.classifier, takes_order=served.takes_order, **given)
        self.monitor, self.position = self._new(), 0
        self._chosen, self.silence = settings.reactions, silence
        self._standing: dict[str, AlarmRow] = {}  # rows that are written or on their way
        self._series: deque[dict[str, Any]] = deque(maxlen=_MOST_BLOCKS)
        self._last: deque[tuple[Answers, bool, float]] = deque(maxlen=_MOST_ANSWERS)  # of groups

    def recover(self, kept: Path | None, alarms: Mapping[str, OperationRow]) -> None:
        """Go on from the monitor in a file, if it has one that can be read; the alarms of these rows stand."""
        try:
            if kept is not None and (monitored := read_monitor(kept)) is not None:
                self.wake(monitored, kept)
        except PtaError as error:
            _log.warning("%s; the stream begins an empty monitor", error)
        self._standing = {kind: dict(row.argument) for kind, row in alarms.items()}
        self.silence.is_silent = SILENT in alarms
        numbers = {kind: dict(row["numbers"]) for kind, row in self._standing.items() if kind != SILENT}
        self.monitor.memory.standing = numbers

    def rest(self) -> Monitored:
        """What the monitor keeps, which is forgotten here until `wake`."""
        kept = self.monitor.pack()
        del self.monitor
        return kept

    def wake(self, kept: Monitored, source: object = IN_MEMORY) -> None:
        """Go on from what a monitor keeps."""
        self.monitor = self._new()
        self.monitor.unpack(*kept, source)
        self.position = self.monitor.position

    def forget_pending(self) -> None:
        """Forget the samples of which features are kept."""
        self.monitor.memory.forget_pending()
        self.position = self.monitor.position

    def forget_prototypes(self) -> None:
        """Let prototypes be where they are: an operation has moved them, not samples."""
        self.monitor.memory.cosines[:] = NO_COSINE

    def add(
        self,
        scored: Scored,
        answered: Answered,
        learned: bool,
        sources: Sequence[str],
        adapter: Adapter,
    ) -> list[AlarmRow]:
        """Count the samples of a group after it is answered; the rows of alarms that follow."""
        answers, mask = answered.answers, np.full(len(sources), learned)
        last = answers if len(answers) <= _MOST_ANSWERS else answers[-_MOST_ANSWERS:].copy()
        self._last.append((last, learned, time.time()))
        columns = scored.unit, scored.zero_shot, answered.chances, answers["label"]
        found = self.silence.sample(self.position) + self.monitor.add_arrays(columns, mask, sources, adapter)
        self._series.extend(self.monitor.series)
        self.position = self.monitor.position
        return self.rows(found)

    def look(self) -> list[AlarmRow]:
        """The row of the alarm `silent`, if no sample has come for so long and it does not stand."""
        if not self.position:
            self.silence.begin()  # the first sample may come at any time
        return self.rows(self.silence.look(self.position))

    def rows(self, found: Iterable[Alarm] = ()) -> list[AlarmRow]:
        """Rows of alarms that were raised or are over, and of those whose reaction is another one now."""
        rows = [alarm.as_dict() | {"reaction": "note"} for alarm in found]
        for row in rows:
            self._standing.pop(row["kind"], None)
            if row["raised"]:
                self._standing[row["kind"]] = row
                row["reaction"] = self._reaction(row["kind"])
        for kind, row in self._standing.items():
            if (now := self._reaction(kind)) != row["reaction"]:
                rows.append(row | {"reaction": now})
                self._standing[kind] = rows[-1]
        return rows

    def _reaction(self, kind: str) -> str:
        """The one that is chosen; none if the end of the alarm cannot be tested."""
        monitor = self.monitor
        no_own = not monitor.has_own_reference
        is_untested = {FOREIGN: monitor.is_ordered or monitor.reference is None, CHANGED: no_own}
        return "note" if is_untested.get(kind) else self._chosen.get(kind, "note")

    def below_cap(self, zero_shot: NDArray[np.float32], sources: Sequence[str]) -> NDArray[np.bool_]:
        """Which of the next samples may be learned while `one-source` stands and is reacted to by `cap`."""
        return StreamGuard(self.monitor, {ONE_SOURCE: "cap"}).learns(torch.from_numpy(zero_shot), sources)

    def numbers_now(self) -> dict[str, Any]:
        """The numbers of the monitor, NaN while nothing is measured yet."""
        numbers = self.monitor.numbers()
        if numbers["position"] < BLOCK:
            numbers |= {name: math.nan for name, value in numbers.items() if isinstance(value, float)}
        return numbers

    def summary(self, alarms: Mapping[str, OperationRow], names: Sequence[str]) -> dict[str, Any]:
        """The numbers of now, alarms that stand, and the last blocks and answers."""
        last = [(one, learned, when) for answers, learned, when in self._last for one in answers][-_MOST_ANSWERS:]
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
                for one, learned, when in last
            ],
        }


def alarm_entry(row: OperationRow) -> dict[str, Any]:
    """A row `alarm` as it is shown."""
    return {"sequence": row.sequence, "time": row.time, **row.argument}
