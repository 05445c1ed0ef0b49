"""OBJ files: their corners and faces, and nothing that they refer to."""

from collections.abc import Sequence

from pta.door.points.mesh import Mesh
from pta.door.points.text import points_of
from pta.errors import UnreadableSample


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
