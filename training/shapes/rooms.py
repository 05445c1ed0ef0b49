"""What else stands in a room or closes it. The front is where z is positive."""

import numpy as np
from numpy.random import Generator

from pta.door.points.mesh import Mesh
from shapes.seats import legs, pedestal
from shapes.solids import ball, box, leaning, moved, rod, turned


def table(rng: Generator) -> list[Mesh]:
    """A top on legs, panels, trestles or a column; a desk has drawers."""
    width, depth = rng.uniform(60, 200), rng.uniform(50, 100)
    high, thick = rng.choice([rng.uniform(30, 50), rng.uniform(65, 80), rng.uniform(65, 80)]), rng.uniform(1.5, 7)
    if rng.random() < 0.25:
        radius = rng.uniform(30, 75)
        below = pedestal(rng, radius * 0.6, high) if rng.random() < 0.5 else legs(rng, radius * 1.3, radius * 1.3, high)
        return [turned([(0, 0), (radius, 0), (radius, thick), (0, thick)], (0, high, 0)), *below]
    top = box(width, thick, depth, (0, high, 0))
    match rng.integers(6):
        case 0:
            return [top, *(box(3, high, depth * 0.9, (x * width * 0.47, 0, 0)) for x in (-1, 1))]
        case 1:
            drawers = box(width * 0.25, high * 0.8, depth * 0.9, (rng.choice([-1, 1]) * width * 0.35, high * 0.2, 0))
            return [top, drawers, *legs(rng, width, depth, high), box(width, 25, 2, (0, high - 25, 3 - depth / 2))]
        case 2:
            apron = [box(width * 0.9, 9, 2, (0, high - 9, z * depth * 0.44)) for z in (-1, 1)]
            apron += [box(2, 9, depth * 0.88, (x * width * 0.45, high - 9, 0)) for x in (-1, 1)]
            return [top, *apron, *legs(rng, width, depth, high)]
        case _:
            shelf = [box(width * 0.9, 2, depth * 0.9, (0, high * 0.3, 0))] if rng.random() < 0.2 else []
            return [top, *legs(rng, width, depth, high), *shelf]


def cabinet(rng: Generator) -> list[Mesh]:
    """A closed box with doors or drawers and their knobs, from a wall cabinet to a wardrobe."""
    tall = rng.random() < 0.4
    width, depth = rng.uniform(35, 200 if tall else 160), rng.uniform(30, 65)
    high = rng.uniform(160, 230) if tall else rng.uniform(40, 110)
    foot = rng.choice([0.0, rng.uniform(4, 15)])
    columns, rows = int(rng.integers(1, 4)), int(rng.integers(1, 3 if tall else 5))
    parts = [box(width, high - foot, depth, (0, foot, 0))]
    parts += legs(rng, width, depth, foot) if foot else []
    fronts, front = (width / columns, (high - foot) / rows), depth / 2
    for column in range(columns):
        for row in range(rows):
            x, y = (column + 0.5) * fronts[0] - width / 2, foot + row * fronts[1]
            parts.append(box(fronts[0] - 2, fronts[1] - 2, 2, (x, y + 1, front + 1)))
            parts.append(ball(rng.uniform(1, 2.5), (x + fronts[0] * 0.35, y + fronts[1] * 0.5, front + 4)))
    if rng.random() < 0.5:
        parts.append(box(width * 1.04, rng.uniform(2, 5), depth * 1.06, (0, high, 0)))
    return parts


def shelf(rng: Generator) -> list[Mesh]:
    """Boards between two sides or four posts, with or without a back and books."""
    width, depth, high = rng.uniform(50, 140), rng.uniform(22, 42), rng.uniform(80, 220)
    boards, thick = int(rng.integers(3, 8)), rng.uniform(1.5, 4)
    posts = rng.random() < 0.3
    sides = (
        legs(rng, width, depth, high) if posts else [box(thick, high, depth, (x * width / 2, 0, 0)) for x in (-1, 1)]
    )
    levels = np.linspace(rng.uniform(0, 12), high - thick, boards)
    parts = [*sides, *(box(width, thick, depth, (0, level, 0)) for level in levels)]
    if rng.random() < 0.4:
        parts.append(box(width, high, 1, (0, 0, -depth / 2)))
    if rng.random() < 0.5:
        gap = levels[1] - levels[0]
        for level in levels[:-1]:
            for x in np.arange(-width / 2 + 5, rng.uniform(-width / 2, width / 2), 5.0):
                parts.append(box(4, gap * rng.uniform(0.5, 0.85), depth * 0.7, (x, level + thick, 0)))
    return parts


def _shade(rng: Generator, at: tuple[float, float, float], size: float) -> Mesh:
    """An open cone, a bowl or a globe."""
    if rng.random() < 0.25:
        return ball(size * 0.7, at)
    narrow, high = size * rng.uniform(0.2, 0.95), size * rng.uniform(0.7, 1.6)
    return turned([(size, 0), (size * 0.8 + narrow * 0.2, high * 0.4), (narrow, high)], at)


