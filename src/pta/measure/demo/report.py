"""The report of a demonstration: one HTML file that needs nothing else and says the same for the same result."""

from html import escape

import numpy as np
from numpy.typing import NDArray

from pta import __version__
from pta.measure import metrics
from pta.measure.demo.curve import draw_curve, first_shown
from pta.measure.demo.pictures import nearest, spread
from pta.measure.demo.result import DemoResult, PartScore, chance_of_split
from pta.measure.report.page import facts, fill, mood, packaged_text, page, tiles
from pta.measure.stream_run import StreamRun
from pta.measure.texts import signed, with_minus

_NEAREST = 8  # pictures for a prototype
_CHANGES = 12  # pictures of each kind of change
_UNIT = "\N{NO-BREAK SPACE}%"
_SERIES = {"zero-shot": "zero-shot", "PTA": "pta"}  # methods that have a colour of their own


def render_report(result: DemoResult) -> str:
    """The whole page: the values of a result in the template `demo-report.html`."""
    fixed, broken = result.fixed, result.broken
    luck = chance_of_split(len(fixed), len(broken))
    values = {
        "title": escape(result.exhibit.title),
        "thing": result.exhibit.thing,
        "things": result.exhibit.things,
        "quarters": "\n".join(map(_part_row, result.quarters)),
        "calibration": "".join(map(_calibration_row, result.runs[:2])),
        "others": _others(result),
        "orders": len(result.all_gains),
        "mean_gain": _points(sum(result.all_gains) / len(result.all_gains)),
        "least_gain": _points(min(result.all_gains)),
        "most_gain": _points(max(result.all_gains)),
        "interval": " to ".join(map(_points, result.gain_interval)),
        "shift": escape(_shift_words(result)),
        "verdict": escape(result.verdict).replace(" %", _UNIT),
        "caveat": f'<p class="caveat">{escape(result.caveat)}</p>' if result.caveat else "",
        "tiles": tiles(
            (_percent(result.before), "accuracy of zero-shot"),
            (_percent(result.after), "accuracy of PTA"),
            (f'<span class="{mood(result.gain)}">{_points(result.gain)}</span>', "points of difference"),
            (f"{len(fixed)} / {len(broken)}", "fixed / broken predictions"),
        ),
        "first_images": _first_images(result),
        "curve_begin": first_shown(len(result)),
        "before": _percent(result.before),
        "after": _percent(result.after),
        "count": f"{len(result):,}",
        "gain": _points(result.gain),
        "curve": draw_curve(*result.online_accuracies, result.exhibit.things),
        "classes": "\n".join(map(_part_row, sorted(result.classes, key=lambda score: -score.gain))),
        **_prototypes(result),
        "fixed": len(fixed),
        "broken": len(broken),
        "p_value": "p &lt; 0.001" if luck < 0.001 else f"p = {luck:.3f}",
        "most_changes": _CHANGES,
        "fixed_images": _gallery(result, fixed),
        "broken_images": _gallery(result, broken),
        "provenance": _provenance(result),
    }
    body = fill("demo-report.html", **values).rstrip()
    title = f"PTA demonstration: {_shift_words(result)}"
    return page(title, body, kind="demo", script=packaged_text("demo-report.js"))


def _first_images(result: DemoResult) -> str:
    """The first sample of each class in the stream, as it was and shifted."""
    figures = []
    for c, name in enumerate(result.data.classifier.class_names):
        own = result.pta.order[result.labels[result.pta.order] == c]
        if len(own):
            before = result.exhibit.shown(result.originals[own[0]], f"{name}, as it was", "")
            after = result.exhibit.shown(result.shifted[own[0]], f"{name}, shifted", "")
            figures.append(f"<figure>{before}{after}<figcaption>{escape(name)}</figcaption></figure>")
    return "".join(figures)


def _others(result: DemoResult) -> str:
    """All methods, the most accurate first."""
    ranked = sorted(result.runs, key=lambda run: -run[2])
    return "\n".join(
        f'<tr class="{_SERIES.get(name, "")}"><td>{escape(name)}</td><td>{_percent(accuracy)}</td>'
        f'<td class="{mood(accuracy - result.before)}">{_points(accuracy - result.before)}</td>'
        f"<td>{_points(accuracy - result.after)}</td></tr>"
        for name, _, accuracy in ranked
    )


