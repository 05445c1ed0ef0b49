"""Solids as meshes: boxes, turned bodies and rods, which are put together to shapes. The y axis points up."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from pta.data.packaged_clouds import CUBE, revolved
from pta.door.points.mesh import Mesh


def box(width: float, height: float, depth: float, at: ArrayLike = (0, 0, 0)) -> Mesh:
    """A box that stands with the middle of its base at a place; the width lies along x, the depth along z."""
    return moved(CUBE, at, (width, height, depth))


def turned(profile: Sequence[tuple[float, float]], at: ArrayLike = (0, 0, 0)) -> Mesh:
    """A body of revolution about a vertical axis through a place: (radius, height) from the bottom up."""
    return moved(revolved(np.array(profile, np.float64)), at)


def ball(radii: float | Sequence[float], at: ArrayLike = (0, 0, 0)) -> Mesh:
    """An ellipsoid about a place."""
    slope = np.linspace(-np.pi / 2, np.pi / 2, 9)
    sphere = turned(list(zip(np.cos(slope), np.sin(slope), strict=True)))
    return moved(sphere, at, radii)


def rod(start: ArrayLike, end: ArrayLike, radius: float, end_radius: float | None = None) -> Mesh:
    """A round rod between two places; it may taper."""
    first, way = np.asarray(start, np.float64), np.subtract(end, start)
    length = float(np.linalg.norm(way))
    straight = turned([(0, 0), (radius, 0), (radius if end_radius is None else end_radius, length), (0, length)])
    along = way / length
    across = np.cross(along, (1.0, 0, 0) if abs(along[0]) < 0.9 else (0, 0, 1.0))
    across /= np.linalg.norm(across)
    return Mesh(straight.corners @ np.stack([across, along, np.cross(across, along)]) + first, straight.triangles)


def ring(radius: float, thickness: float, at: ArrayLike = (0, 0, 0)) -> Mesh:
    """A torus about the z axis of a place, as a wheel stands."""
    tube = np.linspace(0, 2 * np.pi, 7)
    flat = turned(list(zip(radius + thickness * np.cos(tube), thickness * np.sin(tube), strict=True)))
    return moved(Mesh(flat.corners[:, [0, 2, 1]], flat.triangles), at)


def moved(solid: Mesh, by: ArrayLike, stretch: float | Sequence[float] = 1.0) -> Mesh:
    """A solid stretched about the origin, by one factor or one for each axis, then moved."""
    return Mesh(solid.corners * np.asarray(stretch) + np.asarray(by), solid.triangles)


def leaning(solid: Mesh, axis: int, angle: float, about: ArrayLike = (0, 0, 0)) -> Mesh:
    """A solid turned by an angle (radians) about the axis 0, 1 or 2 through a place."""
    one, other = (axis + 1) % 3, (axis + 2) % 3
    turn = np.eye(3)
    turn[one, one] = turn[other, other] = np.cos(angle)
    turn[other, one] = np.sin(angle)
    turn[one, other] = -turn[other, one]
    return Mesh((solid.corners - np.asarray(about)) @ turn.T + np.asarray(about), solid.triangles)
