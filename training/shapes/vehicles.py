"""What drives, sails or flies. It goes along the z axis."""

import numpy as np
from numpy.random import Generator

from pta.door.points.mesh import Mesh
from shapes.solids import ball, box, leaning, moved, ring, rod, turned


def _tapered(width: float, height: float, depth: float, share: float, at: tuple[float, float, float]) -> Mesh:
    """A box whose upper side is smaller."""
    solid = box(width, height, depth)
    shrunk = np.where(solid.corners[:, 1:2] > 0, share, 1.0) * (1, 0, 1) + np.array((0, 1, 0))
    return Mesh(solid.corners * shrunk + at, solid.triangles)


def _wheels(width: float, radius: float, places: list[float]) -> list[Mesh]:
    return [
        rod((x * width / 2 - 9 * x, radius, z), (x * width / 2, radius, z), radius) for x in (-1, 1) for z in places
    ]


def car(rng: Generator) -> list[Mesh]:
    """A body with a cabin on four wheels; a lorry has a load, a bus a long box."""
    width, radius = rng.uniform(140, 200), rng.uniform(26, 38)
    kind = rng.random()
    if kind < 0.65:
        long, body = rng.uniform(300, 480), rng.uniform(50, 75)
        floor = radius * 0.8
        cabin = _tapered(
            width * 0.95,
            rng.uniform(45, 70),
            long * rng.uniform(0.45, 0.7),
            rng.uniform(0.6, 0.85),
            (0, floor + body, long * rng.uniform(-0.15, 0.02)),
        )
        return [
            _tapered(width, body, long, 0.95, (0, floor, 0)),
            cabin,
            *_wheels(width, radius, [-long * 0.31, long * 0.31]),
        ]
    long = rng.uniform(500, 1000)
    high, floor = rng.uniform(200, 280), radius
    wheels = _wheels(width * 1.2, radius * 1.3, [-long * 0.35, long * 0.33, long * rng.choice([-0.25, 0.33])])
    if kind < 0.8:
        return [box(width * 1.2, high, long, (0, floor, 0)), *wheels]
    cab, gap = rng.uniform(140, 200), rng.uniform(0.75, 1.1)
    load = box(width * 1.2, high * gap, long - cab - 20, (0, floor + 15, -cab / 2))
    return [load, _tapered(width * 1.2, high * 0.8, cab, 0.9, (0, floor, (long - cab) / 2)), *wheels]


def bike(rng: Generator) -> list[Mesh]:
    """Two wheels, a frame, a saddle and a handlebar; a motorbike is thicker and has a tank."""
    radius, apart = rng.uniform(24, 36), rng.uniform(95, 130)
    motor = rng.random() < 0.45
    tyre, tube = (rng.uniform(4, 8), 3.5) if motor else (rng.uniform(1.2, 3), rng.uniform(1.2, 2.2))
    rear, front, saddle = (-apart / 2, radius), (apart / 2, radius), (-apart * 0.2, rng.uniform(70, 95))
    head, crank = (apart * 0.32, rng.uniform(75, 100)), (-apart * 0.05, radius * 0.9)
    lines = [(rear, saddle), (rear, crank), (crank, saddle), (crank, head), (saddle, head), (front, head)]
    parts = [rod((0, y, z), (0, v, w), tube) for (z, y), (w, v) in lines]
    parts += [moved(leaning(ring(radius, tyre), 1, np.pi / 2), (0, radius, z)) for z in (rear[0], front[0])]
    bar = rng.uniform(20, 38)
    parts += [rod((-bar, head[1] + 8, head[0]), (bar, head[1] + 8, head[0]), tube * 0.8)]
    parts += [ball((8, 4, 14 if not motor else 26), (0, saddle[1] + 2, saddle[0]))]
    if motor:
        parts += [ball((13, 13, 26), (0, head[1] - 12, apart * 0.1)), box(22, 30, 40, (0, radius * 0.7, 0))]
    else:
        spokes = [np.pi * k / 6 for k in range(6)]
        for z in (rear[0], front[0]):
            ends = [(radius * np.cos(turn), radius * np.sin(turn)) for turn in spokes]
            parts += [rod((0, radius - y, z - x), (0, radius + y, z + x), 0.4) for x, y in ends]
    return parts


