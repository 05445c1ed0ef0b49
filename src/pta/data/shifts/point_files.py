"""Files of clouds to the files of a corrupted set: `clean.h5`, and one per corruption and severity."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pta.core.parameters import require_count, require_seed
from pta.data.shifts.points import EVERY, Points, corrupt_as_published, corrupt_points, corruptible
from pta.door.claims import sole_writer
from pta.door.files import as_path, exists
from pta.door.plain_files import make_folder
from pta.door.points.cloud import FEWEST_POINTS, MOST_ROWS, Cloud
from pta.door.points.h5 import StoredClouds, read_h5, write_h5
from pta.errors import InvalidParameter, InvalidSamples, UnreadableFile, naming


def corrupt_files(
    sources: Sequence[str | Path],
    out: str | Path,
    *,
    seed: int | None = 1,
    points: int = 1024,
    replace: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Path]:
    """Write the first `points` points of every cloud under each corruption and severity; gives the files.

    With `seed=None` the clouds are those of the published ModelNet-C, given its sources in the same order, except for
    points of `dropout_local` at equal distances. Otherwise each cloud is drawn by its own numbers. Nothing is
    written if any cloud cannot be used, or if a file exists and may not be replaced.
    """
    require_count("points", points, FEWEST_POINTS, MOST_ROWS)
    clouds, labels = _first_points(sources, points)
    folder = as_path(out)
    files = [folder / "clean.h5", *(folder / f"{corruption}_{severity}.h5" for corruption, severity in EVERY)]
    if not replace and (there := next(filter(exists, files), None)):
        raise UnreadableFile(f"{there} exists; choose another folder, or replace it with --replace")
    make_folder(folder)
    made: Iterator[Sequence[Points]]
    if seed is None:
        made = (several for _, _, several in corrupt_as_published(clouds))
    else:
        numbered, given = list(enumerate(clouds)), require_seed(seed)
        made = ([corrupt_points(one, *kind, seed=given, number=n) for n, one in numbered] for kind in EVERY)
    with sole_writer(files[0]):
        for done, (path, content) in enumerate(zip(files, chain([clouds], made), strict=True), start=1):
            write_h5(path, StoredClouds(np.stack(content), labels))
            on_progress(done, len(files))
    return files


def _first_points(sources: Sequence[str | Path], points: int) -> tuple[list[Cloud], NDArray[np.int64]]:
    clouds: list[Cloud] = []
    labels = []
    for source in sources:
        stored = read_h5(source)
        with naming(str(source)):
            if stored.clouds.shape[1] < points:
                raise InvalidSamples(f"cloud 0 has {stored.clouds.shape[1]} points, fewer than {points}")
            clouds += corruptible(list(stored.clouds[:, :points]))
        labels.append(stored.labels)
    if not clouds:
        raise InvalidParameter("no files of clouds were given")
    return clouds, np.concatenate(labels)
