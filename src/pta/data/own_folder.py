"""A user's own folder of samples: one sub-folder per class, or just samples."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pta.core.modality import IMAGES, Modality
from pta.data.class_index import ClassIndex
from pta.data.sample_set import SampleFile, SampleSet
from pta.data.trees import sample_files, sub_folders
from pta.errors import UnreadableFile


def open_folder(folder: Path, class_names: Sequence[str] | None = None, modality: Modality = IMAGES) -> SampleSet:
    """Sub-folders are classes, in sorted order or in that of `class_names`; samples lying loose have no labels."""
    keys = sample_files(folder, modality)
    if not keys:
        raise UnreadableFile(f"{folder} holds no {modality.name}s ({modality.endings}), nor do its sub-folders")
    samples = tuple(SampleFile(folder / key, key) for key in keys)
    nested = [key for key in keys if "/" in key]
    if not nested:
        return SampleSet(folder.absolute().name, tuple(class_names or ()), samples, None)
    if len(nested) < len(keys):
        loose = next(key for key in keys if "/" not in key)
        raise UnreadableFile(
            f"{folder} holds {modality.name}s directly ({loose}) and in sub-folders ({nested[0]}); "
            f"put every {modality.name} into the sub-folder of its class, or all into one folder"
        )
    owners = [key.partition("/")[0] for key in keys]
    names = tuple(sorted(set(owners)) if class_names is None else class_names)
    notes = []
    if class_names is None:
        label = {name: number for number, name in enumerate(names)}
        if empty := [name for name in sub_folders(folder) if name not in label]:
            notes.append(f"sub-folders without {modality.name}s are not classes: {', '.join(empty[:5])}")
    else:
        index = ClassIndex(names)
        label = {name: index.label(name, f"{folder}: the sub-folder") for name in sorted(set(owners))}
    if missing := len(names) - len(set(label.values())):
        notes.append(f"{missing} of {len(names)} classes have no {modality.name}s here")
    labels = np.array([label[owner] for owner in owners], np.int64)
    return SampleSet(folder.absolute().name, names, samples, labels, notes=tuple(notes))
