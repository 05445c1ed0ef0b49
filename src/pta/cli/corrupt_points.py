"""`pta corrupt-points`: clean clouds to a set like ModelNet-C."""

from pathlib import Path
from typing import Annotated

import typer

from pta.cli.output import progress, require_place, write_json
from pta.corruptions.point_files import corrupt_files


def corrupt_points(
    sources: Annotated[list[Path], typer.Argument(metavar="SOURCE", help="Files of clouds, .h5, in their order.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder for clean.h5, add_global_0.h5, ….")],
    seed: Annotated[int, typer.Option(min=0, help="Draws the corruptions, each cloud by its number.")] = 1,
    legacy: Annotated[
        bool, typer.Option("--legacy", help="Draw as the published files were drawn; from ModelNet40 it is ModelNet-C.")
    ] = False,
    points: Annotated[int, typer.Option(min=8, help="How many points of each cloud are taken, the first.")] = 1024,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite files that exist.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write what was made as JSON; - for stdout.")] = None,
) -> None:
    """Make seven corruptions of point clouds in five severities, as ModelNet-C has them."""
    require_place(json)
    with progress() as bar:
        task = bar.add_task("corrupting")
        files = corrupt_files(
            *(sources, out),
            seed=None if legacy else seed,
            points=points,
            replace=replace,
            on_progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    record = {"files": [str(path) for path in files], "seed": None if legacy else seed, "points": points}
    if write_json(json, record):
        print(f"{out}: {len(files)} files")
