"""OFF files: counts, corners, faces."""

from pta.door.points.mesh import Mesh
from pta.door.points.text import lines_of, points_of, polygons_of
from pta.errors import UnreadableSample


def read_off(content: bytes) -> Mesh:
    """The mesh of an OFF file; the counts may stand directly after the word OFF, as in ModelNet40."""
    counts, *rest = lines_of(content.removeprefix(b"OFF")) or ["0 0"]
    corners, faces = map(int, counts.split()[:2])
    if min(corners, faces) < 0 or len(rest) < corners + faces:
        raise UnreadableSample(f"{corners:,} corners and {faces:,} faces are announced, {len(rest):,} lines follow")
    return Mesh.of(points_of(rest[:corners]), polygons_of(rest[corners : corners + faces]))
