"""A user's own folder of samples: one sub-folder per class, or just samples."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

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
        return SampleSet(folder.absolute().name, tuple(class_names or ()), samples, None)
    if len(nested) < len(keys):
        loose = next(key for key in keys if "/" not in key)
        raise UnreadableFile(
            f"{folder} holds {modality.name}s directly ({loose}) and in sub-folders ({nested[0]}); "
            f"put every {modality.name} into the sub-folder of its class, or all into one folder"
        )
    return _by_class(folder, samples, class_names, modality.name)


def _by_class(folder: Path, samples: tuple[SampleFile, ...], class_names: Sequence[str] | None, what: str) -> SampleSet:
    owners = [sample.key.partition("/")[0] for sample in samples]
    classes = sorted(set(owners))
    names = tuple(classes if class_names is None else class_names)
    if class_names is None:
        label = {name: number for number, name in enumerate(classes)}
    else:
        index = ClassIndex(names)
        label = {name: index.label(name, f"{folder}: the sub-folder") for name in classes}
    labels = np.array([label[owner] for owner in owners], np.int64)
    empty = [name for name in sub_folders(folder) if name not in label]
    notes = (
        [f"sub-folders without {what}s are no classes: {', '.join(empty[:5])}"] if empty and class_names is None else []
    )
    if len(set(label.values())) < len(names):
        notes.append(f"{len(names) - len(set(label.values()))} of {len(names)} classes have no {what}s here")
    return SampleSet(folder.absolute().name, names, samples, labels, notes=tuple(notes))