def lamp(rng: Generator) -> list[Mesh]:
    """A lamp on a floor, a table, a jointed arm, a ceiling or a street."""
    size = rng.uniform(12, 28)
    match rng.integers(5):
        case 0:
            high = rng.uniform(110, 180)
            foot = turned([(0, 0), (size, 0), (size * 0.8, 3), (0, 4)])
            return [foot, rod((0, 0, 0), (0, high, 0), rng.uniform(1, 2.5)), _shade(rng, (0, high - 10, 0), size)]
        case 1:
            high, wide = rng.uniform(20, 45), rng.uniform(5, 14)
            body = [(0, 0), (wide, 0), (wide * rng.uniform(0.5, 1.2), high * 0.4), (2, high), (0, high)]
            return [turned(body), _shade(rng, (0, high, 0), size)]
        case 2:
            reach, high = rng.uniform(10, 30), rng.uniform(25, 45)
            elbow, head = (-reach * 0.6, high, 0.0), (reach, high * rng.uniform(1, 1.4), 0.0)
            arms = [rod((0, 2, 0), elbow, 1.2), rod(elbow, head, 1.2)]
            lit = leaning(_shade(rng, (head[0], head[1] - 8, 0), size * 0.5), 2, rng.uniform(0, 0.6), head)
            return [turned([(0, 0), (10, 0), (10, 3), (0, 3)]), *arms, lit]
        case 3:
            drop = rng.uniform(20, 90)
            count = int(rng.choice([1, 1, 3, 5]))
            arms = [
                leaning(_shade(rng, (size * 1.6, 0, 0), size * 0.5), 1, k * 2 * np.pi / count) for k in range(count)
            ]
            bars = [leaning(rod((0, 4, 0), (size * 1.6, 8, 0), 1), 1, k * 2 * np.pi / count) for k in range(count)]
            hung = [_shade(rng, (0, 0, 0), size)] if count == 1 else [*arms, *bars]
            return [*hung, rod((0, 5, 0), (0, drop + 15, 0), 0.8), turned([(6, 0), (6, 3), (0, 3)], (0, drop + 13, 0))]
        case _:
            high, reach = rng.uniform(250, 500), rng.uniform(0, 80)
            pole = [rod((0, 0, 0), (0, high, 0), rng.uniform(4, 7), 3), turned([(12, 0), (12, 10), (6, 30)])]
            arm = [rod((0, high, 0), (reach, high + 10, 0), 3)] if reach > 15 else []
            return [*pole, *arm, _shade(rng, (reach if arm else 0, high - 10, 0), size)]


def window(rng: Generator) -> list[Mesh]:
    """A frame around panes of glass; some have a sill, some an arch."""
    width, high, deep = rng.uniform(60, 220), rng.uniform(80, 220), rng.uniform(3, 14)
    bar, columns, rows = rng.uniform(3, 9), int(rng.integers(1, 5)), int(rng.integers(1, 5))
    uprights = [box(bar, high, deep, (x, 0, 0)) for x in np.linspace(-width / 2, width / 2, columns + 1)]
    levels = [box(width, bar, deep, (0, y, 0)) for y in np.linspace(0, high, rows + 1)]
    glass = [box(width, high, 0.5)] if rng.random() < 0.7 else []
    sill = [box(width * 1.1, 3, deep * 2.5, (0, -3, deep))] if rng.random() < 0.3 else []
    arch = [leaning(turned([(width / 2, 0), (width / 2, deep)]), 0, np.pi / 2)] if rng.random() < 0.15 else []
    arch = [moved(part, (0, high, 0), (1, 0.5, 1)) for part in arch]
    return [*uprights, *levels, *glass, *sill, *arch]


def door(rng: Generator) -> list[Mesh]:
    """One or two leaves with panels and handles in a frame."""
    leaves = int(rng.choice([1, 1, 2]))
    width, high, thick = leaves * rng.uniform(65, 100), rng.uniform(190, 240), rng.uniform(3, 6)
    frame, deep = rng.uniform(4, 10), rng.uniform(6, 20)
    parts = [box(frame, high + frame, deep, (x * (width + frame) / 2, 0, 0)) for x in (-1, 1)]
    parts.append(box(width + frame, frame, deep, (0, high, 0)))
    for k in range(leaves):
        x, leaf = (k + 0.5) * width / leaves - width / 2, width / leaves
        parts.append(box(leaf, high, thick, (x, 0, 0)))
        rows = int(rng.integers(0, 5))
        for row in range(rows):
            parts.append(box(leaf * 0.65, high / rows * 0.7, thick + 2, (x, high * (row + 0.15) / rows, 0)))
        side = x + leaf * (0.42 if k == 0 else -0.42)
        parts.append(ball((2.5, 2.5, 4), (side, high * 0.48, thick)))
        parts.append(box(9, 2, 2, (side, high * 0.48, thick + 3)))
    return parts
