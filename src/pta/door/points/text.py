"""Lines and numbers of text files that may be damaged or hostile."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pta.door.points.shapes import require_few
from pta.errors import UnreadableSample

_LARGEST_TEXT = 64 * 2**20
_MOST_LINES = 2**22
_LONGEST_LINE = 2**16


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
