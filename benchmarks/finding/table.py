"""What every measurement takes and gives: a folder of feature files, and rows with accuracies in percent."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import ArrayLike

from pta.data.features import FeatureFile, load_features


def feature_files(folder: Path) -> Iterator[FeatureFile]:
    """Those of a folder, by name."""
    return map(load_features, sorted(folder.glob("*.npz")))


def percent(right: ArrayLike) -> str:
    """The share that is right, as it is printed."""
    return f"{100 * np.mean(right):.2f}"


def mean(accuracies: Iterable[float | None]) -> str:
    """The mean of accuracies, all of them known, as it is printed."""
    return f"{fmean(value for value in accuracies if value is not None):.2f}"
