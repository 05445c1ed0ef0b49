"""`pta compare`: the difference between two results, with its confidence interval."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from pta.cli.fitting_table import print_table, right
from pta.cli.messages import say
from pta.cli.options import parse_setting
from pta.cli.output import plain, print_lines, progress, require_place, write_json
from pta.errors import InvalidParameter
from pta.measure.compare import Comparison
from pta.measure.compare import compare as compare_contenders
from pta.measure.contenders import Choice, pair, read_contenders, shared_datasets
from pta.measure.difference import Resampling, points

_CAVEAT = "The interval covers the choice of samples. It does not cover other stream orders or other data."


def compare(
    a_file: Annotated[Path, typer.Argument(metavar="A.json", help="Records of pta eval --json or pta sweep --json.")],
    b_file: Annotated[
        Path | None, typer.Argument(metavar="[B.json]", help="B's records; without it, --a and --b choose from A.json.")
    ] = None,
    a: Annotated[
        str | None, typer.Option(metavar="METHOD[:NAME=VALUE,…]", help="Result A, e.g. pta:h=20,w=0.01.")
    ] = None,
    b: Annotated[str | None, typer.Option(metavar="METHOD[:NAME=VALUE,…]", help="Result B.")] = None,
    level: Annotated[float, typer.Option(help="Confidence level of the interval, from 0.5 to 0.999.")] = 0.95,
    resamples: Annotated[int, typer.Option(help="Number of bootstrap resamples, from 1,000 to 10 million.")] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resampling.")] = 1,
    json: Annotated[Path | None, typer.Option(help="Write the comparisons as JSON; - for stdout.")] = None,
) -> None:
    """Compare two results on the same samples: difference, confidence interval and significance."""
    resampling = Resampling(level, resamples, seed)
    choices = [_choice("a", a), _choice("b", b)]
    require_place(json)
    first = read_contenders(a_file)
    if b_file is None and None in choices:
        raise InvalidParameter("give a second file, or choose two results of this one with --a and --b")
    second = first if b_file is None else read_contenders(b_file)
    pairs = pair(first, second, *choices)
    left_out = sorted({one.dataset for one in (*first, *second)} - set(shared_datasets(first, second)))
    if left_out:
        say(f"left out, because only one file has them: {', '.join(left_out)}")
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
        title_justify="left",
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


def _count(samples: float) -> str:
    return f"{samples:,.0f}" if samples.is_integer() else f"{samples:,.1f}"
