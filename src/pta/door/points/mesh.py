"""A surface of polygons, and points drawn from it uniformly by area."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pta.door.points.shapes import require_few, require_finite
from pta.errors import UnreadableSample


@dataclass(frozen=True)
class Mesh:
    """Corners k×3, and triangles m×3 of numbers of corners."""

    corners: NDArray[np.float64]
    triangles: NDArray[np.int64]

    @classmethod
    def of(cls, corners: NDArray[np.float64], polygons: Sequence[Sequence[int]]) -> "Mesh":
        """Each polygon as a fan of triangles about its first corner."""
        require_few("triangles", sum(max(0, len(one) - 2) for one in polygons))
        fans = [(one[0], *side) for one in polygons for side in pairwise(one[1:])]
        triangles = np.array(fans, np.int64).reshape(-1, 3)
        if len(triangles) == 0:
            raise UnreadableSample("the mesh has no faces")
        require_finite("corner", corners)
        if triangles.min() < 0 or triangles.max() >= len(corners):
            raise UnreadableSample(f"a face names a corner that is not there; there are {len(corners):,}")
        return cls(corners, triangles)

    def sample(self, count: int, seed: int) -> NDArray[np.float64]:
        """So many points of the surface; a face without area gets none."""
        first, second, third = np.moveaxis(self.corners[self.triangles], 1, 0)
        areas = np.linalg.norm(np.cross(second - first, third - first), axis=1)
        ends = np.cumsum(areas)
        if ends[-1] == 0:
            raise UnreadableSample("no face of the mesh has an area")
        rng = np.random.default_rng(seed)
        drawn = np.searchsorted(ends, rng.uniform(0, ends[-1], count), side="right")
        drawn = np.minimum(drawn, np.flatnonzero(areas)[-1])  # a draw can be rounded up to the end
        along, across = np.sqrt(rng.uniform(size=(count, 1))), rng.uniform(size=(count, 1))
        weights = 1 - along, along * (1 - across), along * across
        return sum(weight * corner[drawn] for weight, corner in zip(weights, (first, second, third), strict=True))
