"""When an answer counts as changed: not with one picture, and not while two classes are about equally probable."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from pta.core.parameters import require_count, require_number

MOST_EQUAL = 10_000


@dataclass(frozen=True)
class Confirmation:
    """What a change needs: so many equal answers in a row, each probable enough while the old one is not any more."""

    equal: int = 3
    enter: float = 0.5  # the least probability of the new answer
    leave: float = 0.5  # the old answer must be less probable than this

    def __post_init__(self) -> None:
        require_count("confirm", self.equal, 1, MOST_EQUAL)
        require_number("enter", self.enter, 0.0, 1.0)
        require_number("leave", self.leave, 0.0, 1.0)


@dataclass
class Confirm:
    """The confirmed answer of a stream of pictures, and how close it is to a change.

    >>> confirm, pictures = Confirm(Confirmation(equal=2)), [("open", 0.9), ("shut", 0.9), ("open", 0.9), ("open", 0.8)]
    >>> [confirm.add({label: probability}) for label, probability in pictures]
    [None, None, None, 'open']
    """

    needs: Confirmation
    label: str | None = None  # the confirmed answer
    candidate: str | None = None  # what it may change to
    seen: int = 0  # equal answers in a row that speak for that

    def add(self, probabilities: Mapping[str, float]) -> str | None:
        """The probabilities of a picture by class, the best first; returns the answer if it changes with this picture.

        The class of the confirmed answer, if it is not among them, has the probability 0.
        """
        best = next(iter(probabilities))
        is_left = self.label is None or probabilities.get(self.label, 0.0) < self.needs.leave
        if best == self.label or probabilities[best] < self.needs.enter or not is_left:
            self.begin_again()
            return None
        self.seen = self.seen + 1 if best == self.candidate else 1
        self.candidate = best
        if self.seen < self.needs.equal:
            return None
        self.label, self.candidate, self.seen = best, None, 0
        return best

    def begin_again(self) -> None:
        """Forget answers that are not confirmed: pictures are missing between them and the next."""
        self.candidate, self.seen = None, 0

    def packed(self) -> dict[str, Any]:
        """What a state keeps of it."""
        kept = asdict(self)
        del kept["needs"]
        return kept

    @classmethod
    def unpacked(cls, needs: Confirmation, kept: Mapping[str, Any]) -> Self:
        """It goes on from what a state kept; the needs may be others than before."""
        label, candidate, seen = kept["label"], kept["candidate"], kept["seen"]
        if not isinstance(label, str | None) or not isinstance(candidate, str | None) or not isinstance(seen, int):
            raise TypeError("not a confirmed answer")
        return cls(needs, label, candidate, seen)
