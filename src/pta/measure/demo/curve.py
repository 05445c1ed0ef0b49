"""The online-accuracy curve as inline SVG; its labels are text around it, so that they do not shrink with it."""

import json
from html import escape

import numpy as np

from pta.measure.demo.result import Curve

_BEGIN = 50  # of fewer samples an accuracy is mostly noise
_POINTS = 400  # more than a screen can tell apart
_SIDE = 1000  # of the drawing's own coordinates, stretched to whatever room there is


def first_shown(count: int) -> int:
    """After how many samples the curve begins."""
    return min(_BEGIN, (count + 1) // 2)


def draw_curve(zero_shot: Curve, pta: Curve, things: str = "images") -> str:
    """Both accuracies over the stream (in percent, one per sample) as a block of HTML."""
    count = len(pta)
    positions = np.unique(np.linspace(first_shown(count), count, _POINTS).round().astype(int))
    lines = [curve[positions - 1] for curve in (zero_shot, pta)]
    levels = ticks(float(min(map(np.min, lines))), float(max(map(np.max, lines))), 5)
    low, high = levels[0], levels[-1]
    across = _SIDE * (positions - positions[0]) / max(1, count - positions[0])
    drawn = [zip(across, _SIDE * (high - line) / (high - low), strict=True) for line in lines]
    paths = [" ".join(f"{x:.1f},{y:.1f}" for x, y in points) for points in drawn]

    grid = "".join(f'<line x1="0" x2="{_SIDE}" y1="{y:g}" y2="{y:g}"/>' for y in _places(levels, high, low))
    side = "".join(
        f'<span style="top:{y / 10:.2f}%">{level:g} %</span>'
        for level, y in zip(levels, _places(levels, high, low), strict=True)
    )
    begin = int(positions[0])
    marks = [begin, *(tick for tick in ticks(0, count, 4) if begin + 0.1 * count < tick <= count)]
    foot = "".join(
        f'<span style="left:{x / 10:.2f}%">{tick:,.0f}</span>'
        for tick, x in zip(marks, _places(marks, begin, count), strict=True)
    )
    zero_shots, ptas = ([round(value, 2) for value in line.tolist()] for line in lines)
    values = {"at": positions.tolist(), "zeroShot": zero_shots, "pta": ptas}
    down = " down" if pta[-1] < zero_shot[-1] else ""
    back = " ".join(reversed(paths[1].split()))
    label = f"Online accuracy: zero-shot ends at {lines[0][-1]:.2f} %, PTA at {lines[1][-1]:.2f} %."
    held = escape(json.dumps(values, separators=(",", ":")))
    return f"""<div class="curve" data-things="{things}" data-values="{held}">
<div class="levels" aria-hidden="true">{side}</div>
<div class="drawing">
<svg viewBox="0 0 {_SIDE} {_SIDE}" preserveAspectRatio="none" role="img" aria-label="{escape(label)}">
<g class="grid">{grid}</g>
<polygon class="between{down}" points="{paths[0]} {back}"/>
<polyline class="zero-shot" points="{paths[0]}"/>
<polyline class="pta" points="{paths[1]}"/>
</svg>
<div class="cursor" hidden></div>
</div>
<div class="foot" aria-hidden="true">{foot}<span class="unit">{things} so far</span></div>
</div>"""


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


def _places(values: list[float], start: float, end: float) -> list[float]:
    """Where values lie on the way from start to end, in the drawing's coordinates."""
    return [_SIDE * (value - start) / ((end - start) or 1) for value in values]
