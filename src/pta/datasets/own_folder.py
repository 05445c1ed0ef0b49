"""A user's own folder of samples: one sub-folder per class, or just samples."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pta.datasets.class_index import ClassIndex
from pta.datasets.sample_set import SampleFile, SampleSet
from pta.datasets.trees import sample_files, sub_folders
from pta.errors import UnreadableFile
from pta.modality import IMAGES, Modality


def open_folder(folder: Path, class_names: Sequence[str] | None = None, modality: Modality = IMAGES) -> SampleSet:
    """Sub-folders are classes, in sorted order or in that of `class_names`; samples lying loose have no labels."""
    keys = sample_files(folder, modality)
    if not keys:
        raise UnreadableFile(f"{folder} holds no {modality.name}s ({modality.endings}), nor do its sub-folders")
    samples = tuple(SampleFile(folder / key, key) for key in keys)
    nested = [key for key in keys if "/" in key]
    if not nested:
        return SampleSet(folder.absolute().name, tuple(class_names or ()), samples, None, modality=modality)
    if len(nested) < len(keys):
        loose = next(key for key in keys if "/" not in key)
        raise UnreadableFile(
            f"{folder} holds {modality.name}s directly ({loose}) and in sub-folders ({nested[0]}); "
            f"put every {modality.name} into the sub-folder of its class, or all into one folder"
        )
    names, labels, notes = _by_class(folder, keys, class_names, modality)
    return SampleSet(folder.absolute().name, names, samples, labels, notes=notes, modality=modality)


def _by_class(
    folder: Path, keys: Sequence[str], class_names: Sequence[str] | None, modality: Modality
) -> tuple[tuple[str, ...], NDArray[np.int64], tuple[str, ...]]:
    """Class names, the label of each key by its sub-folder, and remarks for the user."""
    owners = [key.partition("/")[0] for key in keys]
    classes = sorted(set(owners))
    names = tuple(classes if class_names is None else class_names)
    if class_names is None:
        label = {name: number for number, name in enumerate(classes)}
    else:
        index = ClassIndex(names)
        label = {name: index.label(name, f"{folder}: the sub-folder") for name in classes}
    labels = np.array([label[owner] for owner in owners], np.int64)
    notes = []
    empty = [name for name in sub_folders(folder) if name not in label]
    if empty and class_names is None:
        notes.append(f"sub-folders without {modality.name}s are no classes: {', '.join(empty[:5])}")
    if len(set(label.values())) < len(names):
        missing = len(names) - len(set(label.values()))
        notes.append(f"{missing} of {len(names)} classes have no {modality.name}s here")
    return names, labels, tuple(notes)
