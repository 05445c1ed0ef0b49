"""Clouds of one size in memory, with their labels."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class LabelledClouds:
    """Clouds (float32 N×n×3, in the unit ball), their labels (N) and the names of the labels."""

    clouds: NDArray[np.float32]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.clouds)
