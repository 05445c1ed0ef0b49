"""`pta trial`: the verdict on a user's own labelled samples."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.table import Table

from pta import __version__
from pta.cli import options
from pta.cli.fitting_table import print_table, right
from pta.cli.messages import warn
from pta.cli.output import command_line, print_lines, progress_of, require_report, write_json
from pta.cli.trial_source import TrialOptions, TrialSource, open_trial
from pta.door.files import write_atomically
from pta.measure.difference import points
from pta.measure.report.stream_page import ReportTable, StreamReport, render_stream_report
from pta.measure.trial.trial import COMPARED, SEEDS, MethodResult, Trial, is_sorted, run_trial
from pta.methods import DEFAULT_METHOD, load_adapter

_SUBJECT = f"pta predict ({DEFAULT_METHOD})"
_HEADINGS = ("method", "in this order", f"shuffled, {len(SEEDS)} times", "frozen after half")
_ABOUT = (
    "Accuracy in %, and the gain over zero-shot in points with its 95 % interval. Frozen: the first half of each "
    "shuffled order is learned, and the second answered without learning; the state, if there is one, answers all."
)


def trial(
    given: TrialOptions,
    report: Annotated[Path | None, "Write a page about it, .html."] = None,
    no_pictures: Annotated[bool, "Put no thumbnails into the page."] = False,
    json: Annotated[Path | None, "Write all numbers as JSON; - for stdout."] = None,
    replace: options.Replace = False,
) -> None:
    """Find out whether adaptation helps on your own labelled samples, and by how much."""
    require_report(report, json, replace=replace)
    source = open_trial(given)
    if twins := source.stream.twins:
        paths = source.stream.data.paths
        which = " and ".join(paths[at] if paths else f"number {at}" for at in twins[0])
        warn(f"a label must be wrong where the same sample has two: {which} ({len(twins):,} such pairs)")
    state = None if given.state is None else load_adapter(given.state, source.stream.data.classifier)
    with progress_of("running", total=None) as move:
        tried = run_trial(
            source.stream, state, on_method=lambda name, done, total: move(done, total, f"running {name}")
        )
    sentences = _sentences(tried, given, source.things)
    if report is not None:
        write_atomically(report, _page(given, source, tried, sentences, pictures=not no_pictures).encode())
    if write_json(json, {**tried.record(), "sentences": sentences}):
        print_table(_table(tried, source.things))
        print_lines(*sentences, *([] if report is None else [f"Report: {report}"]))


def _page(given: TrialOptions, source: TrialSource, tried: Trial, sentences: Sequence[str], *, pictures: bool) -> str:
    provenance = {
        "Source": given.source,
        **({} if given.unlabelled is None else {"Stream": given.unlabelled}),
        **({} if given.state is None else {"State": str(given.state)}),
        "Model": source.model,
        "Method": f"{DEFAULT_METHOD}, with its defaults",
        "To reproduce": command_line(),
        "Parameters": f"{tried.results[1].given.settings}; not tuned",
        "Software": f"pta {__version__}",
    }
    zero_shot, default, *others = tried.results
    headline, *notes = sentences
    report = StreamReport(
        title=f"Trial of {given.source}",
        kicker=f"{given.source} · {len(default.given.order):,} labelled {source.things}",
        headline=headline,
        note=" ".join(f"{note.removesuffix('.')}." for note in notes),
        things=source.things,
        class_names=tried.stream.data.classifier.class_names,
        zero_shot=zero_shot.given,
        adapted=default.given,
        others=[(other.name, other.given) for other in others],
        adapted_name=default.name,
        picture=source.picture if pictures else None,
        encoder_microseconds=source.encoder_microseconds,
        provenance=provenance,
        tables=[ReportTable("Other orders", _ABOUT, _HEADINGS, _rows(tried))],
    )
    return render_stream_report(report)


def _rows(tried: Trial) -> list[list[str]]:
    """Every method in every order."""
    rows = []
    for result, gains in zip(tried.results, tried.gains, strict=True):
        is_zero_shot = result is tried.results[0]
        cells = [f"{one.accuracies[1]:.2f}" + ("" if is_zero_shot else f"  {one.signed}") for one in gains.values()]
        rows.append([result.name, *cells])
    return rows


def _sentences(tried: Trial, given: TrialOptions, things: str) -> list[str]:
    """The verdict, what it is about, and whether another method is better."""
    said = [tried.verdict.sentence(_SUBJECT, things=things), tried.stream.note]
    if given.unlabelled is None and is_sorted(tried.stream.labels):
        shuffled = f"Shuffled, the difference is {tried.gains[1]['shuffled'].signed} points"
        said.append(f"{shuffled}: expect that if your real stream is mixed, or name the stream with --unlabelled.")
    if given.state is not None:
        said.append(f"In the row of the state, “frozen” is the state that answers all {things} without learning.")
    if tried.recommended is not None:
        other, found = tried.recommended
        low, high = map(points, found.interval)
        level = f"{100 * found.resampling.level:.4g} %, corrected for {len(tried.results) - 1} methods"
        gain = f"{points(found.difference)} points ({level}: {low} to {high})"
        better = f"{other.name} is better than {DEFAULT_METHOD} by {gain}"
        said.append(f"{better}: pta predict {_options(other, given.state)}")
    return said


def _options(result: MethodResult, state: Path | None) -> str:
    """How `pta predict` runs the method of a result, and on what condition."""
    if result.name not in COMPARED:
        return f"--state {shlex.quote(str(state))}"
    method, parameters = COMPARED[result.name]
    options = [f"--method {method}", *(f"--{name} {value}" for name, value in parameters.items())]
    return " ".join(options) + (", if classes come in about equal numbers" if "gate" in parameters else "")


def _table(tried: Trial, things: str) -> Table:
    count, classes = len(tried.results[0].given.order), tried.stream.data.classifier.classes
    table = Table(
        _HEADINGS[0],
        *right(*_HEADINGS[1:]),
        title=f"{count:,} labelled {things}, {classes:,} classes: accuracy in %, gain over zero-shot in points (95 %)",
    )
    for row in _rows(tried):
        table.add_row(*row)
    return table
