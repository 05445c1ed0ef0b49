"""The difference of two accuracies on the same samples, with the interval of a paired bootstrap.

1. For every sample, d is how often B is right on it minus how often A is, over the orders that both have run, and t how
   often it came. The difference of the accuracies is the sum of d over the sum of t.
2. Resample the samples, with replacement, and take this difference; many times. As d and t have few distinct values,
   drawing how often each pair occurs (a multinomial) is the same and needs no list of samples. A sample that came
   several times is resampled as one.
3. The middle 95 % of these differences is the interval. If 0 is outside, and at least six samples have d ≠ 0, one is
   better. The p-value is twice the share of the resamples on the other side of 0.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pta.core.parameters import require_count, require_number
from pta.measure.stream_run import StreamRun
from pta.measure.texts import number, signed, with_minus

Numbers = NDArray[np.float64]

FEWEST_CHANGED = 6
"""If fewer samples change, all in one direction, that happens by chance in more than 5 % of cases (sign test)."""

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

    def test(self, differences: Numbers, times: Numbers | None = None) -> "Tested":
        """What resamples say of the mean."""
        resampled = partial(bootstrap_means, resamples=self.resamples, seed=self.seed, times=times)
        return self.judge(differences.sum(), lambda sign: resampled(sign * differences))

    def judge(self, observed: float, resampled: Callable[[int], Numbers]) -> "Tested":
        """What resamples say of an observed difference.

        `resampled` gives their differences times a sign. So exchanging A and B gives the mirror image, unless the
        observed difference is 0.
        """
        sign = -1 if round(observed, _DIGITS) < 0 else 1
        means = resampled(sign).round(_DIGITS)
        low, high = np.quantile(means, [(1 - self.level) / 2, (1 + self.level) / 2], method="inverted_cdf").tolist()
        beyond = int(min(np.count_nonzero(means <= 0), np.count_nonzero(means >= 0)))
        p_value = min(1.0, 2 * (1 + beyond) / (1 + len(means)))  # never 0, however few the resamples
        return Tested((low, high) if sign == 1 else (0.0 - high, 0.0 - low), p_value)


class Tested(NamedTuple):
    """What resamples say of a difference."""

    interval: tuple[float, float]  # the middle of them
    p_value: float  # of no difference


def bootstrap_means(
    differences: Numbers, resamples: int, seed: int | np.random.Generator, times: Numbers | None = None
) -> Numbers:
    """The mean of each resample; the order of the differences does not matter.

    With `times`, a difference is the sum over as many answers, and the mean is that of answers. Of several orders,
    each a row, as many are drawn with replacement, apart from the samples.
    """
    rows = np.atleast_2d(differences)
    pairs = np.concatenate([rows, np.ones(rows.shape) if times is None else np.atleast_2d(times)])
    kinds, counts = np.unique(pairs, axis=1, return_counts=True)
    generator, (orders, n) = np.random.default_rng(seed), rows.shape
    means = np.empty(resamples)
    for part in np.array_split(means, -(-resamples * len(counts) // _DRAWS_AT_ONCE)):
        sums = (generator.multinomial(n, counts / n, size=len(part)) @ kinds.T).reshape(-1, 2, orders)
        if orders > 1:
            sums *= generator.multinomial(orders, np.full(orders, 1 / orders), size=len(part))[:, None]
        values, weights = sums.sum(axis=2).T
        part[:] = values / np.maximum(weights, 1)  # an order that lacks all samples drawn says nothing
    return means.round(_DIGITS)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number: whoever believes those below α errs anywhere with a chance of at most α.

    >>> [round(one, 9) for one in holm([0.01, 0.04, 0.03, 0.9])]
    [0.04, 0.09, 0.09, 0.9]
    """
    corrected, largest = list(p_values), 0.0
    ranked = sorted(range(len(p_values)), key=p_values.__getitem__)
    for left, at in zip(range(len(ranked), 0, -1), ranked, strict=True):
        largest = corrected[at] = min(1.0, max(largest, left * p_values[at]))
    return corrected


