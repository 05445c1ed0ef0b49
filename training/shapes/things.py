"""Things to hold or to put up."""

import numpy as np
from numpy.random import Generator

from pta.door.points.mesh import Mesh
from shapes.solids import box, leaning, moved, ring, rod, turned


def bottle(rng: Generator) -> list[Mesh]:
    """A turned body that narrows to a neck; a vase has a wide rim and no cap."""
    wide, high = rng.uniform(3, 9), rng.uniform(14, 34)
    neck, shoulder = wide * rng.uniform(0.2, 0.6), rng.uniform(0.4, 0.75)
    belly = wide * rng.uniform(0.75, 1.15)
    profile = [
        (0, 0),
        (wide, 0),
        (belly, high * shoulder * 0.5),
        (wide, high * shoulder),
        (neck, high * (shoulder + 0.15)),
    ]
    if rng.random() < 0.3:
        return [turned([*profile, (neck * rng.uniform(1, 2.2), high)])]
    cap = turned([(neck * 1.2, 0), (neck * 1.2, high * 0.1), (0, high * 0.1)], (0, high * 0.95, 0))
    return [turned([*profile, (neck, high), (0, high)]), cap]


def cup(rng: Generator) -> list[Mesh]:
    """An open vessel with a floor: a mug with a handle, a glass, a goblet or a bowl."""
    wide, high = rng.uniform(3, 5), rng.uniform(6, 13)
    flare = rng.uniform(0.9, 1.4)
    wall = [(0, 0), (wide, 0), (wide * (1 + flare) / 2, high * 0.5), (wide * flare, high)]
    inside = [(radius * 0.92, height * 0.98 + 0.3) for radius, height in reversed(wall)]
    match rng.integers(4):
        case 0 | 1:
            handle = ring(high * 0.3, 0.5, (wide * (1 + flare) / 2 + high * 0.15, high * 0.5, 0))
            saucer = [turned([(0, 0), (wide * 1.2, 0), (wide * 2, 1.2)], (0, -0.5, 0))] if rng.random() < 0.3 else []
            return [turned([*wall, *inside]), handle, *saucer]
        case 2:
            stem = rng.uniform(4, 9)
            foot = turned([(0, 0), (wide, 0), (0.5, 0.6), (0.5, stem), (0, stem)])
            bowl = turned([(0.5, stem), (wide * 1.1, stem + high * 0.3), (wide * flare, stem + high)])
            return [foot, bowl]
        case _:
            return [turned([*wall, *inside])]


def umbrella(rng: Generator) -> list[Mesh]:
    """A canopy over a stick, which ends in a crook or a foot."""
    wide, high = rng.uniform(40, 150), rng.uniform(80, 230)
    dome = wide * rng.uniform(0.25, 0.6)
    canopy = turned([(wide, 0), (wide * 0.75, dome * 0.5), (wide * 0.4, dome * 0.85), (0, dome)], (0, high - dome, 0))
    stick = rod((0, 0, 0), (0, high + 4, 0), rng.uniform(0.8, 2.5))
    if rng.random() < 0.5:
        return [canopy, stick, turned([(0, 0), (wide * 0.25, 0), (wide * 0.2, 6), (0, 6)])]
    return [canopy, stick, ring(wide * 0.1, 1.2, (wide * 0.1, 0, 0))]


def ladder(rng: Generator) -> list[Mesh]:
    """Two rails with rungs, straight or folded open."""
    width, high, rungs = rng.uniform(30, 55), rng.uniform(120, 350), int(rng.integers(4, 12))
    thick = rng.uniform(1.5, 3.5)
    rails = [box(thick, high, thick * 1.5, (x * width / 2, 0, 0)) for x in (-1, 1)]
    steps = rng.uniform(1, 4)
    side = [*rails, *(box(width, thick, thick * steps, (0, (k + 0.5) * high / rungs, 0)) for k in range(rungs))]
    if rng.random() < 0.5:
        return [leaning(part, 0, -rng.uniform(0.05, 0.3)) for part in side]
    spread = rng.uniform(0.15, 0.35)
    top = (0, high, 0)
    return [leaning(part, 0, turn * spread, top) for part in side for turn in (-1, 1)]


def hammer(rng: Generator) -> list[Mesh]:
    """A handle with a head across it."""
    long, head = rng.uniform(22, 45), rng.uniform(8, 16)
    thick = rng.uniform(1.2, 2.5)
    handle = rod((0, 0, 0), (0, long, 0), thick * rng.uniform(0.6, 1), thick * 0.7)
    if rng.random() < 0.5:
        return [handle, box(head, thick * 2.4, thick * 2.4, (0, long - thick, 0))]
    peen = rod((-head * 0.2, long, 0), (-head * 0.6, long - rng.uniform(0, 2), 0), thick, 0.4)
    return [handle, rod((-head * 0.2, long, 0), (head * 0.5, long, 0), thick, thick * 1.2), peen]


def monitor(rng: Generator) -> list[Mesh]:
    """A flat screen on a foot, or a folded-open laptop."""
    width = rng.uniform(30, 110)
    high, thick = width * rng.uniform(0.55, 0.75), rng.uniform(1, 6)
    if rng.random() < 0.35:
        keys = box(width, 2, high * 0.95)
        lid = leaning(box(width, high, 1.5, (0, 2, -high * 0.47)), 0, -rng.uniform(0.1, 0.5), (0, 2, -high * 0.47))
        return [keys, lid]
    lift = rng.uniform(6, 18)
    screen = [
        box(width, high, thick, (0, lift, 0)),
        box(width * 0.92, high * 0.9, 1, (0, lift + high * 0.05, thick / 2)),
    ]
    foot = box(width * rng.uniform(0.25, 0.6), 2, rng.uniform(14, 26), (0, 0, -2))
    return [*screen, foot, box(width * 0.08, lift + high * 0.4, 3, (0, 0, -thick / 2 - 2))]


def tent(rng: Generator) -> list[Mesh]:
    """A ridge tent, a pyramid or a dome."""
    width, long, high = rng.uniform(150, 300), rng.uniform(180, 400), rng.uniform(110, 220)
    match rng.integers(3):
        case 0:
            wall, lean = box(1, np.hypot(width / 2, high), long), np.arctan2(width / 2, high)
            walls = [moved(leaning(wall, 2, turn * lean), (turn * width / 2, 0, 0)) for turn in (-1, 1)]
            return [*walls, *(rod((0, 0, z * long / 2), (0, high, z * long / 2), 2) for z in (-1, 1))]
        case 1:
            return [
                turned([(width / 2, 0), (width * 0.48, high * 0.25), (4, high)]),
                rod((0, 0, 0), (0, high * 1.1, 0), 3),
            ]
        case _:
            slope = np.linspace(0, np.pi / 2, 6)
            dome = turned(list(zip(np.cos(slope), np.sin(slope), strict=True)))
            entrance = box(width * 0.4, high * 0.6, 4, (0, 0, long * 0.46))
            return [moved(dome, (0, 0, 0), (width / 2, high, long / 2)), entrance]
