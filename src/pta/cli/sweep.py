"""`pta sweep`: a method's accuracy over a grid of its parameters."""

import re
from collections.abc import Sequence
from math import isclose
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table
from typer import Option

from pta.cli import options
from pta.cli.fitting_table import print_table, right
from pta.cli.method_choice import open_features
from pta.cli.options import parse_setting
from pta.cli.order_options import OrderOptions
from pta.cli.output import on_batch, plain, print_lines, progress, require_folder_place, require_place, write_json
from pta.door.files import write_atomically
from pta.errors import InvalidParameter
from pta.measure.cached_evaluation import evaluate_once
from pta.measure.contenders import as_given
from pta.measure.report.figures import draw_sweep, require_figure
from pta.measure.result_store import ResultStore
from pta.measure.sweep import Grid, Point, Swept, sweep_csv
from pta.methods import adapter_class

_WIDEST = 7  # columns of a matrix
_WARNING = "* highest accuracy. It was chosen with these labels: report the chosen value on other data."


def sweep(
    features: options.Features,
    *,
    set_: Annotated[
        list[str],
        "Values of a parameter, e.g. pta.h=5,20; may be repeated.",
        Option("--set", metavar="METHOD.NAME=A,B,…"),
    ],
    order: OrderOptions,
    device: options.Device = "cpu",
    results: Annotated[Path, "Cache of finished results."] = Path("pta-results"),
    json: Annotated[Path | None, "Write one record per point and seed; - for stdout."] = None,
    csv: Annotated[Path | None, "Write one row per point."] = None,
    plot: Annotated[Path | None, "Draw accuracy against the first parameter: .svg, .png, .pdf."] = None,
    replace: options.Replace = False,
) -> None:
    """Measure a method over a grid of parameters. Resumes; finished results are cached."""
    grid = read_grid(set_)
    if plot is not None:
        require_figure(plot)
    for path in (json, csv, plot):
        require_place(path, replace=replace)
    require_folder_place(results)
    datasets = open_features(features, device)
    lengths = [order.length_with_all_seeds(data) for data in datasets]
    for data in datasets:
        grid.require(order.part(data, order.seeds[0]))

    swept: dict[str, list[Point]] = {data.name: [] for data in datasets}
    store, seeds = ResultStore(results), order.seeds
    with progress() as bar:
        task, done = bar.add_task("", total=sum(lengths) * len(grid.settings)), 0
        for data, length in zip(datasets, lengths, strict=True):
            how: dict[str, Any] = {"batch": order.batch, "on_batch": on_batch(bar, task, data.name)}
            for setting in grid.settings:
                records = evaluate_once(store, data, grid.method, setting, seeds, stream=order, **how)
                in_order = sorted(records, key=lambda record: seeds.index(record["seed"]))
                swept[data.name].append(Point(setting, in_order))
                done += length  # also if the results were cached
                bar.update(task, completed=done)
    if csv is not None:
        write_atomically(csv, sweep_csv(grid, swept).encode())
    if plot is not None:
        draw_sweep(plot, grid, swept)
    if write_json(json, [record for points in swept.values() for point in points for record in point.records]):
        _show(grid, swept)


def read_grid(settings: Sequence[str]) -> Grid:
    """The grid of METHOD.NAME=A,B,… for each of its parameters."""
    values: dict[str, list[Any]] = {}
    methods: dict[str, None] = {}
    for setting in settings:
        target, equals, given = setting.partition("=")
        parsed = [parse_setting(f"{target}{equals}{value}") for value in split_values(given)]
        method, name, _ = parsed[0]
        found = [value for _, _, value in parsed]
        if name in values or any(value in found[:at] for at, value in enumerate(found)):
            raise InvalidParameter(f"--set {setting}: {name}, or one of its values, is given twice")
        values[name] = found
        methods[adapter_class(method).name] = None
    if len(methods) > 1:
        raise InvalidParameter(f"pta sweep takes one method, not {' and '.join(methods)}; call it for each")
    return Grid(next(iter(methods)), values)


def split_values(given: str) -> list[str]:
    """Split a list at the commas outside brackets and quotes.

    >>> split_values('1, [2,3],"a,b"')
    ['1', '[2,3]', '"a,b"']
    """
    values, depth = [""], 0
    for part in re.findall(r'"(?:\\.|[^"\\])*"|.', given):
        depth += (part in ("[", "{")) - (part in ("]", "}"))
        if part == "," and not depth:
            values.append("")
        else:
            values[-1] += part
    return [value.strip() for value in values]


def _show(grid: Grid, swept: Swept) -> None:
    for dataset, points in swept.items():
        highest = max(point.accuracy for point in points)
        print_lines(
            f"{dataset}: accuracy of {grid.method} in %, mean over {len(points[0].records)} seed(s), and gain over "
            f"zero-shot ({points[0].zero_shot:.2f})"
        )
        cells = [_cell(point, highest) for point in points]
        if len(grid.values) == 2 and len(list(grid.values.values())[1]) <= _WIDEST:  # a matrix
            (down, rows), (across, columns) = grid.values.items()
            table = Table(f"{down} ╲ {across}", *right(*(plain(as_given(value)) for value in columns)))
            for at, value in enumerate(rows):
                table.add_row(plain(as_given(value)), *cells[at * len(columns) : (at + 1) * len(columns)])
        else:
            table = Table(*grid.values, *right("accuracy (gain)"))
            for point, cell in zip(points, cells, strict=True):
                table.add_row(*(plain(as_given(value)) for value in point.setting.values()), cell)
        print_table(table)
    print_lines(_WARNING)


def _cell(point: Point, highest: float) -> str:
    deviation = "" if point.deviation is None else f" ± {point.deviation:.2f}"
    mark = "* " if isclose(point.accuracy, highest) else ""
    return f"{mark}{point.accuracy:.2f}{deviation} ({point.gain:+.2f})"
