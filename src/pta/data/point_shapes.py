"""Clouds that need no download: procedural shapes and furniture, clean or under a corruption of ModelNet-C.

They have names of their own: `point_shapes/procedural`, `point_shapes/furniture`, and with a corruption, a severity
from 0 to 4 and perhaps how many, `point_shapes/furniture/jitter/2`, `point_shapes/procedural/rotate/4/500`.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pta.core.modality import CLOUDS
from pta.core.parameters import require_text
from pta.data.packaged_clouds import LabelledClouds, load_furniture_test, load_procedural_test
from pta.data.sample_set import SampleSet, names_for, packaged_set
from pta.data.shifts.points import CORRUPTIONS, SEVERITIES, Points, corrupt_points, require_corruption
from pta.data.sources.h5_clouds import as_npy
from pta.errors import InvalidParameter, nearest

NAME = "point_shapes"
_SEED = 1  # of the corruptions

SHAPE_SOURCES: dict[str, Callable[[], LabelledClouds]] = {
    "procedural": load_procedural_test,
    "furniture": load_furniture_test,
}
"""What reads the test clouds of each source."""


def load_shapes(source: str) -> LabelledClouds:
    """The test clouds of `procedural` or `furniture`.

    >>> load_shapes("furniture").clouds.shape[1:]
    (1024, 3)
    """
    if require_text("the source of shapes", source) not in SHAPE_SOURCES:
        raise InvalidParameter(f"unknown source of shapes {source!r}; {nearest(source, SHAPE_SOURCES)}")
    return SHAPE_SOURCES[source]()


def open_point_shapes(source: str, class_names: Sequence[str] | None = None) -> SampleSet:
    """The packaged clouds of that name; `class_names` replace their own.

    >>> clouds = open_point_shapes("point_shapes/furniture/jitter/2/20")
    >>> len(clouds), clouds.samples[0].key, clouds.class_names[clouds.labels[0]]
    (20, 'point_shapes/furniture/jitter/2/20/0000', 'armchair')
    """
    made_by, corruption, count = _chosen(source)
    test = load_shapes(made_by)
    names = names_for(source, test.class_names, class_names)
    if count is not None and not 0 < count <= len(test):
        raise InvalidParameter(f"{source}: there are {len(test):,} clouds; a count is from 1 to that")
    return packaged_set(source, corrupted(test.clouds[:count], corruption), as_npy, test.labels, names, CLOUDS)


def corrupted(clouds: NDArray[np.float32], corruption: tuple[str, int] | None, seed: int = _SEED) -> list[Points]:
    """Each cloud under a corruption and severity, if there is one."""
    if corruption is None:
        return list(clouds)
    return [corrupt_points(cloud, *corruption, seed=seed, number=number) for number, cloud in enumerate(clouds)]


def _chosen(source: str) -> tuple[str, tuple[str, int] | None, int | None]:
    """Which source, corruption, severity and count a name says."""
    match require_text("the name of packaged clouds", source).split("/")[1:]:
        case [made_by] if made_by in SHAPE_SOURCES:
            return made_by, None, None
        case [made_by, corruption, severity, *counts] if made_by in SHAPE_SOURCES and severity.isdecimal():
            require_corruption(corruption, int(severity))
            if len(counts) < 2 and "".join(counts).isdecimal() == bool(counts):
                return made_by, (corruption, int(severity)), int(counts[0]) if counts else None
    raise InvalidParameter(
        f"{source!r} names no packaged clouds; there are {' and '.join(f'{NAME}/{name}' for name in SHAPE_SOURCES)}, "
        f"perhaps with /CORRUPTION/SEVERITY, a corruption from {', '.join(CORRUPTIONS)} and a severity from 0 to "
        f"{SEVERITIES[-1]}, and then perhaps with /COUNT (for a folder: ./{source})"
    )
