"""`pta reproduce`: every table and figure of the paper, ours beside the paper's."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.table import Table as Screen
from typer import Argument, Option

from pta.cli import options
from pta.cli.fitting_table import print_table, right
from pta.cli.messages import say
from pta.cli.method_choice import open_features
from pta.cli.output import plain, print_lines, progress, require_folder_place, require_place, tables, write_json
from pta.core.modality import IMAGES
from pta.door.plain_files import make_folder
from pta.errors import InvalidParameter
from pta.measure.report.formats import FORMATS, parse_formats, to_json, write_results
from pta.measure.reproduce.declaration import list_experiments, load_experiments
from pta.measure.reproduce.fill import reproduce as reproduce_plans
from pta.measure.reproduce.library import Library
from pta.measure.reproduce.plan import Plan, PlannedJob, place
from pta.measure.reproduce.profile import profile_with
from pta.measure.reproduce.table import Table
from pta.measure.result_store import ResultStore
from pta.models import DEFAULT_MODEL, find_device
from pta.run.reading import Reading, require_decoder


def reproduce(
    experiments: Annotated[
        list[str] | None,
        "Names that --list shows, or files of your own.",
        Argument(metavar="[EXPERIMENT|FILE.toml]..."),
    ] = None,
    list_: Annotated[bool, "Show all experiments and exit."] = False,
    all_: Annotated[bool, "All experiments."] = False,
    offline: Annotated[bool, "Run small versions on the packaged data and on --features."] = False,
    data: Annotated[Path | None, "Folder that holds the datasets; see pta datasets."] = None,
    features: Annotated[list[Path] | None, "A feature file, or a folder of them; may be repeated."] = None,
    model: Annotated[
        str | None,
        f"As for pta extract; {options.MODEL_VARIABLE} is used unless offline.",
        Option(show_default=f"{DEFAULT_MODEL}; offline: the embedded models"),
    ] = None,
    descriptions: Annotated[
        Path | None, "Folder with sentences for each class, DATASET.json, for the GPT rows."
    ] = None,
    seeds: Annotated[int | None, "Maximum number of seeds per row.", Option(min=1, show_default="offline: 10")] = None,
    out: Annotated[Path, "Folder for results, features and tables."] = Path("reproduction"),
    format_: Annotated[
        str, f"Formats of the tables, separated by commas: {', '.join(FORMATS)}.", Option("--format")
    ] = "md,csv",
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    batch: options.Batch = 64,
    workers: options.Workers = None,
    decode: options.Decode = "auto",
    no_compile: options.NoCompile = False,
    on_error: options.OnError = "stop",
    give_up_unread: options.GiveUpUnread = False,
    json: Annotated[Path | None, "Write every cell as JSON; - for stdout."] = None,
) -> None:
    """Run the paper's experiments on the data you have. Resumes; finished results are cached."""
    require_place(json)
    require_folder_place(out)
    formats = parse_formats(format_)
    if list_:
        _list(json)
        return
    chosen = load_experiments(experiments or [], every=all_ or (offline and not experiments))
    if not (offline or data or features):
        raise InvalidParameter("nothing to run on: --data ROOT for the paper's datasets, --features FILE, or --offline")
    options.require_folder("--data", data)
    options.require_folder("--descriptions", descriptions)
    require_decoder(decode, IMAGES, find_device(device))
    reading = Reading(batch, workers, decode=decode, compiled=not no_compile, give_up_unread=give_up_unread)
    own = open_features(features or [], device)
    profile = profile_with(own, offline=offline, most_seeds=seeds)
    plans = [place(experiment, profile) for experiment in chosen]
    library = Library(
        out / "features",
        root=data,
        model=model or profile.model or os.environ.get(options.MODEL_VARIABLE) or DEFAULT_MODEL,
        models={} if model else profile.models,
        own={one.name if offline else one.dataset: one for one in own},
        descriptions=descriptions,
        device=device,
        dtype=dtype,
        reading=reading,
        on_error=on_error,
        views_of=profile.views_of,
    )
    if data is not None or offline:
        _ = library.encoder  # fails early if the model cannot be loaded
    make_folder(out)
    _write(_measure(plans, library, ResultStore(out)), out, formats, json)


def _measure(plans: Sequence[Plan], library: Library, store: ResultStore) -> list[Table]:
    """The tables of plans, with a progress bar for the runs and one for the features of a dataset."""
    with progress() as bar:
        whole, part = bar.add_task(""), bar.add_task("", visible=False)

        def job_begins(job: PlannedJob, done: int, total: int) -> None:
            bar.update(whole, description=f"{job.dataset}: {job.method}", completed=done, total=total)
            bar.update(part, visible=False)

        def extracting(what: str, done: int, total: int) -> None:
            bar.update(part, description=f"features of {what}", completed=done, total=total, visible=True)

        library.on_progress = extracting
        try:
            return reproduce_plans(plans, library, store, job_begins)
        except KeyboardInterrupt:
            say("stopped; finished results are saved, and the same command resumes")
            raise


def _write(done: Sequence[Table], out: Path, formats: Sequence[str], json: Path | None) -> None:
    without_figures = write_results(done, out, formats)
    if write_json(json, [to_json(table) for table in done]):
        for table in done:
            show(table)
    if without_figures:
        say(without_figures)
    say(f"results are in {out}" + (f"; open {out / 'report.html'}" if "html" in formats else ""))


def show(table: Table) -> None:
    """Print a table with its notes."""
    console = tables()
    console.print(
        f"[bold]{plain(table.title)}[/bold] ({plain(table.experiment.unit)})", highlight=False, soft_wrap=True
    )
    screen = Screen("", *right(*map(plain, table.headings)))
    for section, line in table.sections:
        if section is not None:
            screen.add_section()
            screen.add_row(f"[italic]{plain(section)}[/italic]")
        screen.add_row(plain(line.row.label), *("\n".join(map(plain, cell.texts)) for cell in line.cells))
    print_table(screen)
    meaning = "Each cell: ours, the paper's, the difference." if table.comparable and table.experiment.place else ""
    print_lines(*filter(None, (table.experiment.note, meaning, *table.remarks)), "")


def _list(json: Path | None) -> None:
    rows = list_experiments()
    if write_json(json, rows):
        table = Screen("experiment", "in the paper", "what it shows", "rows")
        for row in rows:
            table.add_row(*(str(row[key]) for key in ("id", "place", "title", "rows")))
        print_table(table)
