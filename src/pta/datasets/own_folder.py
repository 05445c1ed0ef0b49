"""A user's own folder of images: one sub-folder a class, or just images."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pta.datasets.class_index import ClassIndex
from pta.datasets.sample_set import FileImage, ImageSet
from pta.datasets.trees import image_files, sub_folders
from pta.errors import UnreadableFile


def open_folder(folder: Path, class_names: Sequence[str] | None = None) -> ImageSet:
    """Sub-folders are classes, in sorted order or in that of `class_names`; images lying loose have no labels."""
    keys = image_files(folder)
    if not keys:
        raise UnreadableFile(f"{folder} holds no images (.jpg, .png, .webp, …), nor do its sub-folders")
    images = tuple(FileImage(folder / key, key) for key in keys)
    nested = [key for key in keys if "/" in key]
    if not nested:
        return ImageSet(folder.absolute().name, tuple(class_names or ()), images, None)
    if len(nested) < len(keys):
        loose = next(key for key in keys if "/" not in key)
        raise UnreadableFile(
            f"{folder} holds images directly ({loose}) and in sub-folders ({nested[0]}); "
            "put every image into the sub-folder of its class, or all into one folder"
        )
    return _by_class(folder, images, class_names)


def _by_class(folder: Path, images: tuple[FileImage, ...], class_names: Sequence[str] | None) -> ImageSet:
    owners = [image.key.partition("/")[0] for image in images]
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
        [f"sub-folders without images are no classes: {', '.join(empty[:5])}"] if empty and class_names is None else []
    )
    if len(set(label.values())) < len(names):
        notes.append(f"{len(names) - len(set(label.values()))} of {len(names)} classes have no images here")
    return ImageSet(folder.absolute().name, names, images, labels, notes=tuple(notes))