def _calibration_row(run: tuple[str, StreamRun, float]) -> str:
    name, found, accuracy = run
    right = found.predictions == found.labels
    values = (accuracy, 100 * float(found.confidences.mean()))
    return (
        f'<tr class="{_SERIES[name]}"><td>{name}</td>{"".join(f"<td>{_percent(value, 1)}</td>" for value in values)}'
        f"<td>{metrics.calibration_error(found.confidences, right):.1f}</td>"
        f"<td>{metrics.calibration_error(found.raw_confidences, right):.1f}</td></tr>"
    )


def _part_row(score: PartScore) -> str:
    left, right = sorted((score.zero_shot, score.pta))
    return (
        f'<tr><td>{escape(score.name)} <span class="soft small">({score.count})</span></td>'
        f'<td class="way"><span class="track{" down" if score.gain < 0 else ""}">'
        f'<i class="span" style="left:{left:.2f}%;width:{right - left:.2f}%"></i>'
        f'<i class="from" style="left:{score.zero_shot:.2f}%"></i>'
        f'<i class="to" style="left:{score.pta:.2f}%"></i></span></td>'
        f"<td>{_percent(score.zero_shot, 1)}</td><td>{_percent(score.pta, 1)}</td>"
        f'<td class="{mood(score.gain, 1)}">{_points(score.gain, 1)}</td></tr>'
    )


def _prototypes(result: DemoResult) -> dict[str, object]:
    """The samples nearest to the text and to the prototype of each class, and how many of them are right."""
    features = result.data.samples.features
    by_text = nearest(features, result.data.classifier.anchors, _NEAREST)
    by_pta = nearest(features, result.learned.anchored, _NEAREST)
    truth = np.arange(result.data.classifier.classes)[:, None]
    text_right, pta_right = (int((result.labels[chosen] == truth).sum()) for chosen in (by_text, by_pta))
    cards = "\n".join(
        f'<div class="card"><h3>{escape(name)}</h3>{_row_of_nearest(result, c, by_text[c], "the text")}'
        f"{_row_of_nearest(result, c, by_pta[c], 'the prototype')}</div>"
        for c, name in enumerate(result.data.classifier.class_names)
    )
    counts = {"right_by_text": text_right, "right_by_prototype": pta_right, "shown": by_pta.size}
    return {"prototypes": cards, "nearest": by_pta.shape[1], **counts}


def _row_of_nearest(result: DemoResult, c: int, chosen: NDArray[np.int64], source: str) -> str:
    names = result.data.classifier.class_names
    others = sorted({names[result.labels[i]] for i in chosen if result.labels[i] != c})
    right = sum(int(result.labels[i] == c) for i in chosen)
    also = f"; also {', '.join(others)}" if others else ""
    pictures = "".join(
        result.exhibit.still(result.shifted[i], names[result.labels[i]], "" if result.labels[i] == c else "other")
        for i in chosen
    )
    return (
        f"<p>nearest to <b>{escape(source)}</b>: {right} of {len(chosen)} right{escape(also)}</p>"
        f'<div class="eight">{pictures}</div>'
    )


def _gallery(result: DemoResult, positions: NDArray[np.intp]) -> str:
    if not len(positions):
        return '<p class="soft">None.</p>'
    figures = []
    for position in spread(positions, _CHANGES):
        i = result.pta.order[position]
        names, truth = result.data.classifier.class_names, result.labels[i]
        answers = "<br>".join(
            f"{method}: {_answer(names[run.predictions[position]], run.predictions[position] == truth)}"
            for method, run in (("zero-shot", result.zero_shot), ("PTA", result.pta))
        )
        name = names[truth]
        figures.append(
            f"<figure>{result.exhibit.shown(result.shifted[i], name, '')}"
            f"<figcaption><b>{escape(name)}</b><br>{answers}</figcaption></figure>"
        )
    return f'<div class="changes">{"".join(figures)}</div>'


def _answer(name: str, right: bool) -> str:
    return escape(name) if right else f'<span class="wrong">{escape(name)}</span>'


def _provenance(result: DemoResult) -> str:
    parameters = ", ".join(f"{key} = {value}" for key, value in result.pta.parameters.items())
    exhibit = result.exhibit
    prompts = " · ".join(f"“{template.format('[class]')}”" for template in exhibit.templates)
    told = {
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
    return facts(told)


def _shift_words(result: DemoResult) -> str:
    return f"{result.shift.replace('_', ' ')}, severity {result.severity}"


def _percent(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}{_UNIT}"


def _points(points: float, digits: int = 2) -> str:
    return with_minus(signed(points, digits))
