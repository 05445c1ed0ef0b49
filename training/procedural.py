"""Writes the procedural test shapes that the package carries: the solids of each, and the seed of its points.

    python training/procedural.py

Nearly all solids are boxes or bodies of revolution in an affine frame, so twelve numbers and a profile are enough for
each. The others (hulls, sails, boxes that taper) are stored corner by corner. Numbers have eight bytes, so that the
clouds are those of `shapes.draw`, bit for bit.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from shapes.draw import Shape, draw_shape

from pta.data.packaged_clouds import CIRCLE, CUBE, OTHER, revolved
from pta.door.points.mesh import Mesh

TEST_SHAPES = 2000
_EXACT = 1e-9  # of a solid's size
_NOTHING = 1e-13  # of a solid's size: what rounding leaves of a zero


def stored(shapes: Sequence[Shape]) -> dict[str, NDArray[np.generic]]:
    """The arrays that `stored_solids` of the package reads, and the seeds."""
    rings, frames, profiles, others = [], [], [], []
    for solid in (solid for shape in shapes for solid in shape.solids):
        unit, profile, frame = _in_frame(solid)
        size = np.abs(solid.corners).max()
        placed = unit.corners @ frame[:3] + frame[3]
        if np.array_equal(unit.triangles, solid.triangles) and np.abs(placed - solid.corners).max() < _EXACT * size:
            rings.append(len(profile))
            profiles.append(profile)
        else:
            frame = np.vstack([np.eye(3), np.zeros(3)])
            rings.append(OTHER)
            others.append(solid)
        frames.append(np.where(np.abs(frame) < _NOTHING * size, 0, frame))
    return {
        "solids": np.array([len(shape.solids) for shape in shapes], np.uint8),
        "seeds": np.array([shape.seed for shape in shapes], np.uint32),
        "rings": np.array(rings, np.uint8),
        "frames": np.stack(frames),
        "profiles": np.concatenate(profiles),
        "corners": np.concatenate([other.corners for other in others]),
        "corners_of": np.array([len(other.corners) for other in others], np.uint8),
        "triangles": np.concatenate([other.triangles for other in others]).astype(np.uint8),
        "triangles_of": np.array([len(other.triangles) for other in others], np.uint8),
    }


def _in_frame(solid: Mesh) -> tuple[Mesh, NDArray[np.float64], NDArray[np.float64]]:
    """The box or body of revolution that a solid may be, its profile, and the frame that would make the solid of it."""
    if len(solid.corners) % len(CIRCLE):
        return _box_in_frame(solid)
    rings = solid.corners.reshape(-1, len(CIRCLE), 3)
    centres = rings.mean(axis=1)
    across, _, deep = np.einsum("sa,rsd->ard", CIRCLE, rings) / (len(CIRCLE) / 2)  # of each ring, where x and z point
    widest = (across**2 + deep**2).sum(axis=1).argmax()
    radii = across @ across[widest] / (across[widest] @ across[widest])
    along = centres - centres[0]
    farthest = (along**2).sum(axis=1).argmax()
    axis = along[farthest]
    heights = along @ axis / max(axis @ axis, np.finfo(float).tiny)
    profile = np.stack([radii, heights], axis=1)
    profile[np.abs(profile) < _NOTHING] = 0
    return revolved(profile), profile, np.stack([across[widest], axis, deep[widest], centres[0]])


def _box_in_frame(solid: Mesh) -> tuple[Mesh, NDArray[np.float64], NDArray[np.float64]]:
    if len(solid.corners) != len(CUBE.corners):
        return CUBE, np.zeros((0, 2)), np.zeros((4, 3))
    base = np.column_stack([CUBE.corners, np.ones(len(CUBE.corners))])
    return CUBE, np.zeros((0, 2)), np.linalg.lstsq(base, solid.corners, rcond=None)[0]


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("src/pta/assets/procedural_test.npz"))
    np.savez_compressed(parser.parse_args().out, **stored([draw_shape(number) for number in range(TEST_SHAPES)]))


if __name__ == "__main__":
    main()
