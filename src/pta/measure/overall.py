"""B against A over several sets at once: the mean difference, and on how many sets each is better.

1. On one set the difference is B's accuracy minus A's over all answers that both gave. Over the sets it is the mean.
2. A resample draws as many sets as there are, and in each as many orders as both have run and as many samples as it
   has, all with replacement. Every sample comes in every order, so samples and orders are drawn apart.
3. The middle 95 % of the differences of the resamples is the interval. The p-value is twice the share of the resamples
   on the other side of 0, corrected by Holm for the number of comparisons.
4. B wins on a set if it is better by the interval of that set alone. A set on which neither is better is a tie.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

import numpy as np

from pta.measure.compare import Comparison, Paired, compare, paired
from pta.measure.contenders import Contender, names
from pta.measure.difference import FEWEST_CHANGED, Numbers, Resampling, bootstrap_means, holm, points
from pta.measure.record import Record

FEWEST_SETS = 6
"""If B is better on fewer sets, and on all, that happens by chance in more than 5 % of cases (sign test)."""

Labels = tuple[str, str]
Pair = tuple[Contender, Contender]


@dataclass(frozen=True)
class Overall:
    """B against A over all sets that have both; differences in points."""

    labels: Labels  # of A and B
    by_set: tuple[Comparison, ...]
    difference: float
    interval: tuple[float, float]
    p_value: float
    corrected: float  # the p-value, for the number of comparisons
    resampling: Resampling

    @property
    def wins(self) -> int:
        """Sets on which B is better."""
        return sum(one.better == "B" for one in self.by_set)

    @property
    def losses(self) -> int:
        """Sets on which A is better."""
        return sum(one.better == "A" for one in self.by_set)

    @property
    def ties(self) -> int:
        """Sets on which neither is."""
        return len(self.by_set) - self.wins - self.losses

    @property
    def better(self) -> str | None:
        """A or B, if the corrected p-value is small enough."""
        return None if self.corrected >= 1 - self.resampling.level else "B" if self.difference > 0 else "A"

    @property
    def answer(self) -> str:
        """The verdict in a few words."""
        sets = "this set" if len(self.by_set) == 1 else f"these {len(self.by_set)} sets"
        of = f" on {sets}" if len(self.by_set) < FEWEST_SETS else ""
        return f"{self.better} is better{of}" if self.better else "cannot tell"

    @property
    def verdict(self) -> str:
        """The verdict in a sentence."""
        low, high = map(points, self.interval)
        measured = f"{points(self.difference)} points over {len(self.by_set)} set{'s' * (len(self.by_set) > 1)}"
        certain = f"{100 * self.resampling.level:g} %: {low} to {high}; p = {self.corrected:.2g} after Holm"
        return f"{self.answer}: {measured} ({certain}); {self.wins} won, {self.ties} tied, {self.losses} lost"

    def record(self) -> Record:
        """What is written to JSON."""
        measured = ("difference", "interval", "p_value", "corrected", "wins", "ties", "losses", "better", "verdict")
        return {
            "a": self.labels[0],
            "b": self.labels[1],
            "sets": len(self.by_set),
            **{name: getattr(self, name) for name in measured},
            **vars(self.resampling),
            "by_set": [one.record() for one in self.by_set],
        }


def by_labels(pairs: Iterable[Pair]) -> dict[Labels, list[Pair]]:
    """Pairs of all datasets by the names that tell contenders of a dataset apart."""
    found: dict[Labels, list[Pair]] = {}
    by_dataset: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_dataset.setdefault(pair[0].dataset, []).append(pair)
    for own in by_dataset.values():
        contenders = list(dict.fromkeys(one for pair in own for one in pair))
        label = dict(zip(contenders, names(contenders), strict=True))
        for a, b in own:
            found.setdefault((label[a], label[b]), []).append((a, b))
    return found


def compare_overall(groups: Mapping[Labels, Sequence[Pair]], resampling: Resampling | None = None) -> list[Overall]:
    """Compare each pair of names over all of its sets, with Holm's correction for the number of pairs."""
    done = [_overall(labels, pairs, resampling or Resampling()) for labels, pairs in groups.items()]
    corrected = holm([one.p_value for one in done])
    return [replace(one, corrected=p_value) for one, p_value in zip(done, corrected, strict=True)]


def _overall(labels: Labels, pairs: Sequence[Pair], resampling: Resampling) -> Overall:
    sets = [paired(*pair) for pair in pairs]
    by_set = tuple(compare(*pair, resampling, own) for pair, own in zip(pairs, sets, strict=True))
    difference = fmean(one.difference for one in by_set)
    (low, high), p_value = resampling.judge(difference, partial(_resampled, sets, resampling))
    if sum(one.changed for one in by_set) < FEWEST_CHANGED:
        p_value = 1.0
    return Overall(labels, by_set, difference, (100 * low, 100 * high), p_value, p_value, resampling)


def _resampled(sets: Sequence[Paired], resampling: Resampling, sign: int) -> Numbers:
    """The mean difference over the sets of each resample, times a sign."""
    generator = np.random.default_rng(resampling.seed)
    drawn = generator.integers(len(sets), size=(resampling.resamples, len(sets)))
    differences = np.empty(drawn.shape)
    for number, one in enumerate(sets):
        here, changes = drawn == number, sign * (one.after - one.before)
        differences[here] = bootstrap_means(changes, int(here.sum()), generator, one.times)
    return np.asarray(differences.mean(axis=1))
