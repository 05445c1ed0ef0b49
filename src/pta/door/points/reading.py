"""Files of clouds and meshes, which may be damaged, hostile or something else, to n×3 arrays.

Formats are told apart by what a file holds, not by its name. Arrays (npy, npz) are taken as they are. What other
programs write (xyz, ply, off, obj) has units of its own and is normalised.
"""

import zipfile
from io import BytesIO
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pta.door.files import read_npy
from pta.door.foreign import in_words
from pta.door.points.cloud import MOST_ROWS, Cloud, as_cloud
from pta.door.points.mesh import Mesh, lines_of, points_of, read_obj, read_off
from pta.door.points.ply import read_ply
from pta.errors import PtaError, UnreadableSample, first_line

_MESH_POINTS = 1024
_LARGEST_ARRAY = MOST_ROWS * 3 * 8 + 2**14  # bytes, with its header


def read_cloud(content: bytes, name: str = "the cloud", *, points: int = _MESH_POINTS, seed: int = 0) -> Cloud:
    """The points of a file, float32 n×3, or `points` points of a mesh's surface, drawn with the seed.

    >>> read_cloud(b"v 0 0 0\\nv 1 0 0\\nv 0 1 0\\nf 1 2 3", points=64).shape
    (64, 3)
    """

    def said(error: Exception) -> UnreadableSample:  # whatever numpy and zipfile raise on damaged bytes
        problem = f": {error}" if isinstance(error, PtaError) else f" cannot be read as a cloud: {first_line(error)}"
        return UnreadableSample(f"{name}{problem}")

    with in_words(said, passing=()):
        if content.startswith(b"\x89HDF"):
            raise UnreadableSample("an .h5 file holds many clouds; pta extract and pta predict take it as a source")
        if content.startswith((b"\x93NUMPY", b"PK")):
            return as_cloud(_npz(content) if content.startswith(b"PK") else _array(BytesIO(content), len(content)))
        found = {b"ply": read_ply, b"OFF": read_off}.get(content[:3], _read_text)(content)
        if isinstance(found, Mesh):
            found = found.sample(points, seed)
        return as_cloud(found, normalise=True)


def _array(file: IO[bytes], size: int) -> NDArray[Any]:
    if size > _LARGEST_ARRAY:
        raise UnreadableSample(f"more than {MOST_ROWS:,} points are not read")
    array = read_npy(file, size)
    if array.dtype.kind not in "fiub":
        raise UnreadableSample(f"its array is of {array.dtype}, not of real numbers")
    return array


def _npz(content: bytes) -> NDArray[Any]:
    """The array called points, or the only one."""
    with zipfile.ZipFile(BytesIO(content)) as archive:
        entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        entry = entries.get("points", *(entries.values() if len(entries) == 1 else ()))
        if entry is None:
            raise UnreadableSample(f"it holds {len(entries)} arrays, none of them called points")
        with archive.open(entry) as file:
            return _array(file, entry.file_size)


def _read_text(content: bytes) -> Mesh | NDArray[np.float64]:
    """An OBJ file if a line begins with v, else one point per line: x y z and perhaps more."""
    if b"\0" in content[:1024]:
        raise UnreadableSample("not a cloud that pta reads (npy, npz, xyz, ply, off, obj)")
    lines = lines_of(content)
    if any(line.startswith(("v ", "v\t")) for line in lines):
        return read_obj(lines)
    return points_of([line.replace(",", " ") for line in lines])
