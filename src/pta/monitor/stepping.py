"""Steps of an adapter that is watched: in pieces between which alarms are looked at, with the reactions to them."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pta.core.labels import NONE, Labels
from pta.core.samples import Samples
from pta.methods import Adapter
from pta.monitor.alarms import Alarm
from pta.monitor.reactions import StreamGuard


class WatchedPiece(NamedTuple):
    """Some samples of a batch, in order."""

    rows: slice
    logits: Tensor
    probabilities: Tensor  # of the logits
    zero_shot: Tensor  # logits
    learned: NDArray[np.bool_]
    as_zero_shot: bool  # whether a reaction wants zero-shot's answers
    alarms: list[Alarm]  # raised or over after these samples or, on a GPU without reactions, after those before
    blocks: list[dict[str, Any]]  # the monitor's numbers after each block that was completed


def watched_steps(
    adapter: Adapter,
    guard: StreamGuard,
    samples: Samples,
    labels: Labels,
    sources: Sequence[str],
    *,
    learn: bool = True,
) -> Iterator[WatchedPiece]:
    """Learn and answer checked samples, count them in the monitor, and obey the guard.

    Labels are numbers, UNKNOWN, or NONE for a sample that is not learned; sources are those of all samples, or none. A
    method that answers a batch at a time gets the batch as it is.
    """
    monitor, classifier, start = guard.monitor, adapter.classifier, 0
    while start < len(samples):
        room = len(samples) if adapter.scope == "batch" else monitor.room(reacting=guard.can_hold)
        rows = slice(start, min(len(samples), start + room))
        piece = samples if rows == slice(0, len(samples)) else samples[rows]
        acting = guard.acting if guard.can_hold else frozenset[str]()
        zero_shot = classifier.logits(piece.features.to(classifier.anchors))
        learns = (labels[rows] != NONE) & learn
        if learn and acting:
            learns &= guard.learns(zero_shot, sources[rows])
        logits = adapter.step_or_answer(piece, np.where(learns, labels[rows], NONE))
        chances, answers = adapter.probabilities_unchecked(logits), logits.argmax(dim=1)
        seen = piece.features, zero_shot, chances, answers, learns, sources[rows], adapter
        alarms = monitor.add(*seen, late=zero_shot.is_cuda and not guard.can_hold)
        yield WatchedPiece(rows, logits, chances, zero_shot, learns, "zero-shot" in acting, alarms, monitor.series)
        start = rows.stop
