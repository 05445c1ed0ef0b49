"""A surface of polygons, points drawn from it uniformly by area, and the text files that hold one: OFF and OBJ."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pta.door.points.cloud import require_few, require_finite
from pta.errors import UnreadableSample

_LARGEST_TEXT = 64 * 2**20
_MOST_LINES = 2**22
_LONGEST_LINE = 2**16


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


def read_off(content: bytes) -> Mesh:
    """The mesh of an OFF file; the counts may stand directly after the word OFF, as in ModelNet40."""
    counts, *rest = lines_of(content.removeprefix(b"OFF")) or ["0 0"]
    corners, faces = map(int, counts.split()[:2])
    if min(corners, faces) < 0 or len(rest) < corners + faces:
        raise UnreadableSample(f"{corners:,} corners and {faces:,} faces are announced, {len(rest):,} lines follow")
    return Mesh.of(points_of(rest[:corners]), polygons_of(rest[corners : corners + faces]))


def read_obj(lines: Sequence[str]) -> Mesh:
    """The mesh of the lines of an OBJ file; materials, textures, normals and groups are passed over."""
    corners: list[str] = []
    polygons: list[list[int]] = []
    for line in lines:
        kind, *words = line.split()
        if kind == "v":
            corners.append(line[1:])
        elif kind == "f":
            numbers = [int(word.split("/")[0]) for word in words]  # corner/texture/normal
            if 0 in numbers:
                raise UnreadableSample("a face has corner 0; in OBJ the first is 1")
            polygons.append([number - 1 if number > 0 else len(corners) + number for number in numbers])
    return Mesh.of(points_of(corners), polygons)


def lines_of(content: bytes) -> list[str]:
    """The lines of a text that say something, without comments."""
    if len(content) > _LARGEST_TEXT or content.count(b"\n") > _MOST_LINES:
        limits = f"{_LARGEST_TEXT:,} bytes and {_MOST_LINES:,} lines"
        raise UnreadableSample(f"it is text of more than {limits}; save it as binary ply or npy")
    lines = [line.partition("#")[0].strip() for line in content.decode("utf-8-sig", "replace").split("\n")]
    lines = [line for line in lines if line]
    if any(len(line) > _LONGEST_LINE for line in lines):
        raise UnreadableSample(f"a line has more than {_LONGEST_LINE:,} letters")
    return lines


def points_of(lines: Sequence[str], columns: Sequence[int] = (0, 1, 2)) -> NDArray[np.float64]:
    """A point from each line, its coordinates in these columns."""
    require_few("points", len(lines))
    return np.loadtxt(lines, ndmin=2, usecols=columns, comments=None) if lines else np.empty((0, 3))


def polygons_of(lines: Sequence[str], lead: int = 0) -> list[list[int]]:
    """A polygon from each line: after `lead` other words, how many corners it has and their numbers."""
    polygons = []
    for size, *numbers in (line.split()[lead:] for line in lines):
        if not 0 <= int(size) <= len(numbers):
            raise UnreadableSample(f"a face should have {size} corners, its line has {len(numbers)}")
        polygons.append([int(number) for number in numbers[: int(size)]])
    return polygons
