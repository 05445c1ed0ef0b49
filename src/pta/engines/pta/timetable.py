"""Every class's own clock: when it is touched, arranged so that all classes advance together."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pta.engines.pta.touches import Touches


@dataclass(frozen=True)
class Timetable:
    """Classes never influence each other, so round k can bring each class to its k-th touch, whenever that is.

    Classes with more touches come first: those that take part in round k are the first `rows[k]` ones.
    """

    classes: NDArray[np.int64]  # M class numbers
    when: NDArray[np.int64]  # (rounds+1)×M sample numbers, the batch size where a class has no further touch
    probabilities: NDArray[np.float64]  # rounds×M, of each touch
    rows: list[int]  # for each round, how many classes have that touch

    @classmethod
    def of(cls, touches: Touches, also: NDArray[np.bool_]) -> "Timetable":
        """The timetable of the touched classes and of the `also` flagged ones, which just wait."""
        counts = np.bincount(touches.classes, minlength=len(also))
        first = np.cumsum(counts) - counts  # where a class's touches begin, they being sorted by class
        touched = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        everyone = np.concatenate([touched, np.flatnonzero(also & (counts == 0))])
        rounds = int(counts.max())
        rows = [int(np.count_nonzero(counts > round_)) for round_ in range(rounds)]
        when = np.full((rounds + 1, len(everyone)), touches.count)
        probabilities = np.zeros((rounds, len(everyone)))
        for round_, taking_part in enumerate(rows):
            touch = first[touched[:taking_part]] + round_
            when[round_, :taking_part] = touches.samples[touch]
            probabilities[round_, :taking_part] = touches.probabilities[touch]
        return cls(everyone, when, probabilities, rows)
