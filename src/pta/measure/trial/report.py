"""The page of a trial: the default on the stream as it came, and the table of all orders."""

from collections.abc import Mapping, Sequence

from pta import __version__
from pta.measure.report.pictures import Picture
from pta.measure.report.stream_page import ReportTable, StreamReport
from pta.measure.trial.trial import SEEDS, Trial

_ORDERS = {
    "given": "in this order",
    "shuffled": f"shuffled, {len(SEEDS)} times",
    "frozen": "frozen after half",
}
"""The columns of a trial's table."""
_ABOUT = (
    "Accuracy in %, and the gain over zero-shot in points with its 95 % interval. Frozen: the first half of each "
    "shuffled order is learned, and the second answered without learning; the state, if there is one, answers all."
)


def trial_table(tried: Trial) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: every method in every order."""
    rows = []
    for result, gains in zip(tried.results, tried.gains, strict=True):
        is_zero_shot = result is tried.results[0]
        cells = [f"{one.accuracies[1]:.2f}" + ("" if is_zero_shot else f"  {one.signed}") for one in gains.values()]
        rows.append([result.name, *cells])
    return ["method", *_ORDERS.values()], rows


def trial_report(
    tried: Trial,
    source: str,
    things: str,
    sentences: Sequence[str],
    picture: Picture | None,
    encoder_microseconds: float | None,
    provenance: Mapping[str, str],
) -> StreamReport:
    """What the page says; the first of the sentences is the verdict."""
    zero_shot, default, *others = tried.results
    headline, *notes = sentences
    return StreamReport(
        title=f"Trial of {source}",
        kicker=f"{source} · {len(default.given.order):,} labelled {things}",
        headline=headline,
        note=" ".join(f"{note.removesuffix('.')}." for note in notes),
        things=things,
        class_names=tried.stream.data.classifier.class_names,
        zero_shot=zero_shot.given,
        adapted=default.given,
        others=[(other.name, other.given) for other in others],
        adapted_name=default.name,
        picture=picture,
        encoder_microseconds=encoder_microseconds,
        provenance={
            **provenance,
            "Parameters": f"{default.given.settings}; not tuned",
            "Software": f"pta {__version__}",
        },
        tables=[ReportTable("Other orders", _ABOUT, *trial_table(tried))],
    )
