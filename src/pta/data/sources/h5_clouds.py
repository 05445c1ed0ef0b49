"""Clouds in one .h5 file: many samples with labels, and the names of the labels in `shape_names.txt` beside it."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pta.core.modality import CLOUDS, Modality
from pta.data.sample_set import MemorySample, SampleFile, SampleSet
from pta.door.files import read_text
from pta.door.points.h5 import read_h5
from pta.errors import UnreadableFile

_NAMES = "shape_names.txt"


def as_npy(points: NDArray[Any]) -> bytes:
    """Points as they are stored, as an npy file."""
    content = BytesIO()
    npy.write_array(content, points, allow_pickle=False)
    return content.getvalue()


def read_clouds(path: Path, classes: int | None = None) -> tuple[tuple[MemorySample, ...], NDArray[np.int64]]:
    """The clouds of a file and their labels; one from `classes` on is refused."""
    stamp = SampleFile(path, path.name).stamp
    stored = read_h5(path)
    if classes is not None and (wrong := np.flatnonzero((stored.labels < 0) | (stored.labels >= classes))).size:
        label = stored.labels[wrong[0]]
        raise UnreadableFile(f"{path}: cloud {wrong[0]} has label {label}; there are {classes} classes")
    clouds = (MemorySample(f"{path.name}/{n}", points, as_npy, stamp) for n, points in enumerate(stored.clouds))
    return tuple(clouds), stored.labels


def open_h5(source: str, class_names: Sequence[str] | None, _: Modality = CLOUDS) -> SampleSet:
    """The clouds of a file; without class names, given or beside the file, nothing is known about its labels."""
    path = Path(source)
    names = _names_beside(path) if class_names is None else tuple(class_names)
    clouds, labels = read_clouds(path, len(names) or None)
    return SampleSet(path.stem, names, clouds, labels if names else None, modality=CLOUDS)


def _names_beside(path: Path) -> tuple[str, ...]:
    """One name per line, from the folder of the file or the one above."""
    for folder in path.absolute().parents[:2]:
        if (folder / _NAMES).is_file():
            lines = read_text(folder / _NAMES, "class name").splitlines()
            return tuple(line.strip() for line in lines if line.strip())
    return ()
