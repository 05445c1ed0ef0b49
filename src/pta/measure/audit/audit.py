"""An audit under way: the answers that a person gave to the draws so far, when it ends, and its verdict."""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

from pta.data.label_file import NONE_OF_THEM
from pta.door.safe_text import printable
from pta.errors import InvalidParameter, nearest, shown
from pta.measure.audit.gain_sequence import LEVEL, GainSequence, Side, sequence_of
from pta.measure.audit.population import Draws
from pta.measure.texts import signed, with_minus

Answer = Literal["adapted", "zero-shot", "both", "neither", "cannot tell"]
VALUES: dict[Answer, int] = {"adapted": 1, "zero-shot": -1, "both": 0, "neither": 0, "cannot tell": 0}
"""What an answer counts: +1 where only the adapted one is right, −1 where only zero-shot's is."""
SCREEN = ("first", "second", "both", "neither", "cannot tell")
"""What a person can say about two answers in the order in which they are shown."""

Ending = Literal["verdict", "precision", "most", "all", "stopped"]
_ENDINGS: dict[Ending, str] = {
    "verdict": "It ended with the verdict.",
    "precision": "It ended because the interval was narrower than --precision.",
    "most": "It ended after the labels that --most allows.",
    "all": "It ended because every changed answer has a label: the gain is exact.",
    "stopped": "It was stopped, or has no more labels.",
}


@dataclass(frozen=True)
class Given:
    """What a person said about a draw; the label is a class, `none`, or empty if it is not known."""

    answer: Answer
    label: str = ""
    time: str = ""


@dataclass(frozen=True)
class Audit:
    """The draws of a population, and what was said about the first of them."""

    draws: Draws
    class_names: tuple[str, ...]  # that a label may be
    given: tuple[Given, ...] = ()
    precision: float | None = None  # points
    most: int | None = None  # labels
    is_stopped: bool = False
    is_simulated: bool = False

    def __len__(self) -> int:
        return len(self.given)

    def said(self, said: str, label: str = "") -> "Audit":
        """The audit after a person said one of `SCREEN` about the next draw; the label is for `neither` alone."""
        if said not in SCREEN:
            raise InvalidParameter(f"{shown(said)} is not an answer; {nearest(said, SCREEN)}")
        answer: Any = said
        if said in SCREEN[:2]:
            right = self.draws.answers(len(self))[SCREEN.index(said)]
            label = "" if right == NONE_OF_THEM else right  # a class of that name would be read as none of the classes
            answer = "adapted" if (said == "first") == self.draws.adapted_first(len(self)) else "zero-shot"
        elif label and said != "neither":
            raise InvalidParameter(f"a class can be named for neither, not for {said}")
        elif label not in ("", NONE_OF_THEM, *self.class_names):
            raise InvalidParameter(f"there is no class {shown(label)}; {nearest(label, self.class_names)}")
        elif label in self.draws.answers(len(self)) and label != NONE_OF_THEM:
            raise InvalidParameter(f"{shown(label)} is one of the two answers")
        return self.with_answer(Given(answer, label, datetime.now(UTC).isoformat(timespec="seconds")))

    def with_answer(self, given: Given) -> "Audit":
        """The audit after the next draw."""
        later = replace(self, given=(*self.given, given))
        vars(later)["_sequence"] = self._sequence.after(VALUES[given.answer])  # without the draws before it
        return later

    @cached_property
    def ending(self) -> Ending | None:
        """Why the audit is over, if it is."""
        low, high = self._sequence.ends
        if self._sequence.side != "undecided":
            return "verdict"
        if len(self) == len(self.draws.rows):
            return "all"
        if self.precision is not None and 100 * (high - low) / self.draws.population.answered < self.precision:
            return "precision"
        if self.most is not None and len(self) >= self.most:
            return "most"
        if self.is_stopped:
            return "stopped"
        return None

    @cached_property
    def _sequence(self) -> GainSequence:
        return self._sequence_with(0)

    def _sequence_with(self, unknown: int) -> GainSequence:
        """The sequence if everything that the person could not tell counts as this."""
        values = [unknown if one.answer == "cannot tell" else VALUES[one.answer] for one in self.given]
        return sequence_of(values, len(self.draws.rows))

    def verdict(self, audits: int) -> "AuditVerdict":
        """The verdict of an audit that is over; `audits` is how many there were of this stream, with this one."""
        assert self.ending is not None
        low, high = (100 * end / self.draws.population.answered for end in self._sequence.ends)
        if_wrong, if_right = (self._sequence_with(unknown).side for unknown in (-1, 1))
        return AuditVerdict(self, self._sequence.side, (low, high), if_wrong, if_right, self.ending, audits)


