"""`pta demo`: zero-shot and PTA side by side on shifted images or clouds, in the terminal and as an HTML report."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pta.cli import options
from pta.cli.fitting_table import print_table, right
from pta.cli.output import print_lines, progress_of, require_place, tables, write_json
from pta.data.point_shapes import SHAPE_SOURCES
from pta.data.shifts.images import SHIFTS
from pta.data.shifts.points import CORRUPTIONS
from pta.door.files import write_atomically
from pta.errors import InvalidParameter
from pta.measure.demo.report import render_report
from pta.measure.demo.result import DemoResult
from pta.measure.demo.run_demo import ORDERS, run_cloud_demo, run_demo
from pta.measure.metrics import accuracy, online_accuracy
from pta.measure.report.curve import Curve, first_shown
from pta.measure.texts import microseconds

_REPORT = Path("demo-report.html")  # which a second demonstration writes anew
_SECONDS = 3.5  # for the animation; the measurement itself takes a fraction of that
_FRAMES = 100
_BAR_WIDTH = 26
_SPARK_WIDTH = 20


def demo(
    modality: Annotated[Literal["images", "points"], "Kind of samples."] = "images",
    source: Annotated[str | None, f"Which clouds: {' or '.join(SHAPE_SOURCES)}; default furniture."] = None,
    shift: Annotated[
        str | None,
        f"Shift of the images: {', '.join(SHIFTS)} (default gaussian_noise); of the clouds: "
        f"{', '.join(CORRUPTIONS)} (default jitter).",
    ] = None,
    severity: Annotated[
        int | None, "Severity of the shift: images 1 to 5 (default 3), clouds 0 to 4 (default 2)."
    ] = None,
    seed: Annotated[int, "Random seed of the shift and of the order of the samples."] = 1,
    report: Annotated[Path, "Where to write the report, one HTML file."] = _REPORT,
    json: Annotated[Path | None, "Write the table's numbers as JSON; - for stdout."] = None,
    replace: options.Replace = False,
) -> None:
    """Classify shifted images or point clouds with zero-shot, PTA and other methods, and write a report."""
    require_place(report, replace=replace or report == _REPORT)
    require_place(json, replace=replace)
    if modality == "images" and source is not None:
        raise InvalidParameter("--source chooses clouds; it needs --modality points")
    if modality == "images" and shift in CORRUPTIONS and shift not in SHIFTS:
        raise InvalidParameter(f"--shift {shift} is a shift of clouds; it needs --modality points")
    console = tables()
    given = {"source": source, "shift": shift, "severity": severity}
    run = partial(run_demo if modality == "images" else run_cloud_demo, seed=seed)
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    with progress_of(f"encoding {modality}") as move:
        result = run(**chosen, on_encoded=lambda done, all_: move(done, all_, None if done < all_ else "classifying"))
    write_atomically(report, render_report(result).encode())
    if not write_json(json, {**result.summary(), "report": str(report)}):
        return
    if console.is_interactive:
        _replay(console, result)
    print_table(_table(result))
    print_lines(
        _speed(result),
        _highlights(result),
        result.verdict,
        result.over_orders,
        f"Report: {report}",
    )


def _replay(console: Console, result: DemoResult) -> None:
    """Animate both online accuracies. They were measured before, so that pauses do not count as run time."""
    whole = [online_accuracy(run.right) for run in (result.zero_shot, result.pta)]
    with Live(console=console, auto_refresh=False) as live:
        for seen in np.linspace(1, len(result), _FRAMES).astype(int):
            curves = [curve[:seen] for curve in whole]
            live.update(_frame(curves, len(result), result.exhibit.things, console), refresh=True)
            time.sleep(_SECONDS / _FRAMES)
    console.print()


def _frame(curves: Sequence[Curve], total: int, things: str, console: Console) -> Group:
    trends = [curve[first_shown(total) - 1 :] for curve in curves]
    steady = np.concatenate(trends)
    grid = Table.grid(padding=(0, 2))
    for name, curve, trend, style in zip(("zero-shot", "PTA"), curves, trends, ("bright_black", "cyan"), strict=True):
        shown = len(steady) and not console.options.ascii_only
        spark = _spark(trend, steady.min(), steady.max()) if shown else ""
        bar = ProgressBar(completed=curve[-1], width=_BAR_WIDTH, complete_style=style)
        grid.add_row(name, bar, f"{curve[-1]:6.2f} %", Text(spark, style))
    lead = curves[1][-1] - curves[0][-1]
    seen = f"{len(curves[0]):,} of {total:,} {things}, slowed down: PTA is at {lead:+.2f} points"
    return Group(Text(seen), grid)


def _spark(curve: Curve, low: float, high: float) -> str:
    """A curve between low and high as one line of block characters."""
    picked = curve[np.linspace(0, len(curve) - 1, min(_SPARK_WIDTH, len(curve))).astype(int)]
    heights = (7 * (picked - low) / max(high - low, 1e-9)).round().astype(int)
    return "".join("▁▂▃▄▅▆▇█"[height] for height in heights)


def _table(result: DemoResult) -> Table:
    things, before = result.exhibit.things, result.difference.accuracies[0]
    title = f"{len(result):,} {things}, {result.shift}, severity {result.severity}, seed {result.seed}"
    headings = right("accuracy", "gain over zero-shot", "µs per sample")
    table = Table("method", *headings, title=title)
    for name, run in result.runs:
        after = accuracy(run.right)
        gain = "" if run is result.zero_shot else f"{after - before:+.2f}"
        table.add_row(name, f"{after:.2f} %", gain, microseconds(result.microseconds(run)))
    return table


def _speed(result: DemoResult) -> str:
    return (
        f"The encoder takes {microseconds(result.encoder_microseconds)} µs per {result.exhibit.thing} before any "
        f"method. Times are those of batches, for zero-shot and PTA the median over {ORDERS} orders."
    )


def _highlights(result: DemoResult) -> str:
    """The classes that gained and lost most right answers, in one line."""
    gains = [(part.score.difference, part.name) for part in result.classes]
    up = [f"{name} {gain:+.1f}" for gain, name in gains[:3] if gain > 0]
    down = [f"{name} {gain:+.1f}" for gain, name in reversed(gains[-3:]) if gain < 0]
    return f"Classes that gained most: {', '.join(up) or 'none'}; that lost most: {', '.join(down) or 'none'}."
