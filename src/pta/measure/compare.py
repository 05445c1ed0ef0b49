"""Comparison of two contenders on the samples that both have predicted."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from pta.errors import InvalidSamples
from pta.measure.contenders import Contender, names
from pta.measure.difference import FEWEST_CHANGED, Difference, Numbers, Resampling, points
from pta.measure.record import Record


@dataclass(frozen=True, kw_only=True)
class Comparison(Difference):
    """B against A on one dataset, on the samples that both have predicted."""

    a: Contender
    b: Contender
    labels: tuple[str, str]  # names that tell them apart
    note: str  # which orders were compared, if not simply all

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
        if self.better:
            return f"{self.answer} by {abs(self.difference):.2f} points {self.within}"
        if self.changed < FEWEST_CHANGED:
            return f"{self.answer}: A and B differ on {self.changed} of {self.n:,} samples, which is too few"
        noise = f"{points(self.difference)} points is within the noise of {self.n:,} samples {self.within}"
        needed = self.samples_needed
        advice = f"; a significant difference of this size would need about {needed:,} samples" if needed else ""
        return f"{self.answer}: the difference of {noise}{advice}"

    def record(self) -> Record:
        """What is written to JSON."""
        described = ("method", "params", "stream")
        sides = {
            key: {"label": label, **{name: getattr(one, name) for name in described}, "accuracy": accuracy}
            for key, one, label, accuracy in zip("ab", (self.a, self.b), self.labels, self.accuracies, strict=True)
        }
        measured = ("n", "difference", "interval", "p_value", "standard_error", "fixed", "broken", "changed")
        return {
            "dataset": self.a.dataset,
            **sides,
            **{name: getattr(self, name) for name in measured},
            **vars(self.resampling),
            **{name: getattr(self, name) for name in ("better", "samples_needed", "verdict", "note")},
        }


class Paired(NamedTuple):
    """How often A and B are right on each sample, and how often it came: orders × samples."""

    before: Numbers
    after: Numbers
    times: Numbers
    note: str  # which orders, if not simply all


def compare(
    a: Contender, b: Contender, resampling: Resampling | None = None, found: Paired | None = None
) -> Comparison:
    """Compare B with A, sample by sample, in the orders that both have run; `found` is what `paired` gives."""
    found = found or paired(a, b)
    measured = Difference.paired(*found[:3], resampling)
    label_a, label_b = names([a, b])
    return Comparison(**vars(measured), a=a, b=b, labels=(label_a, label_b), note=found.note)


def paired(a: Contender, b: Contender) -> Paired:
    """The samples that both have seen, in the orders that both have run."""
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
    note = ""
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
    came = np.array([np.minimum(a.seen[one], b.seen[other]) for one, other in orders], np.float64)
    both = came.any(axis=0)
    if not both.any():
        raise InvalidSamples(f"{a.dataset}: A and B have no sample in common")
    before, after = (_right(one, seeds, came) for one, seeds in zip((a, b), zip(*orders, strict=True), strict=True))
    return Paired(before[:, both], after[:, both], came[:, both], note)


def _right(one: Contender, seeds: Sequence[int], came: Numbers) -> Numbers:
    """How often each sample is right in each order, if it comes as often as it came to both."""
    return came * [one.right[seed] for seed in seeds] / np.maximum([one.seen[seed] for seed in seeds], 1)
