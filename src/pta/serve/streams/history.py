"""Which rows of a stream are in force: what resets, rewinds, un-learning, imports and undo mean.

The state of a stream is the replay, group by group in order of sequence numbers, of the samples that no operation in
force excludes.

* *Reset* or *import* at o excludes all samples before o. A reset of some classes is an event at o and excludes none.
* *Unlearn* of a source at o excludes its samples before o.
* *Rewind* to t at o excludes the samples after t and before o, and lifts resets, imports and rewinds between them. What
  those had lifted is in force again. Un-learning stays in force.
* *Label* gives samples a class, or excludes them as samples of no class. It stays in force as un-learning does. The
  last label of a sample counts, and a sample that is excluded has none.
* *Undo* lifts the last operation in force. Un-learning that erased the samples is passed over.
* *Freeze* and *thaw* change no state, and neither does *answers*, which says whose answers are given.
* *Classes* says that classes were added, from which row on samples are compared with them, too. Nothing lifts it.
* *Alarm* says that an alarm of a monitor was raised or is over, and what follows from it while it stands. It changes no
  state, and nothing lifts it.

A label is in force from its row on, and the state of a running stream follows later. A row *corrected* says up to which
label row it had come.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pta.serve.journal.rows import OperationRow
from pta.serve.streams.labels import NONE, UNKNOWN, Labels, Span, within

LIFTABLE = ("reset", "import", "rewind", "unlearn", "label")
"""The operations that can be undone."""
_STAYING = ("unlearn", "label")  # under a rewind
_REPLAYED = ("rewind", "unlearn", "undo")  # after which a state has all labels that came before
STATELESS = ("freeze", "thaw", "answers", "alarm", "label", "corrected")
"""The operations after which a state goes on as it is."""


@dataclass(frozen=True)
class History:
    """What the operations of a stream leave in force."""

    in_force: tuple[OperationRow, ...]
    """Those of `LIFTABLE` that are not lifted."""
    undoable: OperationRow | None
    """What an undo would lift."""
    events: tuple[OperationRow, ...]
    """The import that the state starts from, if it does, and after the start resets of classes and added ones."""
    first_classes: int | None
    """The number of classes that the state starts with, if some were added after its stream was made."""
    frozen: bool
    labels: Labels
    """Those in force, also of samples that are excluded."""
    alarms: dict[str, OperationRow]
    """The rows of the alarms that stand, by kind."""
    _switches: tuple[tuple[int, bool], ...]  # from which row on zero-shot's answers are given, or no longer
    _excluded: tuple[Span, ...]
    _excluded_of: dict[str, tuple[Span, ...]]
    _without_samples: tuple[int, ...]
    _fingerprints: dict[int, str] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, operations: Iterable[OperationRow], lifted: Iterable[OperationRow] = ()) -> Self:
        """The history after these operations, which come in order, as if some were lifted at the end."""
        operations = tuple(operations)
        undone = {one.sequence for one in lifted}
        for position, operation in enumerate(operations):
            if operation.kind == "undo" and (last := _undoable(_in_force(operations[:position], undone))):
                undone.add(last.sequence)
        in_force = _in_force(operations, undone)
        starts = [one for one in in_force if _is_start(one)]
        start = starts[-1].sequence if starts else 0
        rewinds = [(one.argument["to"] + 1, one.sequence - 1) for one in in_force if one.kind == "rewind"]
        excluded = _joined([(1, start - 1), *rewinds])
        of_sources: dict[str, list[Span]] = {}
        for one in in_force:
            if one.kind == "unlearn":
                span = one.argument.get("first", 1), one.sequence - 1
                of_sources.setdefault(one.argument["source"], []).append(span)
        excluded_of = {source: _without(_joined(spans), excluded) for source, spans in of_sources.items()}
        labels = [one.argument for one in in_force if one.kind == "label"]
        freezing = [one.kind for one in operations if one.kind in ("freeze", "thaw")]
        events = [one for one in in_force if one.kind == "import" or (one.kind == "reset" and not _is_start(one))]
        growths = [one for one in operations if one.kind == "classes"]
        counts = [*(one.argument["before"] for one in growths[:1]), *(one.argument["count"] for one in growths)]
        later = sorted((one for one in [*events, *growths] if one.sequence >= start), key=lambda one: one.sequence)
        return cls(
            in_force=in_force,
            undoable=_undoable(in_force),
            events=tuple(later),
            first_classes=counts[sum(one.sequence < start for one in growths)] if growths else None,
            frozen=freezing[-1:] == ["freeze"],
            labels=Labels.of(labels, excluded, excluded_of),
            alarms=_standing(operations),
            _switches=tuple(_switches(operations)),
            _excluded=excluded,
            _excluded_of=excluded_of,
            _without_samples=tuple(one.sequence for one in operations),
        )

    @property
    def unlearned(self) -> dict[str, int]:
        """The sources that are un-learned, and up to which row: the last row of a source has the largest number."""
        return {row.argument["source"]: row.sequence for row in self.in_force if row.kind == "unlearn"}

    def mask(self, sequences: NDArray[np.int64], sources: Sequence[str | None]) -> NDArray[np.bool_]:
        """Which of these samples are excluded."""
        mask = within(sequences, self._excluded)
        for source, spans in self._excluded_of.items():
            if source in sources:
                mask |= within(sequences, spans) & np.array([one == source for one in sources])
        return mask | (self.labels.find(sequences) == NONE) if self.labels else mask

    def labels_of(self, sequences: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The classes that these samples are labelled with, as `Adapter.step` takes them; None if none has a label."""
        labels = self.labels.find(sequences) if self.labels else None
        return None if labels is None or (labels == UNKNOWN).all() else labels

    @property
    def answers(self) -> str:
        """Whose answers are given now: `adapted` or `zero-shot`."""
        return "zero-shot" if self._switches and self._switches[-1][1] else "adapted"

    def was_zero_shot(self, sequences: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which samples were answered with zero-shot's answers."""
        given = [False, *(is_zero_shot for _, is_zero_shot in self._switches)]
        return np.array(given)[np.searchsorted([sequence for sequence, _ in self._switches], sequences)]

    def spans(self, after: int, until: int) -> list[Span]:
        """The rows after one and up to another that are in force, but for un-learned sources."""
        return list(_without(_joined([(after + 1, until)]), self._excluded))

    def fingerprint(self, until: int) -> str:
        """A text that two histories share only if the same samples and events up to a sequence number are in force.

        A snapshot of that moment is right under every history with the fingerprint it was taken under.
        """
        if until not in self._fingerprints:
            self._fingerprints[until] = self._fingerprint(until)
        return self._fingerprints[until]

    def _fingerprint(self, until: int) -> str:
        whole = (1, until)
        excluded = _joined([*self._excluded, *((one, one) for one in self._without_samples)])
        said = (
            _cut(excluded, whole),
            sorted((source, cut) for source, spans in self._excluded_of.items() if (cut := _cut(spans, whole))),
            [(one.sequence, one.kind, one.argument) for one in self.events if one.sequence <= until],
        )
        content = json.dumps(said, sort_keys=True).encode() + self.labels.content(until)
        return blake2b(content, digest_size=16).hexdigest()


def waiting(operations: Iterable[OperationRow]) -> list[OperationRow]:
    """The labels that the state of a running stream had not come to after these operations."""
    labels: list[OperationRow] = []
    for one in operations:
        if one.kind == "label":
            labels.append(one)
        elif one.kind in _REPLAYED:
            labels = []
        elif one.kind == "corrected":
            labels = [label for label in labels if label.sequence > one.argument["until"]]
    return labels


def _standing(operations: Iterable[OperationRow]) -> dict[str, OperationRow]:
    """The last rows of alarms that are not over."""
    last = {one.argument["kind"]: one for one in operations if one.kind == "alarm"}
    return {kind: one for kind, one in last.items() if one.argument["raised"]}


def _switches(operations: Iterable[OperationRow]) -> Iterator[tuple[int, bool]]:
    """Zero-shot's answers are given if a person chose them, or while an alarm stands that is reacted to so."""
    is_chosen, reacting = False, set[str]()
    for one in operations:
        if one.kind == "answers":
            is_chosen = one.argument["answers"] == "zero-shot"
        elif one.kind == "alarm":
            kind, is_acting = one.argument["kind"], one.argument["raised"] and one.argument["reaction"] == "zero-shot"
            reacting = reacting | {kind} if is_acting else reacting - {kind}
        else:
            continue
        yield one.sequence, is_chosen or bool(reacting)


def _is_start(operation: OperationRow) -> bool:
    return operation.kind == "import" or (operation.kind == "reset" and operation.argument.get("classes") is None)


def _in_force(operations: Sequence[OperationRow], undone: set[int]) -> tuple[OperationRow, ...]:
    """From the last operation to the first, because a rewind lifts what came before it."""
    kept: list[OperationRow] = []
    rewound = None  # everything after this sequence number is lifted
    for one in reversed(operations):
        if one.sequence in undone or one.kind not in LIFTABLE:
            continue
        if one.kind not in _STAYING and rewound is not None and one.sequence > rewound:
            continue
        kept.append(one)
        if one.kind == "rewind":
            rewound = one.argument["to"]
    return tuple(reversed(kept))


def _undoable(in_force: Iterable[OperationRow]) -> OperationRow | None:
    return next((one for one in reversed(tuple(in_force)) if not one.argument.get("erase")), None)


def _joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same numbers in as few spans as possible.

    >>> _joined([(5, 9), (1, 0), (1, 3), (4, 4), (12, 13)])
    ((1, 9), (12, 13))
    """
    joined: list[Span] = []
    for first, last in sorted(spans):
        if first > last:
            continue
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return tuple(joined)


def _cut(spans: Iterable[Span], to: Span) -> tuple[Span, ...]:
    """What of the spans lies within another one."""
    return _joined((max(first, to[0]), min(last, to[1])) for first, last in spans)


def _without(spans: Sequence[Span], others: Sequence[Span]) -> tuple[Span, ...]:
    """What of some spans lies in none of the others; both are joined.

    >>> _without([(2, 10)], [(1, 3), (6, 7)])
    ((4, 5), (8, 10))
    """
    starts = [1, *(last + 1 for _, last in others)]
    ends = [*(first - 1 for first, _ in others), sys.maxsize]
    return _joined(piece for gap in zip(starts, ends, strict=True) for piece in _cut(spans, gap))
