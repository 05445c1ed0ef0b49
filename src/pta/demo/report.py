"""The report of a demonstration: one HTML file that needs nothing else and says the same for the same result."""

from html import escape

import numpy as np
from numpy.typing import NDArray

from pta import __version__
from pta.demo.curve import draw_curve, first_shown
from pta.demo.pictures import nearest, picture, spread
from pta.demo.result import ClassScore, DemoResult, chance_of_split
from pta.encoders import EMBEDDED_TEMPLATES
from pta.evaluation.html_page import facts, mood, packaged_text, page, tiles
from pta.evaluation.number_text import signed, with_minus

_NEAREST = 8  # pictures for a prototype
_CHANGES = 12  # pictures of each kind of change
_UNIT = "\N{NO-BREAK SPACE}%"


def render_report(result: DemoResult) -> str:
    """The whole page."""
    title = f"PTA demonstration: {_shift_words(result)}"
    sections = (_opening, _shift, _curve, _classes, _prototypes, _changes, _provenance)
    body = "\n".join(section(result) for section in sections)
    return page(title, body, style=packaged_text("demo-report.css"), script=packaged_text("demo-report.js"))


def _opening(result: DemoResult) -> str:
    numbers = tiles(
        (_percent(result.before), "right by zero-shot"),
        (_percent(result.after), "right by PTA"),
        (f'<span class="{mood(result.gain)}">{_points(result.gain)}</span>', "points of difference"),
        (f"{len(result.fixed)} / {len(result.broken)}", "fixed / broken answers"),
    )
    caveat = f'<p class="caveat">{escape(result.caveat)}</p>' if result.caveat else ""
    return f"""<header>
<p class="kicker">Fashion images, labelled by a small CLIP-like model · shift: {escape(_shift_words(result))}</p>
<h1>{escape(result.verdict).replace(" %", _UNIT)}</h1>
{caveat}
<p class="soft">The images came one after the other, without labels. Zero-shot compares each with the text of every
class. PTA does that too, and lets every image move the prototypes of the classes it seems to belong to, so that
later images are compared with what was seen as well as with what was written. The true labels were used
only to count.</p>
{numbers}
</header>"""


def _shift(result: DemoResult) -> str:
    figures = []
    for c, name in enumerate(result.data.classifier.class_names):
        own = result.pta.order[result.labels[result.pta.order] == c]
        if len(own):
            before = picture(result.originals[own[0]], f"{name}, as it was")
            after = picture(result.images[own[0]], f"{name}, shifted")
            figures.append(f"<figure>{before}{after}<figcaption>{escape(name)}</figcaption></figure>")
    return f"""<section>
<h2>What happened to the images</h2>
<p class="soft">The first image of every class in the stream: as it was, and below it as the model got it.</p>
<div class="strip">{"".join(figures)}</div>
</section>"""


def _curve(result: DemoResult) -> str:
    begin = first_shown(len(result))
    return f"""<section>
<h2>Accuracy as the stream went on</h2>
<p class="soft">The share of right answers among all images so far. The curve begins after {begin} images:
before, it is mostly noise. The scale on the left is cut to the curves.</p>
<div class="legend">
<span class="zero-shot"><i></i>zero-shot <b>{_percent(result.before)}</b></span>
<span class="pta"><i></i>PTA <b>{_percent(result.after)}</b></span>
<span class="where">after all {len(result):,} images: {_points(result.gain)} points</span>
</div>
{draw_curve(*result.online_accuracies)}
</section>"""


def _classes(result: DemoResult) -> str:
    scores = sorted(result.classes, key=lambda score: -score.gain)
    rows = "\n".join(_class_row(score) for score in scores)
    return f"""<section>
<h2>Class by class</h2>
<p class="soft">Best gain first. The ring is zero-shot and the dot PTA, on a line from 0 to 100 %.</p>
<table>
<thead><tr><th>class (images)</th><th class="way"></th><th>zero-shot</th><th>PTA</th><th>gain</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</section>"""


