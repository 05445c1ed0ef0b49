"""The packaged test clouds: freely licensed furniture from Sweet Home 3D's catalogues, and procedural shapes.

`training/furniture.py` and `training/procedural.py` make the two files. Furniture is stored as points. Authors,
licences and titles of all its models, those of the test and those trained on, are in `data/furniture.csv`. A procedural
shape is stored as its solids and the seed that draws points of their surface.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pta.door.files import packaged_arrays
from pta.door.points.cloud import as_cloud
from pta.door.points.mesh import Mesh

SHAPE_CLASSES = (
    *("armchair", "bed", "bike", "bottle", "cabinet", "car", "chair", "cup", "door", "lamp", "person", "plant"),
    *("shelf", "sofa", "table", "window", "bench", "boat", "hammer", "ladder", "monitor", "plane", "rocket", "stool"),
    *("tent", "umbrella"),
)
"""Of the procedural shapes, in the order of their labels, which take turns."""
FURNITURE_CLASSES = SHAPE_CLASSES[:16]
"""In the order of the labels."""
POINTS = 1024  # of a test cloud

_STEPS = 2**16 - 1  # between −1 and 1; a step is finer than the surface of any model
_SIDES = 16  # of what is round
_AROUND = np.linspace(0, 2 * np.pi, _SIDES, endpoint=False)
CIRCLE = np.stack([np.cos(_AROUND), np.zeros(_SIDES), np.sin(_AROUND)], axis=1)
_CUBE = np.array([(x, y, z) for x in (-0.5, 0.5) for y in (0, 1) for z in (-0.5, 0.5)], np.float64)
_SQUARES = ((0, 1, 3, 2), (4, 5, 7, 6), (0, 1, 5, 4), (2, 3, 7, 6), (0, 2, 6, 4), (1, 3, 7, 5))
CUBE = Mesh.of(_CUBE, _SQUARES)
"""A unit cube on the origin: a box before it is stretched. The y axis points up."""
OTHER = 255
"""In the place of a number of rings: a solid that is neither a box nor a body of revolution."""


@dataclass(frozen=True, eq=False)
class LabelledClouds:
    """Clouds (float32 N×n×3, in the unit ball), their labels (N) and the names of the labels."""

    clouds: NDArray[np.float32]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.clouds)


def load_furniture_test() -> LabelledClouds:
    """The furniture; no model of this package was trained or chosen on these objects.

    >>> test = load_furniture_test()
    >>> test.clouds.shape[1:], test.class_names[test.labels[0]]
    ((1024, 3), 'armchair')
    """
    arrays = packaged_arrays("furniture_test.npz")
    return LabelledClouds(from_stored(arrays["clouds"]), arrays["labels"].astype(np.int64), FURNITURE_CLASSES)


def from_stored(stored: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Coordinates between −1 and 1 that are stored as whole numbers of two bytes."""
    return (stored * (2 / _STEPS) - 1).astype(np.float32)


@cache  # a second of work
def load_procedural_test() -> LabelledClouds:
    """The procedural shapes; no model of this package was trained or chosen on them.

    >>> test = load_procedural_test()
    >>> test.clouds.shape, test.class_names[test.labels[6]]
    ((2000, 1024, 3), 'chair')
    """
    arrays = packaged_arrays("procedural_test.npz")
    solids = stored_solids(arrays)
    clouds = [
        as_cloud(joined(list(islice(solids, int(count)))).sample(POINTS, int(seed)), normalise=True)
        for count, seed in zip(arrays["solids"], arrays["seeds"], strict=True)
    ]
    return LabelledClouds(np.stack(clouds), np.arange(len(clouds)) % len(SHAPE_CLASSES), SHAPE_CLASSES)


def stored_solids(arrays: Mapping[str, NDArray[Any]]) -> Iterator[Mesh]:
    """The solids of all shapes: each is a cube, a body of revolution or another mesh, in an affine frame (4×3)."""
    profiles = _parts(arrays["profiles"], arrays["rings"][arrays["rings"] < OTHER])
    meshes = zip(*(_parts(arrays[name], arrays[f"{name}_of"]) for name in ("corners", "triangles")), strict=True)
    for rings, frame in zip(arrays["rings"], arrays["frames"], strict=True):
        if rings == OTHER:
            solid = Mesh(*next(meshes))
        else:
            profile = next(profiles)
            solid = revolved(profile) if rings else CUBE
        yield Mesh(solid.corners @ frame[:3] + frame[3], solid.triangles)


def revolved(profile: NDArray[np.float64]) -> Mesh:
    """A body of revolution about the y axis: (radius, height) from the bottom up."""
    corners = profile[:, :1, None] * CIRCLE + profile[:, 1:, None] * (0.0, 1.0, 0.0)
    return Mesh(corners.reshape(-1, 3), _between_rings(len(profile)))


def joined(solids: Sequence[Mesh]) -> Mesh:
    """All solids as one mesh."""
    before = np.cumsum([0, *(len(solid.corners) for solid in solids[:-1])])
    triangles = [solid.triangles + first for solid, first in zip(solids, before, strict=True)]
    return Mesh(np.concatenate([solid.corners for solid in solids]), np.concatenate(triangles))


@cache
def _between_rings(count: int) -> NDArray[np.int64]:
    """The triangles between `count` circles of corners."""
    below = np.arange((count - 1) * _SIDES).reshape(-1, _SIDES)
    beside = np.roll(below, -1, axis=1)
    halves = [(below, beside, below + _SIDES), (beside, beside + _SIDES, below + _SIDES)]
    return np.concatenate([np.stack(half, axis=-1).reshape(-1, 3) for half in halves])


def _parts(rows: NDArray[Any], lengths: NDArray[np.uint8]) -> Iterator[NDArray[Any]]:
    return iter(np.split(rows, np.cumsum(lengths[:-1], dtype=np.int64)))
