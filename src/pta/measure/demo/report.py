"""The report of a demonstration: one HTML file that needs nothing else and says the same for the same result."""

import json
from typing import Any

import numpy as np
from torch import Tensor

from pta import __version__
from pta.measure.demo.exhibit import nearest, spread
from pta.measure.demo.result import Curve, DemoResult, chance_of_split
from pta.measure.metrics import calibration_error
from pta.measure.report.page import render

_NEAREST = 8  # pictures for a prototype
_CHANGES = 12  # pictures of each kind of change
_BEGIN = 50  # of fewer samples an accuracy is mostly noise
_POINTS = 400  # more than a screen can tell apart
_SIDE = 1000  # of the drawing's own coordinates, stretched to whatever room there is


def render_report(result: DemoResult) -> str:
    """The whole page: a result in the template `demo-report.html`."""
    order, labels = result.pta.order, result.labels
    firsts = {int(labels[i]): i for i in reversed(order)}  # of each class in the stream
    names = result.data.classifier.class_names
    by_text = _nearest(result, result.data.classifier.anchors)
    by_prototype = _nearest(result, result.learned.anchored)
    return render(
        "demo-report.html",
        result=result,
        shift=f"{result.shift.replace('_', ' ')}, severity {result.severity}",
        first=[(names[c], result.originals[firsts[c]], result.shifted[firsts[c]]) for c in sorted(firsts)],
        curve=draw_curve(*result.online_accuracies),
        calibration_error=calibration_error,
        by_text=by_text,
        by_prototype=by_prototype,
        right=[sum(not mark for row in rows for *_, mark in row) for rows in (by_text, by_prototype)],
        luck=chance_of_split(len(result.fixed), len(result.broken)),
        spread=spread,
        most_changes=_CHANGES,
        provenance=_provenance(result),
    )


def _nearest(result: DemoResult, vectors: Tensor) -> list[list[tuple[Any, str, str]]]:
    """For each class the samples nearest to its vector, each with its class, and a mark if that is another one."""
    names, labels = result.data.classifier.class_names, result.labels
    chosen = nearest(result.data.samples.features, vectors, _NEAREST)
    return [
        [(result.shifted[i], names[labels[i]], "" if labels[i] == c else "other") for i in row]
        for c, row in enumerate(chosen)
    ]


def _provenance(result: DemoResult) -> dict[str, str]:
    parameters = ", ".join(f"{key} = {value}" for key, value in result.pta.parameters.items())
    exhibit = result.exhibit
    prompts = " · ".join(f"“{template.format('[class]')}”" for template in exhibit.templates)
    return {
        "Shift": f"{result.shift}, severity {result.severity} {exhibit.severities}; synthetic",
        exhibit.things.capitalize(): exhibit.origin.format(f"{len(result):,}"),
        "Model": exhibit.model,
        "Fingerprint": result.model_fingerprint,
        "Prompts": f"mean over {prompts}",
        "Order": f"random, seed {result.seed}; the seed also draws the shift",
        "Method": "Prototype-Based Test-Time Adaptation of Vision-Language Models (ICML 2026)",
        "Parameters": f"{parameters}; not tuned to these {exhibit.things}",
        "Software": f"pta {__version__}",
        "To reproduce": result.call,
    }


def first_shown(count: int) -> int:
    """After how many samples the curve begins."""
    return min(_BEGIN, (count + 1) // 2)


def draw_curve(zero_shot: Curve, pta: Curve) -> dict[str, Any]:
    """Both accuracies over the stream (in percent, one per sample) as places in the drawing."""
    count = len(pta)
    at = np.unique(np.linspace(first_shown(count), count, _POINTS).round().astype(int))
    lines = {"zeroShot": zero_shot[at - 1], "pta": pta[at - 1]}
    both = np.concatenate(list(lines.values()))
    levels = ticks(float(both.min()), float(both.max()), 5)
    low, high, begin = levels[0], levels[-1], int(at[0])
    across = _SIDE * (at - begin) / max(1, count - begin)
    drawn = [zip(across, _SIDE * (high - line) / (high - low), strict=True) for line in lines.values()]
    marks = [begin, *(tick for tick in ticks(0, count, 4) if begin + 0.1 * count < tick <= count)]
    values = {"at": at.tolist()} | {name: [round(value, 2) for value in line.tolist()] for name, line in lines.items()}
    return {
        "begin": begin,
        "values": json.dumps(values, separators=(",", ":")),
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
