"""Frozen states: how many samples per class were learned, and a warning where they are too few to stop learning.

Most methods score a sample that they learn by prototypes that contain it. The prototypes of a frozen state do not, and
after a few samples per class many methods answer worse than zero-shot (`benchmarks/results/frozen.csv`). `wpta` does
not lose: it adds a sample to the prototypes that score it, also if it does not keep it.
"""

import warnings
from collections.abc import Sequence
from statistics import median
from weakref import WeakSet

from pta.errors import StateMismatch
from pta.methods.adapter import Adapter
from pta.methods.classes import class_table

ENOUGH = 10  # samples per class, from which on frozen answers are rarely below zero-shot's; measured, see above
_warned: WeakSet[Adapter] = WeakSet()


class FewSamples(UserWarning):
    """A state answers without learning, although it has learned from few samples per class."""


def require_learned(adapter: Adapter) -> None:
    """Refuse to freeze a state that has learned nothing."""
    if not adapter.position:
        raise StateMismatch(
            f"this state of {adapter.name} has learned nothing: frozen, it would answer as zero-shot; let it learn "
            "samples first (pta predict --state)"
        )


def learned_per_class(adapter: Adapter, counts: Sequence[float] | None = None) -> tuple[float, str]:
    """From how many samples a class has learned, and in words what this number is of which classes.

    It is the median of the given counts, or of those that the method keeps. A method that keeps none has the mean: all
    samples divided by the classes that have learned.
    """
    rows = [row for row in class_table(adapter) if row.learned]
    if counts is None and not adapter.counts_in:
        mean = adapter.position / len(rows) if rows else 0.0
        return mean, f"the mean of the {len(rows):,} classes that have learned"
    learned = [count for count in counts or [row.samples or 0.0 for row in rows] if count > 0]
    return median(learned or [0.0]), f"the median of the {len(learned):,} classes that have learned"


def frozen_warning(adapter: Adapter, counts: Sequence[float] | None = None) -> str | None:
    """What to tell a user who freezes the state of a method that loses by it, if that has learned too little."""
    number, meaning = learned_per_class(adapter, counts) if adapter.loses_frozen else (0.0, "")
    if not 0 < number < ENOUGH:
        return None
    return (
        f"{adapter.name} has learned from {number:.1f} samples per class ({meaning}); with fewer than {ENOUGH}, it "
        "often answers samples that it has not learned worse than zero-shot: learn more samples first, use wpta, or "
        "compare both on your samples with pta trial"
    )


def warn_if_frozen_early(adapter: Adapter, stacklevel: int = 2) -> None:
    """Give that warning, once per adapter."""
    if adapter not in _warned and (text := frozen_warning(adapter)):
        _warned.add(adapter)
        warnings.warn(text, FewSamples, stacklevel + 1)
