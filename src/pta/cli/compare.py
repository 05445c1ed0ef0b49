"""`pta compare`: the difference between two results, with its confidence interval."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.table import Table
from typer import Argument, Option

from pta.cli.fitting_table import print_table, right
from pta.cli.messages import say
from pta.cli.options import parse_setting
from pta.cli.output import plain, print_lines, progress, require_place, write_json
from pta.errors import InvalidParameter
from pta.measure.compare import Comparison
from pta.measure.compare import compare as compare_contenders
from pta.measure.contenders import Choice, against, pair, read_contenders, shared_datasets
from pta.measure.difference import Resampling, points
from pta.measure.overall import FEWEST_SETS, Overall, by_labels, compare_overall
from pta.measure.report.figures import require_figure
from pta.measure.report.overall_figure import draw_overall

_CAVEAT = "The interval covers the choice of samples. It does not cover other stream orders or other data."
_CAVEAT_OVERALL = (
    "Samples, orders and sets were resampled. A set is won or lost by the interval of its samples alone. p (Holm) and "
    "verdicts are corrected for the number of comparisons; intervals are not."
)


def compare(
    a_file: Annotated[Path, "Records of pta eval --json or pta sweep --json.", Argument(metavar="A.json")],
    b_file: Annotated[
        Path | None, "B's records; without it, --a and --b choose from A.json.", Argument(metavar="[B.json]")
    ] = None,
    a: Annotated[str | None, "Result A, e.g. pta:h=20,w=0.01.", Option(metavar="METHOD[:NAME=VALUE,…]")] = None,
    b: Annotated[str | None, "Result B.", Option(metavar="METHOD[:NAME=VALUE,…]")] = None,
    level: Annotated[float, "Confidence level of the interval, from 0.5 to 0.999."] = 0.95,
    resamples: Annotated[int, "Number of bootstrap resamples, from 1,000 to 10 million."] = 20_000,
    seed: Annotated[int, "Seed of the resampling.", Option(min=0)] = 1,
    overall: Annotated[bool, "One row for all datasets; with --a alone, one per other result."] = False,
    plot: Annotated[Path | None, "Draw what --overall shows: .svg, .png, .pdf."] = None,
    json: Annotated[Path | None, "Write the comparisons as JSON; - for stdout."] = None,
) -> None:
    """Compare two results on the same samples: difference, confidence interval and significance."""
    resampling = Resampling(level, resamples, seed)
    choices = [_choice("a", a), _choice("b", b)]
    if plot is not None:
        require_figure(plot)
        if not overall:
            raise InvalidParameter("--plot draws what --overall shows; add --overall")
    for place in (json, plot):
        require_place(place)
    if json is not None and json.resolve() in {one.resolve() for one in (a_file, b_file) if one is not None}:
        raise InvalidParameter(f"--json {json} would overwrite the records that are compared; choose another file")
    first = read_contenders(a_file)
    second = first if b_file is None else read_contenders(b_file)
    if overall and b_file is None and b is None and choices[0] is not None:
        pairs = against(first, choices[0])
    elif b_file is None and None in choices:
        alone = "; --overall --a compares one result with all others" if overall else ""
        raise InvalidParameter(f"give a second file, or choose two results of this one with --a and --b{alone}")
    else:
        pairs = pair(first, second, *choices)
    left_out = sorted({one.dataset for one in (*first, *second)} - set(shared_datasets(first, second)))
    if left_out:
        say(f"left out, because only one file has them: {', '.join(left_out)}")
    if overall:
        compared = compare_overall(by_labels(pairs), resampling)
        if plot is not None:
            draw_overall(plot, compared)
        if write_json(json, [one.record() for one in compared]):
            _show_overall(compared, level)
        return
    with progress() as bar:
        done = [compare_contenders(one, other, resampling) for one, other in bar.track(pairs, description="compare")]
    if write_json(json, [comparison.record() for comparison in done]):
        _show(done, level)


def _choice(side: str, given: str | None) -> Choice | None:
    if given is None:
        return None
    method, colon, settings = given.partition(":")
    parts = re.split(r",(?=[\w.]+=)", settings) if colon else []  # not at commas inside a value
    try:
        return Choice(method, {name: value for _, name, value in (parse_setting(f"{method}.{one}") for one in parts)})
    except InvalidParameter:
        expected = "expected METHOD or METHOD:NAME=VALUE,…, e.g. pta:h=20,w=0.01"
        raise InvalidParameter(f"--{side} {given}: {expected}") from None


def _show(done: Sequence[Comparison], level: float) -> None:
    table = Table(
        *("dataset", "A", "B"),
        *right("difference", f"{100 * level:g} %", "fixed", "broken"),
        "verdict",
        title="accuracy in %, on the samples both results share",
    )
    for one in done:
        low, high = one.interval
        table.add_row(
            plain(one.a.dataset),
            *(plain(f"{label} {accuracy:.2f}") for label, accuracy in zip(one.labels, one.accuracies, strict=True)),
            points(one.difference),
            f"{points(low)} to {points(high)}",
            _count(one.fixed),
            _count(one.broken),
            one.answer,
        )
    print_table(table)
    for one in done:
        note = f" ({one.note})" if one.note else ""
        print_lines(f"{one.a.dataset}, A {one.labels[0]}, B {one.labels[1]}: {one.verdict}{note}")
    print_lines(_CAVEAT)


def _show_overall(done: Sequence[Overall], level: float) -> None:
    table = Table(
        *("A", "B"),
        *right("sets", "difference", f"{100 * level:g} %", "won", "tied", "lost", "p", "p (Holm)"),
        "verdict",
        title="mean difference of the accuracies over all sets, in points",
    )
    for one in done:
        low, high = map(points, one.interval)
        counts = map(str, (one.wins, one.ties, one.losses))
        chances = (f"{one.p_value:.2g}", f"{one.corrected:.2g}")
        measured = (str(len(one.by_set)), points(one.difference), f"{low} to {high}", *counts, *chances)
        table.add_row(*map(plain, one.labels), *measured, one.answer)
    print_table(table, keys=2)
    print_lines(_CAVEAT_OVERALL)
    if min(len(one.by_set) for one in done) < FEWEST_SETS:
        print_lines(f"Fewer than {FEWEST_SETS} sets say nothing certain of others.")


def _count(samples: float) -> str:
    return f"{samples:,.0f}" if samples.is_integer() else f"{samples:,.1f}"
