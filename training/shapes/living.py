"""Plants and people."""

import numpy as np
from numpy.random import Generator

from pta.door.points.mesh import Mesh
from shapes.solids import ball, leaning, moved, rod, turned


def plant(rng: Generator) -> list[Mesh]:
    """Leaves in a pot, a bush, a tree with a round or pointed crown, or a palm."""
    match rng.integers(5):
        case 0 | 1:
            wide, high = rng.uniform(8, 18), rng.uniform(10, 25)
            pot = turned([(0, 0), (wide * 0.7, 0), (wide, high), (wide * 0.85, high), (0, high * 0.9)])
            return [pot, *_leaves(rng, high, rng.uniform(15, 60), int(rng.integers(8, 30)))]
        case 2:
            high, crown = rng.uniform(60, 200), rng.uniform(50, 120)
            clumps = [
                ball(
                    crown * rng.uniform(0.25, 0.5),
                    (*rng.normal(0, crown * 0.35, 3) * (1, 0.7, 1) + (0, high + crown * 0.3, 0),),
                )
                for _ in range(rng.integers(4, 12))
            ]
            return [rod((0, 0, 0), (0, high, 0), crown * 0.08, crown * 0.05), *clumps]
        case 3:
            tiers, wide, high = int(rng.integers(2, 6)), rng.uniform(40, 90), rng.uniform(150, 300)
            cones = []
            for k in range(tiers):
                low, radius = high * (0.15 + 0.8 * k / tiers), wide * (1 - 0.75 * k / tiers)
                cones.append(turned([(0, low), (radius, low), (radius * 0.15, low + high * 1.1 / tiers)]))
            return [rod((0, 0, 0), (0, high * 0.4, 0), wide * 0.1), *cones]
        case _:
            high = rng.uniform(100, 400)
            bend = rng.uniform(-0.2, 0.2) * high
            return [rod((0, 0, 0), (bend, high, 0), high * 0.03), *_leaves(rng, high, high * 0.4, 14, (bend, 0.0))]


def _leaves(rng: Generator, base: float, long: float, count: int, at: tuple[float, float] = (0.0, 0.0)) -> list[Mesh]:
    """Thin leaves that rise from one place, or hang over, to all sides."""
    found = []
    x, z = at
    for turn in rng.uniform(0, 2 * np.pi, count):
        reach = long * rng.uniform(0.5, 1)
        leaf = ball((reach / 2, 0.6, reach * 0.13), (x + reach / 2, base, z))
        found.append(leaning(leaning(leaf, 2, rng.uniform(-0.3, 1.4), (x, base, z)), 1, turn, (x, base, z)))
    return found


def person(rng: Generator) -> list[Mesh]:
    """A body with head, arms and legs, standing, walking or seated."""
    tall = rng.uniform(110, 190)
    hip, neck, wide = tall * 0.5, tall * 0.83, tall * rng.uniform(0.1, 0.14)
    seated = rng.random() < 0.3
    limb = tall * rng.uniform(0.028, 0.045)
    trunk = moved(rod((0, hip, 0), (0, neck, 0), wide * 0.8, wide), (0, 0, 0), (1, 1, 0.6))
    head = ball((tall * 0.045, tall * 0.07, tall * 0.055), (0, tall * 0.92, 0))
    parts = [trunk, head, rod((0, neck, 0), (0, tall * 0.88, 0), limb)]
    for side in (-1, 1):
        x, stride = side * wide * 0.5, rng.uniform(-0.15, 0.15) * tall
        knee = (x * 1.2, hip, tall * 0.25) if seated else (x * 1.1, hip * 0.52, stride * 0.5)
        foot = (knee[0], hip - tall * 0.26, tall * 0.25) if seated else (x * 1.2, 0.0, stride)
        parts += [rod((x, hip, 0), knee, limb * 1.5, limb * 1.2), rod(knee, foot, limb * 1.2, limb * 0.9)]
        parts.append(ball((limb, limb, limb * 2.2), (foot[0], foot[1], foot[2] + limb)))
        raised, apart = rng.uniform(-1.4, 0.3), rng.uniform(0.05, 0.6)
        shoulder = np.array((side * wide, neck - limb, 0.0))
        elbow = shoulder + tall * 0.17 * np.array((side * apart, -np.cos(apart), 0.1))
        hand = elbow + tall * 0.16 * np.array((0.1 * side, np.sin(raised), np.cos(raised)))
        parts += [rod(shoulder, elbow, limb, limb * 0.9), rod(elbow, hand, limb * 0.9, limb * 0.7), ball(limb, hand)]
    return parts
