"""The report of a demonstration: the page of its stream, and what happened to the samples."""

from pta import __version__
from pta.measure.demo.result import DemoResult
from pta.measure.report.stream_page import StreamReport, render_stream_report

_RULE = (
    "Zero-shot compares each of the {things} with the text of every class. PTA also compares it with one prototype per "
    "class, which it updates according to the zero-shot probabilities."
)
_METHODS = (
    "PTA runs with the parameters of its paper’s released program, every other method with its defaults. None are "
    "tuned to these {things}. One stream of one small model does not rank methods: on CLIP features of Caltech101, "
    "Cars and UCF101, PTA is ahead of TDA, SCA, OnZeta, BCA and ADAPT (docs/methods.md, Who wins where). wpta is this "
    "project’s own rule, and the default of pta predict. Its gate lets it answer as zero-shot where zero-shot gives "
    "most samples to a few classes."
)


def render_report(result: DemoResult) -> str:
    """The whole page."""
    exhibit, names, draw = result.exhibit, result.data.classifier.class_names, result.exhibit.draw
    shift = f"{result.shift.replace('_', ' ')}, severity {result.severity}"
    firsts = {int(result.labels[i]): i for i in reversed(result.pta.order)}  # of each class in the stream
    report = StreamReport(
        title=f"PTA demonstration: {shift}",
        kicker=f"{exhibit.title} · shift: {shift} · random order",
        headline=result.verdict,
        note=f"{result.over_orders} This page shows the first of them. {_RULE.format(things=exhibit.things)}",
        things=exhibit.things,
        class_names=names,
        zero_shot=result.zero_shot,
        adapted=result.pta,
        others=result.runs[2:],
        adapted_name="PTA",
        picture=lambda number, alt, mark: draw(result.shifted[number], alt, mark),
        encoder_microseconds=result.encoder_microseconds,
        provenance=_provenance(result),
        about_methods=_METHODS.format(things=exhibit.things),
    )
    pairs = [
        (
            names[c],
            draw(result.originals[i], f"{names[c]}, as it was", ""),
            draw(result.shifted[i], f"{names[c]}, shifted", ""),
        )
        for c, i in sorted(firsts.items())
    ]
    return render_stream_report(report, "demo-report.html", firsts=pairs)


def _provenance(result: DemoResult) -> dict[str, str]:
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
        "Parameters": f"{result.pta.settings}; not tuned to these {exhibit.things}",
        "Software": f"pta {__version__}",
        "To reproduce": result.call,
    }