def _class_row(score: ClassScore) -> str:
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


def _prototypes(result: DemoResult) -> str:
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
    return f"""<section>
<h2>What PTA learnt to look for</h2>
<p class="soft">For every class the {by_pta.shape[1]} images of the stream that are nearest to its text, and the
{by_pta.shape[1]} nearest to its prototype at the end of the stream. An image with a dashed frame belongs to
another class. In all, {text_right} of {by_text.size} are of the right class by text and {pta_right} of {by_pta.size}
by prototype.</p>
<div class="cards">
{cards}
</div>
</section>"""


def _row_of_nearest(result: DemoResult, c: int, chosen: NDArray[np.int64], source: str) -> str:
    names = result.data.classifier.class_names
    others = sorted({names[result.labels[i]] for i in chosen if result.labels[i] != c})
    right = sum(int(result.labels[i] == c) for i in chosen)
    also = f"; also {', '.join(others)}" if others else ""
    pictures = "".join(
        picture(result.images[i], names[result.labels[i]], "" if result.labels[i] == c else "other") for i in chosen
    )
    return (
        f"<p>nearest to <b>{escape(source)}</b>: {right} of {len(chosen)} right{escape(also)}</p>"
        f'<div class="eight">{pictures}</div>'
    )


def _changes(result: DemoResult) -> str:
    fixed, broken = result.fixed, result.broken
    luck = chance_of_split(len(fixed), len(broken))
    odds = "fewer than 1 of 1,000" if luck < 0.001 else f"{100 * luck:.1f}{_UNIT} of"
    return f"""<section>
<h2>Answers that PTA changed</h2>
<p class="soft">If fair coins decided whether a change fixes or breaks an answer, they would fall at least as
unevenly as {len(fixed)} to {len(broken)} in {odds} cases.
Shown are at most {_CHANGES} of each kind, evenly spread over the stream.</p>
<h3>Fixed: {len(fixed)}</h3>
{_gallery(result, fixed)}
<h3>Broken: {len(broken)}</h3>
{_gallery(result, broken)}
</section>"""


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
            f"<figure>{picture(result.images[i], name)}"
            f"<figcaption><b>{escape(name)}</b><br>{answers}</figcaption></figure>"
        )
    return f'<div class="changes">{"".join(figures)}</div>'


def _answer(name: str, right: bool) -> str:
    return escape(name) if right else f'<span class="loss">{escape(name)}</span>'


def _provenance(result: DemoResult) -> str:
    parameters = ", ".join(f"{key} = {value}" for key, value in result.pta.parameters.items())
    prompts = " · ".join(f"“{template.format('[class]')}”" for template in EMBEDDED_TEMPLATES)
    told = {
        "Shift": f"{result.shift}, severity {result.severity} of 5; made by program, not met in the world",
        "Images": f"the first {len(result):,} of Fashion-MNIST’s test file (Zalando SE, MIT licence)",
        "Model": "the one embedded in pta, trained on Fashion-MNIST’s training images: small, and at home with "
        "nothing but clothes, so these numbers say nothing about CLIP itself",
        "Fingerprint": result.model_fingerprint,
        "Prompts": f"mean over {prompts}",
        "Order": f"random, seed {result.seed}; the seed also draws the shift",
        "Method": "Prototype-Based Test-Time Adaptation of Vision-Language Models (ICML 2026)",
        "Parameters": f"{parameters}; the defaults, not tuned to these images",
        "Software": f"pta {__version__}",
        "To reproduce": result.call,
    }
    return f"<section>\n<h2>Where this comes from</h2>\n{facts(told)}\n</section>"


def _shift_words(result: DemoResult) -> str:
    return f"{result.shift.replace('_', ' ')}, severity {result.severity}"


def _percent(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}{_UNIT}"


def _points(points: float, digits: int = 2) -> str:
    return with_minus(signed(points, digits))
