"""Reactions: what an alarm changes while it stands. They concern answers and what is learned next, nothing before."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pta.errors import InvalidParameter, require_known, shown
from pta.monitor.alarms import FOREIGN, KINDS, ONE_SOURCE, SILENT
from pta.monitor.monitor import Monitor
from pta.monitor.sources import flooding, learned_weights

REACTIONS = ("note", "hold", "zero-shot", "cap")
CAP_SHARE = 0.3  # of the weight that a class learns within a window: the most that a source gives that floods it
CAP_FREE = 2.0  # the weight per class and window that such a source may always give


def parse_reactions(given: Iterable[str]) -> dict[str, str]:
    """Reactions by alarm, from texts such as `foreign-input=hold`.

    >>> parse_reactions(["foreign-input=hold", "one-source=cap"])
    {'foreign-input': 'hold', 'one-source': 'cap'}
    """
    chosen: dict[str, str] = {}
    for text in given:
        kind, equals, reaction = text.partition("=")
        if not equals:
            raise InvalidParameter(f"{shown(text)} must have the form ALARM=REACTION, such as foreign-input=hold")
        require_known("alarm", kind, KINDS)
        require_known("reaction", reaction, REACTIONS)
        if reaction == "cap" and kind != ONE_SOURCE:
            raise InvalidParameter(f"cap limits what one source gives, so it is for {ONE_SOURCE}, not for {kind}")
        if kind == SILENT and reaction != "note":
            raise InvalidParameter(f"{SILENT} means that no samples come, so {reaction} does nothing; leave it out")
        if chosen.setdefault(kind, reaction) != reaction:
            raise InvalidParameter(f"{kind} has two reactions, {chosen[kind]} and {reaction}; give one of them")
    return chosen


def may_hold(reactions: Mapping[str, str]) -> bool:
    """Whether a reaction may keep samples from being learned."""
    return not {"hold", "cap"}.isdisjoint(reactions.values())


@dataclass(frozen=True)
class StreamGuard:
    """The reactions of one stream that are chosen, by alarm."""

    monitor: Monitor
    reactions: Mapping[str, str]

    @property
    def can_hold(self) -> bool:
        """Whether a reaction may change what is learned or answered."""
        return any(reaction != "note" for reaction in self.reactions.values())

    @property
    def acting(self) -> frozenset[str]:
        """The reactions to the alarms that stand; what cannot be tested now is not reacted to."""
        untested = FOREIGN if self.monitor.is_ordered else None
        return frozenset(self.reactions.get(kind, "note") for kind in self.monitor.standing if kind != untested)

    def learns(self, zero_shot: Tensor, named: Sequence[str]) -> NDArray[np.bool_]:
        """Which of the next samples are learned, by their B×C zero-shot logits; at most up to the end of a block."""
        acting, monitor = self.acting, self.monitor
        if "hold" in acting:
            return np.zeros(len(zero_shot), np.bool_)
        if "cap" not in acting or not named:
            return np.ones(len(zero_shot), np.bool_)
        floods, (own, of_class) = flooding(monitor.memory), learned_weights(monitor.memory, monitor.since_block())
        block, learns = monitor.scored(zero_shot), list[bool]()
        for label, weight, source in zip(block.labels.tolist(), block.confidence.tolist(), named, strict=True):
            given, total = own.get((source, label), 0.0) + weight, of_class.get(label, 0.0) + weight
            learns.append((source, label) not in floods or given <= max(CAP_FREE, CAP_SHARE * total))
            if learns[-1]:
                own[source, label], of_class[label] = given, total
        return np.array(learns, np.bool_)
