"""A shape of a class, drawn by numbers: its proportions, its parts, and the points of its surface."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.random import Generator, SeedSequence, default_rng

from pta.data.packaged_clouds import POINTS, SHAPE_CLASSES, LabelledClouds, joined
from pta.door.points.cloud import Cloud, as_cloud
from pta.door.points.mesh import Mesh
from shapes.living import person, plant
from shapes.rooms import cabinet, door, lamp, shelf, table, window
from shapes.seats import armchair, bed, bench, chair, sofa, stool
from shapes.solids import moved
from shapes.things import bottle, cup, hammer, ladder, monitor, tent, umbrella
from shapes.vehicles import bike, boat, car, plane, rocket

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

assert tuple(shape.__name__ for shape in _SHAPES) == SHAPE_CLASSES

Split = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class Shape:
    """The solids of a shape, the seed that draws points of their surface, and its label."""

    solids: list[Mesh]
    seed: int
    label: int

    def cloud(self) -> Cloud:
        """1,024 points in the unit ball."""
        return as_cloud(joined(self.solids).sample(POINTS, self.seed), normalise=True)


def draw_shape(number: int, split: Split = "test", *, seed: int = 1) -> Shape:
    """Shape `number` of a split.

    Labels take turns, so the first n shapes have all classes about equally often. The split is part of what
    draws a shape, so no shape of one split can be in another.
    """
    rng = default_rng(SeedSequence((seed, get_args(Split).index(split), number)))
    label = number % len(_SHAPES)
    solids = _SHAPES[label](rng)
    stretch = rng.uniform(0.85, 1.15, 3).tolist()
    return Shape([moved(solid, (0, 0, 0), stretch) for solid in solids], int(rng.integers(2**32)), label)


def draw_clouds(count: int, split: Split = "test", *, seed: int = 1) -> LabelledClouds:
    """The clouds of the first `count` shapes of a split."""
    drawn = [draw_shape(number, split, seed=seed) for number in range(count)]
    labels = np.array([shape.label for shape in drawn], np.int64)
    return LabelledClouds(np.stack([shape.cloud() for shape in drawn]), labels, SHAPE_CLASSES)
