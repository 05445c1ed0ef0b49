"""A shape of a class, drawn by numbers: its proportions, its parts, and the points of its surface."""

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
from numpy.random import Generator, SeedSequence, default_rng

from pta.core.parameters import require_count, require_seed
from pta.data.labelled_clouds import LabelledClouds
from pta.data.shapes.living import person, plant
from pta.data.shapes.rooms import cabinet, door, lamp, shelf, table, window
from pta.data.shapes.seats import armchair, bed, bench, chair, sofa, stool
from pta.data.shapes.things import bottle, cup, hammer, ladder, monitor, tent, umbrella
from pta.data.shapes.vehicles import bike, boat, car, plane, rocket
from pta.door.points.cloud import Cloud, as_cloud
from pta.door.points.mesh import Mesh
from pta.door.points.solids import joined, moved
from pta.errors import InvalidParameter, shown

POINTS = 1024

_SHAPES: tuple[Callable[[Generator], list[Mesh]], ...] = (
    armchair,
    bed,
    bike,
    bottle,
    cabinet,
    car,
    chair,
    cup,
    door,
    lamp,
    person,
    plant,
    shelf,
    sofa,
    table,
    window,
    bench,
    boat,
    hammer,
    ladder,
    monitor,
    plane,
    rocket,
    stool,
    tent,
    umbrella,
)

SHAPE_CLASSES = tuple(shape.__name__ for shape in _SHAPES)
"""In the order of the labels; the first 16 are those of the furniture as well."""

Split = Literal["train", "validation", "test"]


def draw_cloud(number: int, split: Split = "test", *, seed: int = 1) -> tuple[Cloud, int]:
    """Cloud `number` of a split, 1,024 points in the unit ball, and its label.

    Labels take turns, so the first n clouds have all classes about equally often. The split is part of what
    draws a shape, so no shape of one split can be in another.

    >>> cloud, label = draw_cloud(6)
    >>> cloud.shape, SHAPE_CLASSES[label]
    ((1024, 3), 'chair')
    """
    if split not in get_args(Split):
        raise InvalidParameter(f"a split is one of {', '.join(get_args(Split))}, not {shown(split)}")
    drawn = (require_seed(seed), get_args(Split).index(split), require_count("number", number, 0, 2**32 - 1))
    rng = default_rng(SeedSequence(drawn))
    label = number % len(_SHAPES)
    stretched = moved(joined(_SHAPES[label](rng)), (0, 0, 0), rng.uniform(0.85, 1.15, 3).tolist())
    return as_cloud(stretched.sample(POINTS, int(rng.integers(2**32))), normalise=True), label


def draw_clouds(count: int, split: Split = "test", *, seed: int = 1) -> LabelledClouds:
    """The first `count` clouds of a split."""
    require_count("count", count, 1, 2**20)
    drawn = [draw_cloud(number, split, seed=seed) for number in range(count)]
    labels = np.array([label for _, label in drawn], np.int64)
    return LabelledClouds(np.stack([cloud for cloud, _ in drawn]), labels, SHAPE_CLASSES)
