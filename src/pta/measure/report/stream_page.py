"""The report of a labelled stream: one HTML file that needs nothing else and says the same for the same runs."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from pta.door.safe_text import printable
from pta.measure.difference import Difference
from pta.measure.metrics import calibration_error, online_accuracy
from pta.measure.parts import by_class, confusions, quarters
from pta.measure.report.curve import draw_curves
from pta.measure.report.page import render
from pta.measure.report.pictures import Picture
from pta.measure.stream_run import StreamRun

_MOST_PICTURES = 12  # of each kind of change
_MOST_PAIRS = 10  # of a true class and a wrong answer
_LONGEST_NAME = 80  # characters of a class


@dataclass(frozen=True)
class ReportTable:
    """One more table of a report."""

    title: str
    text: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class StreamReport:
    """What a page says about methods on one stream; all runs have labels and the same order."""

    title: str  # of the browser's tab
    kicker: str  # what was labelled, in which order
    headline: str  # the verdict, with its interval
    things: str  # several samples
    class_names: Sequence[str]
    zero_shot: StreamRun
    adapted: StreamRun  # the method that the verdict is about
    others: Sequence[tuple[str, StreamRun]]  # by name
    adapted_name: str
    provenance: Mapping[str, str]
    note: str = ""  # what the reader must know about the verdict
    picture: Picture | None = None  # None: no pictures at all
    encoder_microseconds: float | None = None  # per sample; None: unknown
    about_methods: str = ""  # a text above the table of methods
    tables: Sequence[ReportTable] = ()


class _Gallery(NamedTuple):
    """Answers that changed in one way, and some of their pictures, each with its position in the stream."""

    title: str
    changes: int
    pictures: list[tuple[Markup, int]]
    unread: int


def render_stream_report(report: StreamReport, template: str = "stream-report.html", **more: Any) -> str:
    """The whole page; a template that extends the usual one can take `more` values."""
    before, after = report.zero_shot, report.adapted
    names = [_shown(name) for name in report.class_names]
    runs = [("zero-shot", before), (report.adapted_name, after), *report.others]
    old, new = before.right, after.right
    pairs = confusions(before, after)
    script = files("pta").joinpath("assets", "stream-report.js").read_text(encoding="utf-8")
    return render(
        template,
        report=report,
        names=names,
        methods=[(name, run, Difference.between([before], [run])) for name, run in runs],
        calibration_error=calibration_error,
        curve=draw_curves([online_accuracy(run.right) for _, run in runs]),
        quarters=quarters(before, after),
        classes=by_class(before, after, names),
        changed=sorted((pair for pair in pairs if pair.change), key=lambda pair: -abs(pair.change))[:_MOST_PAIRS],
        left=sorted((pair for pair in pairs if pair.after), key=lambda pair: -pair.after)[:_MOST_PAIRS],
        galleries=[
            _gallery("Fixed", report, names, np.flatnonzero(new & ~old)),
            _gallery("Broken", report, names, np.flatnonzero(old & ~new)),
        ],
        most_pictures=_MOST_PICTURES,
        script=Markup(script),
        script_digest=b64encode(sha256(script.encode()).digest()).decode(),
        **more,
    )


def spread(positions: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    """At most `count` of the positions, evenly from the first to the last: no picking.

    >>> spread(np.arange(10, 21), 3), spread(np.arange(2), 3)
    (array([10, 15, 20]), array([0, 1]))
    """
    if len(positions) <= count:
        return positions
    return positions[np.linspace(0, len(positions) - 1, count).round().astype(np.intp)]


def _gallery(title: str, report: StreamReport, names: Sequence[str], positions: NDArray[np.intp]) -> _Gallery:
    order, labels = report.zero_shot.order, report.zero_shot.labels
    assert labels is not None
    shown = spread(positions, _MOST_PICTURES).tolist()
    drawn = [report.picture(int(order[at]), names[labels[at]], "") for at in shown] if report.picture else []
    pictures = [(Markup(one), at) for one, at in zip(drawn, shown, strict=False) if one is not None]
    return _Gallery(title, len(positions), pictures, unread=len(drawn) - len(pictures))


def _shown(name: str) -> str:
    """A class's name, which is the user's text, without what would change how the page is displayed."""
    text = printable(name)
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}…"
