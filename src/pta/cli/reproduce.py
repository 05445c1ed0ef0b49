"""`pta reproduce`: every table and figure of the paper, ours beside the paper's."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as Screen

from pta.cli import options
from pta.cli.filled_table import show
from pta.cli.fitting_table import print_table
from pta.cli.messages import say
from pta.cli.options import open_features
from pta.cli.output import progress, require_folder_place, require_place, write_json
from pta.core.modality import IMAGES
from pta.door.plain_files import make_folder
from pta.errors import InvalidParameter
from pta.evaluation.result_store import ResultStore
from pta.models import DEFAULT_MODEL, find_device
from pta.reproduction.data_files import to_json
from pta.reproduction.declaration import load_experiments
from pta.reproduction.library import Library
from pta.reproduction.plan import Job, place
from pta.reproduction.profile import profile_with
from pta.reproduction.reproduce import list_experiments
from pta.reproduction.reproduce import reproduce as reproduce_plans
from pta.reproduction.table_files import write_results
from pta.run.reading import require_decoder


def reproduce(
    experiments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[EXPERIMENT|FILE.toml]...", help="Names that --list shows, or files of your own."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show all experiments and exit.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="All experiments.")] = False,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Run small versions on the packaged data and on --features."),
    ] = False,
    data: Annotated[Path | None, typer.Option(help="Folder that holds the datasets; see pta datasets.")] = None,
    features: Annotated[
        list[Path] | None, typer.Option(help="A feature file, or a folder of them; may be repeated.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help=f"As for pta extract; {options.MODEL_VARIABLE} is used unless offline.",
            show_default=f"{DEFAULT_MODEL}; offline: the embedded models",
        ),
    ] = None,
    descriptions: Annotated[
        Path | None, typer.Option(help="Folder with sentences for each class, DATASET.json, for the GPT rows.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of seeds per row.", show_default="offline: 10")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for results, features, tables and the report.")] = Path(
        "reproduction"
    ),
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    batch: options.Batch = 64,
    workers: options.Workers = None,
    decode: options.Decode = "auto",
    no_compile: options.NoCompile = False,
    on_error: options.OnError = "stop",
    json: Annotated[Path | None, typer.Option(help="Write every cell as JSON; - for stdout.")] = None,
) -> None:
    """Run the paper's experiments on the data you have. Resumes; finished results are cached."""
    require_place(json)
    require_folder_place(out)
    if list_:
        _list(json)
        return
    chosen = load_experiments(experiments or [], every=all_ or (offline and not experiments))
    if not (offline or data or features):
        raise InvalidParameter("nothing to run on: --data ROOT for the paper's datasets, --features FILE, or --offline")
    options.require_folder("--data", data)
    options.require_folder("--descriptions", descriptions)
    require_decoder(decode, IMAGES, find_device(device))
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
        batch=batch,
        workers=workers,
        decode=decode,
        compiled=not no_compile,
        on_error=on_error,
        views_of=profile.views_of,
    )
    if data is not None or offline:
        _ = library.encoder  # fails early if the model cannot be loaded
    make_folder(out)
    with progress() as bar:
        whole, part = bar.add_task(""), bar.add_task("", visible=False)

        def job_begins(job: Job, done: int, total: int) -> None:
            bar.update(whole, description=f"{job.dataset}: {job.method}", completed=done, total=total)
            bar.update(part, visible=False)

        def extracting(what: str, done: int, total: int) -> None:
            bar.update(part, description=f"features of {what}", completed=done, total=total, visible=True)

        library.on_progress = extracting
        try:
            done = reproduce_plans(plans, library, ResultStore(out), job_begins)
        except KeyboardInterrupt:
            say("stopped; finished results are saved, and the same command resumes")
            raise
    report, without_figures = write_results(done, out)
    if write_json(json, [to_json(table) for table in done]):
        for table in done:
            show(table)
    if without_figures:
        say(without_figures)
    say(f"results are in {out}; open {report}")


def _list(json: Path | None) -> None:
    rows = list_experiments()
    if write_json(json, rows):
        table = Screen("experiment", "in the paper", "what it shows", "rows", title_justify="left")
        for row in rows:
            table.add_row(*(str(row[key]) for key in ("id", "place", "title", "rows")))
        print_table(table)
