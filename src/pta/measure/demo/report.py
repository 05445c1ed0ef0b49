"""The report of a demonstration: one HTML file that needs nothing else and says the same for the same result."""

from typing import Any

from torch import Tensor

from pta import __version__
from pta.measure.demo.curve import draw_curve
from pta.measure.demo.pictures import nearest, spread
from pta.measure.demo.result import DemoResult, chance_of_split
from pta.measure.metrics import calibration_error
from pta.measure.report.page import render

_NEAREST = 8  # pictures for a prototype
_CHANGES = 12  # pictures of each kind of change


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
