"""`pta corrupt-points`: make a dataset like ModelNet-C from clean clouds."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from pta.cli.output import progress_of, require_place, write_json
from pta.data.shifts.point_files import corrupt_files


def corrupt_points(
    sources: Annotated[list[Path], "Files of clouds (.h5), in their order.", Argument(metavar="SOURCE")],
    out: Annotated[Path, "The folder for clean.h5, add_global_0.h5, ….", Argument(metavar="OUT")],
    seed: Annotated[int, "Random seed; with a cloud's number it gives its noise.", Option(min=0)] = 1,
    legacy: Annotated[
        bool, "Draw randomness as the authors did: ModelNet40 then gives ModelNet-C, up to ties."
    ] = False,
    points: Annotated[int, "How many points of each cloud to use, from its start.", Option(min=8)] = 1024,
    replace: Annotated[bool, "Overwrite files that exist."] = False,
    json: Annotated[Path | None, "Write a summary as JSON; - for stdout."] = None,
) -> None:
    """Make ModelNet-C's seven corruptions of point clouds in five severities."""
    require_place(json)
    drawn = None if legacy else seed
    with progress_of("corrupting") as move:
        files = corrupt_files(sources, out, seed=drawn, points=points, replace=replace, on_progress=move)
    record = {"files": [str(path) for path in files], "seed": drawn, "points": points}
    if write_json(json, record):
        print(f"{out}: {len(files)} files")
