"""Accuracies along a stream as lines in a drawing."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Curve = NDArray[np.float64]

_BEGIN = 50  # of fewer samples an accuracy is mostly noise
_POINTS = 400  # more than a screen can tell apart
_ROOM = 5.0  # points that are shown above and below the first two curves, at least
_SIDE = 1000  # of the drawing's own coordinates, stretched to whatever room there is


def first_shown(count: int) -> int:
    """After how many samples the curve begins."""
    return min(_BEGIN, (count + 1) // 2)


def draw_curves(curves: Sequence[Curve]) -> dict[str, Any]:
    """Accuracies over the same stream (in percent, one per sample) as places in the drawing.

    The first two set the scale, so that one method that fails does not press them together. Curves far from them leave
    the drawing.
    """
    count = len(curves[0])
    at = np.unique(np.linspace(first_shown(count), count, _POINTS).round().astype(int))
    lines = np.array([curve[at - 1] for curve in curves])
    low, high = float(lines[:2].min()), float(lines[:2].max())
    room = max(high - low, _ROOM)
    levels = ticks(max(low - room, float(lines.min())), min(high + room, float(lines.max())), 5)
    low, high, begin = levels[0], levels[-1], int(at[0])
    across = _SIDE * (at - begin) / max(1, count - begin)
    drawn = [zip(across, _SIDE * (high - line) / (high - low), strict=True) for line in lines]
    marks = [begin, *(tick for tick in ticks(0, count, 4) if begin + 0.1 * count < tick <= count)]
    return {
        "begin": begin,
        "values": json.dumps([at.tolist(), *lines.round(2).tolist()], separators=(",", ":")),
        "paths": [" ".join(f"{x:.1f},{y:.1f}" for x, y in line) for line in drawn],
        "levels": [(level, _SIDE * (high - level) / (high - low)) for level in levels],
        "marks": [(mark, _SIDE * (mark - begin) / max(1, count - begin)) for mark in marks],
    }


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers that enclose low … high, in at most `most` + 1 steps.

    >>> ticks(46.2, 57.9, 5)
    [45.0, 50.0, 55.0, 60.0]
    """
    room = max(high - low, 1.0) / most  # a flat curve gets room, too
    magnitude = 10.0 ** np.floor(np.log10(room))
    step = float(next(magnitude * m for m in (1, 2, 5, 10) if magnitude * m >= room * 0.999))
    first, last = int(np.floor(low / step)), int(np.ceil(high / step))
    return [round(k * step, 6) for k in range(first, max(last, first + 1) + 1)]