def plane(rng: Generator) -> list[Mesh]:
    """A fuselage with wings, a tail and perhaps engines or a second pair of wings."""
    long, thick = rng.uniform(800, 1600), rng.uniform(50, 110)
    hull = ball((thick, thick, long / 2))
    span, chord = long * rng.uniform(0.7, 1.15), long * rng.uniform(0.1, 0.2)
    sweep, level = rng.uniform(0, 0.5), rng.choice([-0.4, 0.6]) * thick

    def wings(length: float, deep: float, at: tuple[float, float, float]) -> Mesh:
        flat = box(length, deep * 0.12, deep)
        back = np.abs(flat.corners[:, 0]) * sweep
        return Mesh(flat.corners - np.stack([0 * back, 0 * back, back], axis=1) + at, flat.triangles)

    parts = [
        hull,
        wings(span, chord, (0, level, long * 0.08)),
        wings(span * 0.35, chord * 0.6, (0, thick * 0.3, -long * 0.42)),
    ]
    parts.append(box(thick * 0.15, long * rng.uniform(0.1, 0.18), chord * 0.7, (0, thick * 0.3, -long * 0.43)))
    if rng.random() < 0.25:
        parts.append(wings(span, chord, (0, level + thick * 2, long * 0.08)))
    for x in [0.18, 0.3][: rng.integers(0, 3)]:
        for side in (-1, 1):
            z = long * 0.1 - x * span * sweep
            parts.append(
                rod(
                    (side * x * span, level - 20, z - chord * 0.4),
                    (side * x * span, level - 20, z + chord * 0.4),
                    thick * 0.3,
                )
            )
    return parts


def boat(rng: Generator) -> list[Mesh]:
    """A hull that is pointed in front, with benches, a cabin or a mast and sails."""
    long, wide, deep = rng.uniform(250, 900), rng.uniform(90, 240), rng.uniform(40, 110)
    stern = rng.uniform(0.4, 1)
    along = np.linspace(-1, 1, 9)
    half = wide / 2 * np.where(along > 0, 1 - along**2, 1 - (1 - stern) * along**2)
    rows = np.stack([np.stack([s * half, 0 * along + deep, along * long / 2], 1) for s in (-1, 1)])
    keel = np.stack([0 * along, deep * 0.25 * np.maximum(along, 0) ** 2, along * long / 2], 1)
    corners, count = np.concatenate([rows[0], keel, rows[1]]), len(along)
    strips = [(a + k, b + k) for a, b in ((0, count), (count, 2 * count)) for k in range(count - 1)]
    sides = [half for a, b in strips for half in ((a, a + 1, b), (a + 1, b + 1, b))]
    transom = [(0, count, 2 * count)]
    hull = Mesh(corners, np.array([*sides, *transom], np.int64))
    match rng.integers(3):
        case 0:
            return [hull, *(box(wide * 0.85 * stern, 3, 20, (0, deep * 0.7, z * long)) for z in (-0.3, -0.1, 0.12))]
        case 1:
            return [hull, box(wide * 0.6, deep * rng.uniform(0.8, 1.6), long * 0.35, (0, deep * 0.8, -long * 0.1))]
        case _:
            mast = deep + long * rng.uniform(0.6, 1)
            sail = np.array([(0, deep + 20, -long * 0.4), (0, deep + 20, 0), (0, mast, 0), (0, deep + 20, long * 0.45)])
            return [hull, rod((0, deep * 0.2, 0), (0, mast, 0), 4), Mesh(sail, np.array([(0, 1, 2), (1, 2, 3)]))]


def rocket(rng: Generator) -> list[Mesh]:
    """A pointed body on fins, perhaps with boosters."""
    radius, long = rng.uniform(20, 45), rng.uniform(180, 420)
    nose = long + radius * rng.uniform(1, 3.5)
    body = turned(
        [(radius * 0.7, 0), (radius, long * 0.1), (radius, long), (radius * 0.6, (long + nose) / 2), (0, nose)]
    )
    fins = int(rng.integers(3, 5))
    fin = box(radius * rng.uniform(0.6, 1.4), long * rng.uniform(0.15, 0.3), 3, (radius * 1.3, 0, 0))
    parts = [body, *(leaning(fin, 1, k * 2 * np.pi / fins) for k in range(fins))]
    if rng.random() < 0.35:
        booster = turned([(radius * 0.4, 0), (radius * 0.4, long * 0.5), (0, long * 0.65)], (radius * 1.5, 0, 0))
        parts += [leaning(booster, 1, (k + 0.5) * 2 * np.pi / fins) for k in range(fins)]
    return parts
