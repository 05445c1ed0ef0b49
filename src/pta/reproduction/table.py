"""Table: an experiment with its numbers, ours and the paper's, and where each of ours comes from."""

from dataclasses import dataclass, field
from typing import Any

from pta.evaluation.record import Record
from pta.reproduction.declaration import Erratum, Experiment, Row

NOT_YET, NO_DATA, CANNOT = "not yet", "no data", "cannot run"
"""Why there is no number of ours."""


@dataclass(frozen=True)
class Source:
    """One dataset's share in a number of ours: the records of all seeds, and how texts and views were made."""

    dataset: str
    records: tuple[Record, ...]
    prompts: str = ""
    views: str = ""


@dataclass(frozen=True)
class Cell:
    """One number.

    Where a mean could only be taken of some columns, `printed` is the mean of the paper's numbers in the same ones.
    """

    ours: float | None = None
    printed: float | None = None
    missing: str = ""  # why there is none of ours, in a word or two
    partial: str = ""  # of how many parts a mean is, if not of all, e.g. `3 of 10`
    metric: str = "accuracy"
    erratum: Erratum | None = None  # why the printed number cannot be right
    rests_on_errata: bool = False  # whether the paper's number was computed from others of which one was corrected
    sources: tuple[Source, ...] = ()  # what ours was computed from

    @property
    def paper(self) -> float | None:
        """The paper's number, corrected where we know what it should be."""
        return self.erratum.instead if self.erratum and self.erratum.instead is not None else self.printed

    @property
    def reliable(self) -> float | None:
        """The paper's number, if it is right or it is known what it should be."""
        return None if self.erratum and self.erratum.instead is None else self.paper

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.ours is None or self.paper is None else self.ours - self.paper

    @property
    def records(self) -> list[Record]:
        """All records of its sources."""
        return [record for source in self.sources for record in source.records]


@dataclass(frozen=True)
class Line:
    """A row with its cells, one for each heading of the table."""

    row: Row
    cells: tuple[Cell, ...]
    gain: Cell | None = None  # over the baseline in the last column that is a mean; None for the baseline itself


@dataclass(frozen=True)
class Table:
    """An experiment with its numbers."""

    experiment: Experiment
    headings: tuple[str, ...]  # of its columns, as they were for the data that was there
    lines: tuple[Line, ...]
    comparable: bool  # whether the data are the paper's; if not, only gains can be compared with it
    about: dict[str, Any]  # what the numbers were made with, e.g. model and data, in words, by name
    notes: tuple[str, ...] = ()  # what a reader must know, one sentence each
    absent: dict[str, str] = field(default_factory=dict)  # the datasets that were not there, each with the reason
