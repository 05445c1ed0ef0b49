"""`pta datasets`: the datasets that are known by name, and whether a copy of one is complete."""

from pathlib import Path
from typing import Annotated, Any

from rich.table import Table
from typer import Argument, Context, Exit, Option

from pta.cli.fitting_table import print_table, right
from pta.cli.output import CommandGroup, print_lines, progress_of, require_place, write_json
from pta.data.catalogue import catalogue
from pta.data.check import Report
from pta.data.check import check as check_dataset

datasets = CommandGroup("datasets")


@datasets.callback(invoke_without_command=True)
def list_datasets(
    context: Context,
    json: Annotated[Path | None, Option(help="Write the list as JSON; - for stdout.")] = None,
) -> None:
    """List the datasets that are known by name, or check your copy of one."""
    if context.invoked_subcommand is None:
        require_place(json)
        records = [entry.record() for entry in catalogue().values()]
        if json is None:
            print_table(_table(records))
        else:
            write_json(json, records)


@datasets.command()
def check(
    name: Annotated[str, "A dataset, e.g. dtd, imagenet_a or imagenet_c/fog/5.", Argument(metavar="NAME")],
    data: Annotated[Path, "The folder that holds the datasets."],
    json: Annotated[Path | None, "Write the result as JSON; - for stdout."] = None,
) -> None:
    """Count the samples of a dataset and name what is missing. Exit code 0: complete, 1: incomplete."""
    require_place(json)
    with progress_of(name) as move:
        report = check_dataset(name, data, move)
    if write_json(json, report.record()):
        _show(report)
    if not report.complete:
        raise Exit(1)


def _show(report: Report) -> None:
    samples = f"{report.images:,}" + ("" if report.expected_images is None else f" of {report.expected_images:,}")
    print_lines(
        f"{report.name}: {report.title}",
        f"  folder   {report.folder}",
        f"  samples  {samples}",
        f"  classes  {report.classes:,} of {report.expected_classes:,}",
        *(f"  note     {note}" for note in report.notes),
        *(f"  missing  {problem}" for problem in report.problems),
        "complete" if report.complete else "incomplete",
    )


def _table(records: list[dict[str, Any]]) -> Table:
    table = Table("id", "what it is", *right("classes", "samples"), "folder in --data", "templates")
    for record in records:
        samples = record["images"]
        many = (
            f"{samples:,}" if isinstance(samples, int) else " or ".join(f"{n:,}" for n in sorted({*samples.values()}))
        )
        counts = (f"{record['classes']:,}", many + (" each" if record["parts"] else ""))
        table.add_row(record["id"], record["title"], *counts, record["folder"], record["templates"])
    return table
