"""Comparison of two contenders by a paired bootstrap over the samples that both have predicted.

1. For every sample, d is how often B is right on it minus how often A is, over the orders that both have run, and t how
   often it came. The difference of the accuracies is the sum of d over the sum of t.
2. Resample the samples, with replacement, and take this difference; many times. As d and t have few distinct values,
   drawing how often each pair occurs (a multinomial) is the same and needs no list of samples. A sample that came
   several times is resampled as one.
3. The middle 95 % of these differences is the interval. If 0 is outside, one is better.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from pta.core.parameters import require_count, require_number
from pta.errors import InvalidSamples
from pta.measure.contenders import Contender, names
from pta.measure.record import Counts, Record
from pta.measure.texts import number, with_minus

Numbers = NDArray[np.float64]

_DRAWS_AT_ONCE = 2**22
_DIGITS = 12  # of a mean: thirds do not add up exactly, and the last bits must not decide on which side of 0 it is


@dataclass(frozen=True)
class Resampling:
    """How an interval is computed: confidence level, number of resamples, and seed."""

    level: float = 0.95
    resamples: int = 20_000
    seed: int = 1

    def __post_init__(self) -> None:
        require_number("level", self.level, 0.5, 0.999)
        require_count("resamples", self.resamples, 1000, 10_000_000)
        require_count("seed", self.seed, 0, 2**63 - 1)

    def interval(self, differences: Numbers, times: Numbers | None = None) -> tuple[float, float]:
        """The percentile interval of the mean; where that is not 0, negated differences give its mirror image."""
        sign = -1 if differences.sum().round(_DIGITS) < 0 else 1
        means = bootstrap_means(sign * differences, self.resamples, self.seed, times)
        tails = [(1 - self.level) / 2, (1 + self.level) / 2]
        low, high = np.quantile(means, tails, method="inverted_cdf").tolist()
        return (low, high) if sign == 1 else (0.0 - high, 0.0 - low)


def bootstrap_means(differences: Numbers, resamples: int, seed: int, times: Numbers | None = None) -> Numbers:
    """The mean of each resample; the order of the differences does not matter.

    With `times`, a difference is the sum over as many answers, and the mean is that of answers.
    """
    pairs = np.stack([differences, np.ones(len(differences)) if times is None else times])
    (values, weights), counts = np.unique(pairs, axis=1, return_counts=True)
    generator, n = np.random.default_rng(seed), len(differences)
    means = np.empty(resamples)
    for part in np.array_split(means, -(-resamples * len(values) // _DRAWS_AT_ONCE)):
        draws = generator.multinomial(n, counts / n, size=len(part))
        part[:] = draws @ values / (draws @ weights)
    return means.round(_DIGITS)


@dataclass(frozen=True)
class Comparison:
    """B against A on one dataset; accuracies and differences in percent, on the samples that both have predicted."""

    a: Contender
    b: Contender
    labels: tuple[str, str]  # names that tell them apart
    n: int  # different samples that both have seen
    accuracies: tuple[float, float]  # of A and B, over the orders compared
    difference: float  # B's accuracy minus A's
    interval: tuple[float, float]  # of the difference
    standard_error: float  # of the difference
    fixed: float  # right answers of B to a sample beyond those of A, summed; on average over the orders
    broken: float  # the other way round
    resampling: Resampling
    note: str  # which orders were compared, if not simply all

    @property
    def better(self) -> str | None:
        """A or B, if the interval excludes 0."""
        low, high = self.interval
        return "B" if low > 0 else "A" if high < 0 else None

    @property
    def samples_needed(self) -> int | None:
        """About how many samples a difference of this size would need to be significant."""
        if self.better or not self.difference:
            return None
        z = NormalDist().inv_cdf((1 + self.resampling.level) / 2)
        return max(self.n + 1, math.ceil(self.n * (z * self.standard_error / self.difference) ** 2))

    @property
    def answer(self) -> str:
        """The verdict in two or three words."""
        if self.better:
            return f"{self.better} is better"
        return "cannot tell" if self.standard_error else "no difference"

    @property
    def verdict(self) -> str:
        """The verdict in a sentence."""
        if not self.better and not self.standard_error:
            return f"{self.answer}: both are correct equally often on each of {self.n:,} samples"
        low, high = self.interval if self.better != "A" else (-self.interval[1], -self.interval[0])
        within = f"({100 * self.resampling.level:g} %: {points(low)} to {points(high)})"
        if self.better:
            return f"{self.answer} by {abs(self.difference):.2f} points {within}"
        noise = f"{points(self.difference)} points is within the noise of {self.n:,} samples {within}"
        needed = self.samples_needed
        advice = f"; a significant difference of this size would need about {needed:,} samples" if needed else ""
        return f"{self.answer}: the difference of {noise}{advice}"

    def record(self) -> Record:
        """What is written to JSON."""
        sides = {
            key: {
                "label": label,
                **{name: getattr(one, name) for name in ("method", "params", "stream")},
                "accuracy": accuracy,
            }
            for key, one, label, accuracy in zip("ab", (self.a, self.b), self.labels, self.accuracies, strict=True)
        }
        measured = ("n", "difference", "interval", "standard_error", "fixed", "broken")
        told = ("better", "samples_needed", "verdict", "note")
        return {
            "dataset": self.a.dataset,
            **sides,
            **{name: getattr(self, name) for name in measured},
            **vars(self.resampling),
            **{name: getattr(self, name) for name in told},
        }


def points(value: float) -> str:
    """A number of points as it stands in a sentence.

    >>> points(-0.304), points(1.3), points(-0.001)
    ('−0.30', '1.30', '0.00')
    """
    return with_minus(number(value, 2))


def compare(a: Contender, b: Contender, resampling: Resampling | None = None) -> Comparison:
    """Compare B with A, sample by sample, in the orders that both have run."""
    if a.samples != b.samples:
        raise InvalidSamples(
            f"{a.dataset} has {a.samples:,} samples in A and {b.samples:,} in B: other data; "
            "samples can only be paired if both files come from the same list of samples"
        )
    if a.labels != b.labels:
        raise InvalidSamples(
            f"{a.dataset} has other labels in A than in B, or in another order; samples are paired by their number, so "
            "both files must come from the same list of samples"
        )
    resampling, note = resampling or Resampling(), ""
    shared, drawn = a.right.keys() & b.right, [one.stream.get("classes_drawn", "all") for one in (a, b)]
    if drawn[0] != drawn[1] or (drawn[0] != "all" and not shared):
        raise InvalidSamples(
            f"{a.dataset}: A tells {drawn[0]} classes apart and B {drawn[1]}, which each seed draws anew; compare runs "
            "with the same --classes-drawn and --seed"
        )
    orders = [(seed, seed) for seed in a.right if seed in shared] or list(product(a.right, b.right))
    if not shared:
        note = "no seed is in both: every order of A with every order of B"
    elif a.right.keys() != b.right.keys():
        note = f"only seeds that both have: {', '.join(str(seed) for seed, _ in orders)}"
    came = np.array([np.minimum(a.seen[one], b.seen[other]) for one, other in orders])
    both = came.any(axis=0)
    if not both.any():
        raise InvalidSamples(f"{a.dataset}: A and B have no sample in common")
    before, after = (_right(one, seeds, came) for one, seeds in zip((a, b), zip(*orders, strict=True), strict=True))
    changes, times = (after - before).sum(axis=0)[both], came.sum(axis=0)[both]
    low, high = resampling.interval(changes, times)
    difference = float(changes.sum() / times.sum())
    label_a, label_b = names([a, b])
    return Comparison(
        *(a, b, (label_a, label_b), len(times)),
        accuracies=(100 * float(before.sum() / times.sum()), 100 * float(after.sum() / times.sum())),
        difference=100 * round(difference, _DIGITS),
        interval=(100 * low, 100 * high),
        standard_error=100 * float(np.std((changes - difference * times) / times.mean())) / math.sqrt(len(times)),
        fixed=float((after - before).clip(min=0).sum()) / len(orders),
        broken=float((before - after).clip(min=0).sum()) / len(orders),
        resampling=resampling,
        note=note,
    )


def _right(one: Contender, seeds: Sequence[int], came: Counts) -> Numbers:
    """How often each sample is right in each order, if it comes as often as it came to both."""
    return came * [one.right[seed] for seed in seeds] / np.maximum([one.seen[seed] for seed in seeds], 1)
