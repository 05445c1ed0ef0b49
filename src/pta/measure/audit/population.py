"""The population of an audit: the answered rows of a file, of which the changed ones are drawn in a fixed order.

The order follows from a seed and the digest of the file: changed rows are sorted by the sha256 of
`SEED DIGEST draw NUMBER`, where the number counts changed rows in the order of the file, from 0. In the same way the
parity of the first byte of the sha256 of `SEED DIGEST side NUMBER` says which answer is shown first.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pta.errors import UnreadableFile

NAMING = ("path", "id", "place", "sequence")
"""The columns that can tell a row from others."""


@dataclass(frozen=True)
class ChangedRow:
    """A row whose adapted answer is not zero-shot's."""

    named: tuple[tuple[str, str], ...]  # its columns of `NAMING`
    adapted: str
    zero_shot: str

    @property
    def key(self) -> str:
        """What a person sees and what finds its picture: the path, else the id."""
        columns = dict(self.named)
        return columns.get("path") or columns["id"]

    @property
    def place(self) -> int:
        """Its place among the samples of its id."""
        return int(dict(self.named).get("place") or 0)


@dataclass(frozen=True)
class Population:
    """The answered rows of a file, fixed by its digest."""

    source: str
    digest: str  # sha256 of the file, or of the names and digests of several
    answered: int  # rows, without those that are left out
    changed: tuple[ChangedRow, ...]
    class_names: tuple[str, ...]  # that occur as answers, sorted
    unanswered: int  # rows left out, because they have no label
    learned: int  # rows left out, because their label was learned

    def require_changed(self) -> None:
        """Refuse a population without anything to audit."""
        if not self.answered:
            raise UnreadableFile(f"{self.source} holds no answered rows{self.left_out}")
        if not self.changed:
            answers = f"all {self.answered:,} answers are zero-shot's{self.left_out}"
            raise UnreadableFile(f"{self.source}: adaptation changed nothing, {answers}: the gain is exactly 0")

    @property
    def left_out(self) -> str:
        """How many rows do not count, as the end of a sentence."""
        reasons = {"without an answer": self.unanswered, "whose label was learned": self.learned}
        told = " and ".join(f"{count:,} {why}" for why, count in reasons.items() if count)
        return f" (left out: {told})" if told else ""


@dataclass(frozen=True)
class Draws:
    """The changed rows of a population in the order of a seed."""

    population: Population
    seed: int

    @cached_property
    def rows(self) -> list[ChangedRow]:
        """The changed rows as they are drawn."""
        return [self.population.changed[number] for number in self._numbers]

    @cached_property
    def naming(self) -> list[str]:
        """The columns that tell rows from others, in the order of `NAMING`."""
        found = {name for row in self.rows for name, _ in row.named}
        return [name for name in NAMING if name in found]

    def answers(self, draw: int) -> tuple[str, str]:
        """The two answers of a draw in the order in which a person sees them."""
        row = self.rows[draw]
        return (row.adapted, row.zero_shot) if self.adapted_first(draw) else (row.zero_shot, row.adapted)

    def adapted_first(self, draw: int) -> bool:
        """Whether the adapted answer of a draw is the first that a person sees."""
        return _digest(self.seed, self.population.digest, "side", self._numbers[draw])[0] % 2 == 0

    @property
    def fingerprint(self) -> str:
        """What tells these draws from those of other rows or of another seed."""
        return hashlib.sha256(f"{self.seed} {self.population.digest}".encode()).hexdigest()[:16]

    @cached_property
    def _numbers(self) -> Sequence[int]:
        return draw_order(len(self.population.changed), self.seed, self.population.digest)


def draw_order(count: int, seed: int, digest: str) -> list[int]:
    """The numbers below `count` in the order of a seed.

    >>> draw_order(5, seed=1, digest="")
    [2, 4, 1, 3, 0]
    """
    return sorted(range(count), key=lambda number: _digest(seed, digest, "draw", number))


def _digest(seed: int, digest: str, purpose: str, number: int) -> bytes:
    return hashlib.sha256(f"{seed} {digest} {purpose} {number}".encode()).digest()
