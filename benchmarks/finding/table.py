"""What measurements share: feature files, streams, runs over seeds, and accuracies in percent as they are printed."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pta.data.features import FeatureFile, load_features
from pta.measure.evaluate import evaluate
from pta.measure.stream import Stream
from pta.measure.stream_run import StreamRun

STREAMS = {
    "iid": Stream(),
    "dirichlet 0.1": Stream("dirichlet", gamma=0.1),
    "dirichlet 0.01": Stream("dirichlet", gamma=0.01),
    "dirichlet 0.001": Stream("dirichlet", gamma=0.001),
    "separate": Stream("separate"),
}


def feature_files(folder: Path) -> Iterator[FeatureFile]:
    """Those of a folder, by name."""
    return map(load_features, sorted(folder.glob("*.npz")))


def runs(
    data: FeatureFile, method: str, parameters: dict[str, Any], seeds: Sequence[int], stream: Stream | None = None
) -> list[StreamRun]:
    """A method over the stream of each seed."""
    return [done.run for done in evaluate(data, {method: parameters}, seeds, stream=stream)]


def percent(right: ArrayLike) -> str:
    """The share that is right, as it is printed."""
    return f"{100 * np.mean(right):.2f}"


def mean(accuracies: Iterable[float | None]) -> str:
    """The mean of accuracies, all of them known, as it is printed."""
    return f"{fmean(value for value in accuracies if value is not None):.2f}"
