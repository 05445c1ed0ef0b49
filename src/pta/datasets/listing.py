"""What a reader of a layout gives: which images belong to a set, and what they are labelled."""

from collections.abc import Callable
from dataclasses import dataclass

from pta.datasets.sample_set import SampleFile

Watch = Callable[[int, int], None]
"""Is told how many of how many pieces of work are done."""


def no_progress(done: int, total: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Listing:
    """Images in order, their labels, the names of the labels, remarks for the user, and which images are not there."""

    images: list[SampleFile]
    labels: list[int]
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    missing: tuple[SampleFile, ...] = ()