@dataclass(frozen=True)
class AuditVerdict:
    """What an audit found."""

    audit: Audit
    side: Side
    interval: tuple[float, float]  # of the gain, in points
    if_wrong: Side  # the verdict if zero-shot were right wherever the person could not tell
    if_right: Side  # the same if the adapted answer were
    ending: Ending
    audits: int

    @property
    def counts(self) -> dict[str, int]:
        """How often each answer was given."""
        given = Counter(one.answer for one in self.audit.given)
        return {answer: given[answer] for answer in VALUES}

    @property
    def stands(self) -> bool:
        """Whether the verdict does not depend on what the person could not tell."""
        return self.if_wrong == self.if_right == self.side

    def sentences(self) -> list[str]:
        """The verdict, what it rests on and what it is about."""
        population = self.audit.draws.population
        low, high = (with_minus(signed(end, 2)) for end in self.interval)
        interval = f"gain over zero-shot between {low} and {high} points (95 %, at all times)"
        decided = "No difference" if self.interval == (0, 0) else "Undecided"
        said = [f"{decided if self.side == 'undecided' else f'Adaptation {self.side}'}: {interval}."]
        counts = ", ".join(f"{answer} {count:,}" for answer, count in self.counts.items())
        changed = f"{len(population.changed):,} changed of {population.answered:,} answers{population.left_out}"
        labels = f"{len(self.audit):,} label{'s' * (len(self.audit) != 1)}"
        said += [f"{labels} of {changed}: {counts}. {_ENDINGS[self.ending]}"]
        if unknown := self.counts["cannot tell"]:
            would = "would stand" if self.stands else f"would be “{self.if_wrong}” or “{self.if_right}”"
            said += [f"“Cannot tell” ({unknown:,}) counts 0; were all of them −1 or +1, the verdict {would}."]
        said += ["This is about the recorded answers of these rows. That the next ones are alike is your assumption."]
        if self.audits > 1:
            said += [f"There were {self.audits:,} audits of this stream; each holds at 5 % by itself, not all at once."]
        return said

    def record(self) -> dict[str, Any]:
        """All of it for JSON; the same rows, seed and labels give the same."""
        population, audit = self.audit.draws.population, self.audit
        labels = json.dumps([[one.answer, one.label] for one in audit.given])
        return {
            "verdict": self.side,
            "gain_interval_points": [round(end, 6) for end in self.interval],
            "level": LEVEL,
            "ended": self.ending,
            "rows": printable(population.source),
            "rows_digest": population.digest,
            "answered": population.answered,
            "changed": len(population.changed),
            "left_out": {"unanswered": population.unanswered, "learned": population.learned},
            "seed": audit.draws.seed,
            "labels": len(audit),
            "labels_digest": hashlib.sha256(labels.encode()).hexdigest(),
            "answers": self.counts,
            "if_cannot_tell_is": {"zero-shot": self.if_wrong, "adapted": self.if_right},
            "stands": self.stands,
            "simulated": audit.is_simulated,
            "audits": self.audits,
            "sentences": self.sentences(),
        }