@dataclass(frozen=True)
class Difference:
    """B's accuracy minus A's on the same samples; accuracies and differences in percent."""

    n: int  # different samples
    accuracies: tuple[float, float]  # of A and B, over the orders compared
    difference: float  # B's accuracy minus A's
    interval: tuple[float, float]  # of the difference
    p_value: float  # of no difference; 1 if fewer samples changed than say anything
    standard_error: float  # of the difference
    fixed: float  # right answers of B to a sample beyond those of A, summed; on average over the orders
    broken: float  # the other way round
    changed: int  # samples that one of them answers correctly more often than the other
    resampling: Resampling

    @classmethod
    def paired(cls, before: Numbers, after: Numbers, times: Numbers, resampling: Resampling | None = None) -> Self:
        """How often A and B are right on each sample and how often it came, orders × samples; each came at least once.

        >>> Difference.paired(np.eye(2), np.ones((2, 2)), np.ones((2, 2))).difference
        50.0
        """
        resampling = resampling or Resampling()
        changes, came = (after - before).sum(axis=0), times.sum(axis=0)
        (low, high), p_value = resampling.test(changes, came)
        changed = int(np.count_nonzero(changes.round(_DIGITS)))
        difference = float(changes.sum() / came.sum())
        return cls(
            n=len(came),
            accuracies=(100 * float(before.sum() / came.sum()), 100 * float(after.sum() / came.sum())),
            difference=100 * round(difference, _DIGITS),
            interval=(100 * low, 100 * high),
            p_value=p_value if changed >= FEWEST_CHANGED else 1.0,
            standard_error=100 * float(np.std((changes - difference * came) / came.mean())) / math.sqrt(len(came)),
            fixed=float((after - before).clip(min=0).sum()) / len(times),
            broken=float((before - after).clip(min=0).sum()) / len(times),
            changed=changed,
            resampling=resampling,
        )

    @classmethod
    def between(
        cls, before: Sequence[StreamRun], after: Sequence[StreamRun], resampling: Resampling | None = None
    ) -> Self:
        """Of runs with labels, each of `after` in the order of its counterpart in `before`."""
        samples = 1 + max(int(run.order.max()) for run in before)
        times = np.array([np.bincount(run.order, minlength=samples) for run in before])
        came = times.any(axis=0)
        old, new = (
            np.array([np.bincount(run.order[run.right], minlength=samples) for run in runs], np.float64)[:, came]
            for runs in (before, after)
        )
        return cls.paired(old, new, times[:, came], resampling)

    @property
    def better(self) -> str | None:
        """A or B, if the interval excludes 0 and enough samples have changed."""
        low, high = self.interval
        return None if self.changed < FEWEST_CHANGED else "B" if low > 0 else "A" if high < 0 else None

    @property
    def samples_needed(self) -> int | None:
        """About how many samples a difference of this size would need to be significant."""
        if self.better or not self.difference:
            return None
        z = NormalDist().inv_cdf((1 + self.resampling.level) / 2)
        return max(self.n + 1, math.ceil(self.n * (z * self.standard_error / self.difference) ** 2))

    def sentence(self, b: str, a: str = "zero-shot", things: str = "images") -> str:
        """The verdict on B, for people who know B and A by these names."""
        old, new = self.accuracies
        right = f"{new:.2f} % of {self.n:,} {things} right, against {old:.2f} %"
        if self.better:
            moved = "gained" if self.better == "B" else "lost"
            return f"{b} {moved} {abs(self.difference):.2f} points over {a} {self.within}: {right}."
        if not self.standard_error:
            return f"No difference found: {b} and {a} are right on the same {things}, {new:.2f} % of {self.n:,}."
        if self.changed < FEWEST_CHANGED:
            few = f"they differ on {self.changed:,} of {self.n:,} {things}, which is too few to tell"
            return f"No difference found between {b} and {a}: {few}."
        needed = self.samples_needed
        decide = f" About {needed:,} labelled {things} would decide a difference of this size." if needed else ""
        return (
            f"No difference found between {b} and {a}: {points(self.difference)} points {self.within}, {right}.{decide}"
        )

    @property
    def signed(self) -> str:
        """The difference with its sign and its interval, for a table."""
        low, high = map(points, self.interval)
        return f"{with_minus(signed(self.difference, 2))} ({low} to {high})"

    @property
    def within(self) -> str:
        """The interval in brackets; that of a loss without its sign, as a sentence about it has it."""
        low, high = self.interval if self.better != "A" else (-self.interval[1], -self.interval[0])
        return f"({100 * self.resampling.level:g} %: {points(low)} to {points(high)})"


def points(value: float) -> str:
    """A number of points as it stands in a sentence.

    >>> points(-0.304), points(1.3), points(-0.001)
    ('−0.30', '1.30', '0.00')
    """
    return with_minus(number(value, 2))
